"""About when waiting runs start, as `gputui queue` shows it: from the progress of runs and the time of earlier ones."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from typing import Any

import pytest
from gputui.engine import runs
from gputui.engine.leases import free_gpus, lease
from gputui.engine.proof import request
from gputui.engine.queue import adding, entries, entry_changes, free_devices, queue_settings
from gputui.engine.queue.durations import Durations
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.runs import Run, events, titles
from gputui.engine.runs.events import EVENTS_FILE
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trials.search_record import Limits
from gputui.tui import cli

from tests.support.queued import GPUS, Trainings, add, no_runner, waiting


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def progress(run: Run, left: float) -> None:
    writer = EventWriter(run.file(EVENTS_FILE), run.id)
    none = dict.fromkeys(("samples_per_second", "step_ms_p50", "step_ms_p95", "input_wait", "loss"))
    writer.emit(events.Progress(epoch=1, epochs=2, step=1, steps=2, metrics={}, eta_seconds=left, **none))
    writer.close()


def ended(name: str, seconds: float, outcome: events.Outcome = "ok", **changes: Any) -> Run:
    """A run that has ended after so many seconds; `changes` are its options that differ from the preset's."""
    origin = titles.record(name, "", {f"train.{key}": (0, value) for key, value in changes.items()})
    run = runs.create(name, "schema: 1\n", more={titles.FILE: origin})
    run.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=outcome, seconds=seconds))))
    return run


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, float | None]]:
    capsys.readouterr()
    assert cli.run(("queue", "--json")) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return {row["run"]: (row["when"], row["starts_in_seconds"]) for row in rows if row["place"]}


def test_all_that_wait_are_shown_with_about_when_they_start(capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in (90.0, 100.0, 3000.0):
        ended("fast", seconds)
    ended("fast", 1.0, "error")
    trainings, made = Trainings(), [waiting("fast") for _ in range(5)]
    new = waiting("new")
    add(*made, new)
    last = waiting("fast")
    add(last)
    assert set(shown(capsys).values()) == {("unknown", None)}, "nobody has looked at the devices"
    runner = trainings.runner()
    runner.tick()
    progress(made[0], 30.0)
    progress(made[1], 50.0)
    assert shown(capsys) == {
        made[2].id: ("in about 0:30", 30),
        made[3].id: ("in about 0:50", 50),
        made[4].id: ("in about 2:10", 130),
        new.id: ("in about 2:30", 150),
        last.id: ("unknown", None),
    }
    assert cli.run(("queue",)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "in about 2:10" in lines[5]
    assert "unknown" in lines[7]
    entry_changes.hold(made[2].id)
    assert [shown(capsys)[run.id] for run in made[2:4]] == [("", None), ("in about 0:30", 30)]
    entry_changes.pause()
    assert set(shown(capsys).values()) == {("", None)}


def test_a_run_without_progress_ends_when_earlier_ones_did(capsys: pytest.CaptureFixture[str]) -> None:
    ended("fast", 100.0)
    trainings, made = Trainings([Device(CPU)]), [waiting("fast", visible="none") for _ in range(2)]
    add(*made)
    trainings.runner().tick()
    with entries.locked():
        entries.write(replace(entries.all_entries()[0], started_at=time.time() - 40))
    when, seconds = shown(capsys)[made[1].id]
    assert seconds == pytest.approx(60, abs=5), when


def test_a_measurement_takes_its_time_limit_and_an_interrupted_run_what_it_had_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, interrupted = waiting("a", visible="none"), waiting("b", visible="none")
    add(first, interrupted)
    progress(interrupted, 70.0)
    asked = request.of_preset("tune", "quickstart", [], search=Limits(minutes=20))
    searched, last = adding.queue_proof(asked), waiting("c", visible="none")
    add(last)
    Trainings([Device(CPU)]).runner().tick()
    progress(first, 10.0)
    times = shown(capsys)
    assert [times[name][1] for name in (interrupted.id, searched.run, last.id)] == [10, 80, 1280]


def test_a_run_that_was_not_queued_counts_if_it_is_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run of another user, and of another program, nobody knows when it ends."""
    alone = runs.create("alone", "schema: 1\n")
    progress(alone, 25.0)
    made = waiting("fast", visible=[0])
    add(made)
    me, other = lease.user_name(os.geteuid()), "somebody else"
    for user, expected in ((me, 25), (other, None)):
        use = free_gpus.GpuUse(0, "GPU-a", "T4", holder=lease.Holder("GPU-a", user, run=str(alone.path)))
        reader = free_devices.DeviceReader()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(free_gpus.GpuWatch, "read", lambda _watch, use=use: [use])
            seen = reader()
        Trainings(seen).runner().tick()
        assert shown(capsys)[made.id][1] == expected


def test_a_gpu_that_has_to_stay_idle_is_free_soon(capsys: pytest.CaptureFixture[str]) -> None:
    add(made := waiting("fast"))
    settles = [replace(GPUS[0], holder="must stay idle for 20 s first", settles=True)]
    Trainings(settles).runner().tick()
    assert shown(capsys)[made.id] == ("soon", 0)


def test_the_hours_of_the_queue_are_waited_for() -> None:
    night = queue_settings.Settings(hours=(20, 8))
    moments = [time.mktime((2026, 2, 3, hour, 1, 30, 0, 0, -1)) for hour in (0, 8, 19, 20)]
    assert [night.opens_in(moment) for moment in moments] == [0, 12 * 3600 - 90, 3600 - 90, 0]


def test_earlier_runs_count_if_they_took_as_many_steps() -> None:
    run = ended("fast", 0.0, "error", epochs=3, seed=1)
    others = [ended("fast", 5.0, epochs=2, seed=1), ended("slow", 6.0), ended("fast", 4.0)]
    assert Durations(others).expected_seconds(run) is None
    same = [ended("fast", 7.0, epochs=3, seed=2), ended("fast", 9.0, epochs=3, learning_rate=0.1)]
    assert Durations([*same, *others]).expected_seconds(run) == 8.0
