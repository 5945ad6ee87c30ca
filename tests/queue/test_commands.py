"""The commands of the queue, for runs and for measurements, with the test as the runner."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    NOT_FREE,
    Limits,
    Proof,
    ProofError,
    RunError,
    adding,
    entries,
    entry_changes,
    folder,
    gpu_use,
    jobs,
    part_of_sweep,
    presets,
    tune_request,
)
from tests.doors.engine import proof_request as request
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_devices_Device as Device
from tests.doors.engine import queue_start as start
from tests.doors.tui import WRONG, queue
from tests.doors.tui import tui_cli as cli
from tests.support import recorded
from tests.support.queued import Said, Trainings, add, no_runner, waiting


def test_the_unit_of_systemd_starts_the_runner_of_this_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # without systemctl
    file = tmp_path / "config/systemd/user/gputui-queue.service"
    assert cli.run(("queue", "service")) == 0
    unit = capsys.readouterr().out
    assert f'Environment="GPUTUI_HOME={home}"\n' in unit
    assert f'ExecStart="{sys.executable}" -P -m gputui.engine.queue\nKillMode=process\nRestart=on-failure\n' in unit
    assert cli.run(("queue", "service", "--install")) == 0
    assert f"{file} is written; now run: systemctl --user daemon-reload" in capsys.readouterr().out
    assert file.read_text() == unit
    assert cli.run(("queue", "service", "--remove")) == 0
    assert not file.exists()


def test_a_run_that_has_trained_is_put_back_with_all_its_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose engine was lost waits for another start; it has readings but no result."""
    no_runner(monkeypatch)
    run, new = waiting("lost"), waiting("new")
    run.file("telemetry.jsonl").write_text('{"t":1.0,"type":"host","run":"lost"}\n')
    for each in (run, new):
        entries.add_entry(entries.entry_of(each))
        taken = entry_changes.remove(each.id)
        assert taken is not None
        assert each.result is not None
        taken.put_back()
        assert each.result is None
    assert run.file("telemetry.jsonl").read_text() == '{"t":1.0,"type":"host","run":"lost"}\n'
    assert not new.file("telemetry.jsonl").exists()


