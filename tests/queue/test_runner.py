"""The runner of the queue with stand-ins for devices and trainings: order, failures, kills, hours, and shared GPUs."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from tests.doors.engine import (
    NOT_FREE,
    Run,
    RunError,
    entries,
    entry_changes,
    events,
    runner,
    runs,
)
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_start as start
from tests.support.queued import GPUS, Trainings, add, entry_file, no_runner, states, waiting


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)


def test_a_process_of_a_killed_runner_starts_nothing_after_another_one_has_taken_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = waiting()
    add(run)
    (entry,) = entries.all_entries()
    with entries.locked():
        entries.write(replace(entry, state="starting", started_at=2.0))
    assert start.main([run.id, "1.0", CPU]) == NOT_FREE
    assert capsys.readouterr().out == "it was taken out of the queue, or another runner starts it\n"
    assert states() == {run.id: "starting"}
    assert not run.file("engine.log").exists()


def test_a_waiting_run_is_waiting_everywhere_and_what_would_disturb_it_is_refused() -> None:
    run, damaged = waiting("a"), waiting("b")
    add(run, damaged)
    entry_file(damaged).write_text("{")
    assert run.state == damaged.state == "waiting"
    assert not run.is_active
    assert [line.partition(" is damaged")[0] for line in entries.listing().damage] == [str(entry_file(damaged))]
    for forbidden in (lambda: runs.request_stop(run), lambda: entries.add_entry(entries.entry_of(run))):
        with pytest.raises(RunError, match="queue"):
            forbidden()
    with pytest.raises(RunError, match="waits in the queue"), runs.reserved(run, "delete"):
        pass
    for gone in (run, damaged):
        entry_changes.remove(gone.id)
        assert Run(gone.path).state == "stopped"
    assert not entries.all_entries()


@pytest.mark.parametrize("outcome", [None, "ok", "crashed"])
def test_a_run_taken_out_of_the_queue_keeps_the_result_that_it_has(outcome: str | None) -> None:
    run = waiting()
    result = run.file("result.json")
    if outcome is not None:  # it was queued to be resumed
        result.write_text(json.dumps(asdict(events.Summary(outcome=outcome, steps=7))))  # type: ignore[arg-type]
    before = result.read_text() if outcome else ""
    add(run)
    entry_changes.remove(run.id)
    assert not states()
    assert run.state == outcome or (outcome is None and run.state == "stopped")
    assert result.read_text() == before or outcome is None


class Clock:
    """The time of the runner."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def time(self) -> float:
        return time.time() + self.passed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    no_runner(monkeypatch)
    made = Clock()
    stand_in = SimpleNamespace(monotonic=made.monotonic, time=made.time, strftime=time.strftime, sleep=time.sleep)
    monkeypatch.setattr(runner, "time", stand_in)
    return made


def test_a_start_that_found_its_devices_busy_is_tried_again_after_2_4_8_16_30_and_30_seconds(clock: Clock) -> None:
    run = waiting(visible=[0])
    trainings = Trainings(GPUS, refused={run.id: NOT_FREE})
    add(run)
    carried, tried, reports = trainings.runner(), list[float](), list[object]()
    while len(tried) < 7:
        before = states()[run.id]
        carried.tick()
        if (before, states()[run.id]) == ("waiting", "starting"):
            tried.append(clock.passed)
        elif tried and states()[run.id] == "waiting":
            reports.append((entries.news().why, entries.news().delayed, entries.all_entries()[0].tries))
        clock.passed += 0.5
    assert [round(after - before) for before, after in itertools.pairwise(tried)] == [2, 4, 8, 16, 30, 30]
    late = ({run.id: "its start was interrupted; it is tried again"}, [run.id], 0)
    assert len(reports) > 50
    assert reports == [late] * len(reports), "such a start is no try"