def test_a_runner_that_cannot_be_started_does_not_hinder_a_command(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    entries.add_entry(entries.entry_of(waiting("one")))
    for fault, words in ((OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
                         (RunError("it is damaged"), "it is damaged")):  # fmt: skip

        def fails(fault: Exception = fault) -> None:
            raise fault

        monkeypatch.setattr(entries, "ensure_runner", fails)
        assert cli.run(["options", "batch_size"]) == 0
        assert said("queue", "pause").endswith(f"the queue: {words}\n")


Begun = list[tuple[str, list[str]]]
CHANGE = ("--preset", "quickstart", "--set", "steps_per_execution=4")


def queued(after: str | None = None) -> Proof:
    """A measurement in the queue, whose runner is the test."""
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    return Proof(folder.proofs_folder() / adding.queue_proof(asked, after).run)


def test_a_waiting_measurement_is_shown_so_and_can_be_taken_out(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)

    first, second = queued(), queued()
    assert queue.place_text(entries.all_entries()[1], queue.title_of).endswith(
        "needs the CPU: ab of quickstart is before it"
    )
    assert (first.state, second.record.state) == ("waiting", "waiting")
    assert f"{first.id} (ab)" in said("queue")
    assert [json.loads(row)["kind"] for row in said("queue", "--json").splitlines()] == ["ab", "ab"]
    assert said("proof").count("waiting") == 2
    assert json.loads(said("proof", first.id, "--json"))["state"] == "waiting"
    assert "it waits in the queue" in said("proof", "rm", first.id, "--yes", code=WRONG)
    with pytest.raises(ProofError, match="waits in the queue"):
        folder.request_stop(first)
    assert said("proof", first.id, "--stop") == f"{first.id} is taken out of the queue\n"
    assert said("queue", "rm", second.id) == f"{second.id} is taken out of the queue\n"
    assert first.state == second.state == "stopped"
    assert "taken out of the queue" in first.record.ended_because
    assert "leave out --json" in said("ab", *CHANGE, "--queue", "--json", code=WRONG)
    assert "--after RUN needs --queue" in said("ab", *CHANGE, "--after", "latest", code=WRONG)
    assert not entries.all_entries()


def test_the_gpus_are_shown_with_what_the_queue_starts_next(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    named, any_one, held = waiting(visible=[1]), waiting(visible="free:1"), waiting(visible=[0])
    of_slurm = waiting(visible=[0])
    add(of_slurm, held, named, any_one)
    entry_changes.hold(held.id)
    queued_first = entries.read(of_slurm.id)
    assert queued_first is not None
    entries.write(replace(queued_first, slurm_job="7"))
    boxes = [gpu_use.GpuUse(index, f"GPU-{index}", "NVIDIA A100", None, 40 * 1024**3, 0, 0.0, ()) for index in range(2)]
    monkeypatch.setattr(gpu_use, "read", lambda: boxes)
    assert cli.run(("gpus", "--json")) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["next"] for line in lines] == [any_one.id, named.id]
    assert cli.run(("gpus",)) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(any_one.name)


def test_a_queued_sweep_waits_for_its_turn_and_leaves_its_device_to_its_trials(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    first = waiting(visible="none")
    add(first)
    over = ("--preset", "quickstart", "--over", "learning_rate=1e-3,3e-3")
    sweep = folder.find(said("sweep", *over, "--queue").splitlines()[0])
    last, trainings = waiting(visible="none"), Trainings((Device(),))
    add(last)
    runner = trainings.runner()
    for expected in ([first.id], [sweep.id]):
        for _ in range(3):
            runner.tick()
        assert trainings.alive == expected
        if first.id in trainings.alive:
            trainings.end(first.id)
    trial = waiting(visible="none")
    trial.file(part_of_sweep.FILE).write_text(part_of_sweep.SweepPlace(sweep.id, None, {}, 7).as_file())
    adding.queue_trial(trial)
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [sweep.id, trial.id], "before the run that was queued after the sweep"
    assert "--queue measures nothing now" in said("sweep", *over, "--queue", "--json", code=WRONG)


def ended_search(**changes: Any) -> Proof:
    """A search of 5 minutes that was stopped after 2, an hour ago."""
    proof = folder.create(tune_request.of_preset(presets.resolve("quickstart"), Limits(minutes=5.0)))
    file, ended = proof.path / "proof.json", {"state": "stopped", "seconds": 120.0, "started_t": time.time() - 3600}
    file.write_text(json.dumps(json.loads(file.read_text()) | ended | changes))
    return proof


def test_a_resumed_search_waits_with_its_new_time_and_keeps_its_result_if_it_is_taken_out(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    search, first = ended_search(ended_because="it was stopped"), queued()
    result = (search.path / "proof.json").read_text()
    more = ("--minutes", "7", "--queue", "--after", first.id)
    assert said("tune", "--resume", search.id, *more).endswith(f"it waits for {first.id} to end\n")
    assert [(entry.run, entry.what, entry.after) for entry in entries.all_entries()] == [
        (first.id, "ab", None),
        (search.id, "tune", first.id),
    ]
    assert search.request.search is not None
    assert search.request.search.minutes == 9.0, "2 minutes are used"
    assert search.state == jobs.job_of(search.id).state() == "waiting"
    assert "waits in the queue" in said("tune", "--resume", search.id, *more, code=WRONG)
    with pytest.raises(ProofError, match="cannot be queued: it waits in the queue"):
        adding.queue_resumed_proof(search, search.request)
    assert said("queue", "rm", search.id) == f"{search.id} is taken out of the queue\n"
    assert search.state == "stopped"
    assert (search.path / "proof.json").read_text() == result


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Proof:
    """A measurement that the runner is starting, on the CPU."""
    no_runner(monkeypatch)
    measurement = queued()
    (entry,) = entries.all_entries()
    with entries.locked():
        entries.write(replace(entry, state="starting", started_at=1.0))
    return measurement


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """The measurements whose process was started, with their devices."""
    begun: Begun = []
    monkeypatch.setattr(folder, "start", lambda proof, among=(): begun.append((proof.id, list(among))))
    return begun


def test_a_measurement_waits_while_another_training_would_disturb_it(
    starting: Proof, begun: Begun, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write(home, name="20260921-100000-busy", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    assert start.main([starting.id, "1.0", CPU]) == NOT_FREE
    assert "busy" in capsys.readouterr().out
    assert begun == []
