"""Measurements in the queue: the commands, with a real proof on the CPU, and the runner with stand-ins."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.leases import free_gpus, lease
from gputui.engine.proof import folder, request
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.request import ProofError
from gputui.engine.queue import adding, entries, entry_changes, jobs, queue_settings, start
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.queue.runner import BEGUN, NOT_FREE, REFUSED
from gputui.engine.runs import RunError, part_of_sweep
from gputui.engine.system import locks
from gputui.engine.trials.search_record import Limits
from gputui.engine.tune import tune_request
from gputui.tui import cli
from gputui.tui.base.errors import WRONG
from gputui.tui.reading import queue

from tests.support import recorded
from tests.support.front_door import gputui, until
from tests.support.queued import Said, Trainings, add, no_runner, states, waiting

Begun = list[tuple[str, list[str]]]
CHANGE = ("--preset", "quickstart", "--set", "steps_per_execution=4")
# Of a training that cannot begin with the change: the measurement has its decision after two trials.
CODE = """
import keras, numpy as np
def build(context):
    if context.args["broken"]:
        raise ValueError("broken")
    x = np.ones((64, 4), "float32")
    return {"model": keras.Sequential([keras.layers.Dense(1)]), "loss": "mse", "train": (x, x[:, :1])}
"""
PRESET = "workload: {entry: 'train.py:build', args: {broken: false}}\ninput: {batch_size: 4}\ntrain: {seed: 1}\n"


def queued(after: str | None = None) -> Proof:
    """A measurement in the queue, whose runner is the test."""
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    return Proof(folder.proofs_folder() / adding.queue_proof(asked, after).run)


@pytest.mark.alone  # a measurement on the CPU waits for every training of the machine, also for those of other tests
@pytest.mark.usefixtures("forked_trainers", "nothing_left_running")
def test_a_queued_measurement_waits_for_a_run_and_is_measured_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "mine.yaml").write_text(PRESET)
    change = ("--preset", str(tmp_path / "mine.yaml"), "--set", "args={broken: true}")
    gputui("queue", "pause")
    run = gputui("--preset", "quickstart", "--set", "epochs=1", "--queue").stdout.strip()
    done = gputui("ab", *change, "--seconds", "0.2", "--queue", "--after", run)
    assert done.returncode == 0, done.stderr
    proof = folder.find(done.stdout.strip())
    assert done.stderr == "place 2 in the queue, needs the CPU: the queue is paused; gputui queue start goes on\n"
    assert proof.state == "waiting"
    assert "waits in the queue" in gputui("proof", proof.id).stdout
    rows = [json.loads(line) for line in gputui("queue", "--json").stdout.splitlines()]
    assert [(row["run"], row["kind"]) for row in rows] == [(run, "run"), (proof.id, "ab")]
    gputui("queue", "start")
    until(lambda: proof.state == "done")
    (comparison,) = proof.record.comparisons
    assert comparison.decision == "failed"
    assert [(trial.side, trial.outcome) for trial in comparison.trials] == [("a", "ok"), ("b", "error")]
    assert proof.record.started_t >= jobs.job_of(run).end_of().at - 1, "the wait is no part of it"
    until(lambda: not entries.all_entries())
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


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
    boxes = [free_gpus.GpuUse(index, f"GPU-{index}", "NVIDIA A100", 0, 40 * 1024**3, 0.0, ()) for index in range(2)]
    monkeypatch.setattr(free_gpus, "read", lambda: boxes)
    assert cli.run(("gpus", "--json")) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["next"] for line in lines] == [any_one.id, named.id]
    assert cli.run(("gpus",)) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(any_one.name)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [("", "WWW"), ("never: [1]", "O-O"), ("most: 2", "OOO"), ("most: 3", "WWW"), ("never: [0, 1, 2]", "---")],
)
def test_what_the_settings_of_the_queue_forbid_is_not_started_next(
    settings: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    wide, one = waiting(visible="free:3"), waiting(visible="free:1")
    add(wide, one)
    queue_settings.path().parent.mkdir(parents=True)
    queue_settings.path().write_text(settings)
    boxes = [free_gpus.GpuUse(index, f"GPU-{index}", "NVIDIA A100", 0, 40 * 1024**3, 0.0, ()) for index in range(3)]
    monkeypatch.setattr(free_gpus, "read", lambda: boxes)
    assert cli.run(("gpus", "--json")) == 0
    names = {wide.id: "W", one.id: "O", None: "-"}
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "".join(names[line["next"]] for line in lines) == expected


def test_the_runner_follows_measurements_as_it_follows_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is refused has failed with the reason, one that dies has crashed, and what waits for it then starts."""
    no_runner(monkeypatch)
    refused, dies = queued(), queued()
    last = waiting(visible="none")
    add(last, after=dies)
    assert len({refused.id, dies.id, last.id}) == 3, "the queue names both by their ids"
    trainings = Trainings((Device(CPU),), refused={refused.id: REFUSED})
    runner = trainings.runner()
    runner.tick()
    runner.tick()
    assert (refused.state, refused.record.error) == ("failed", "the run could not be started")
    runner.tick()
    assert trainings.alive == [dies.id]
    assert states() == {dies.id: "running", last.id: "waiting"}
    trainings.end(dies.id, None)
    for _ in range(3):
        runner.tick()
    assert dies.state == "crashed"
    assert trainings.alive == [last.id]


def test_a_queued_sweep_waits_for_its_turn_and_leaves_its_device_to_its_trials(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    first = waiting(visible="none")
    add(first)
    over = ("--preset", "quickstart", "--over", "learning_rate=1e-3,3e-3")
    sweep = folder.find(said("sweep", *over, "--queue").splitlines()[0])
    last, trainings = waiting(visible="none"), Trainings((Device(CPU),))
    add(last)
    runner = trainings.runner()
    for expected in ([first.id], [sweep.id]):
        for _ in range(3):
            runner.tick()
        assert trainings.alive == expected
        if first.id in trainings.alive:
            trainings.end(first.id)
    trial = waiting(visible="none")
    trial.file(part_of_sweep.FILE).write_text(part_of_sweep.content(sweep.id, None, {}, 7))
    adding.queue_trial(trial)
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [sweep.id, trial.id], "before the run that was queued after the sweep"
    assert "--queue measures nothing now" in said("sweep", *over, "--queue", "--json", code=WRONG)


def test_with_anyway_the_queue_does_not_wait_for_others_on_the_cpu(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    patient = waiting(visible="none")
    add(patient)
    run = said("--preset", "quickstart", "--queue", "--anyway").splitlines()[0]
    proof = said("ab", *CHANGE, "--queue", "--anyway").splitlines()[0]
    trainings = Trainings((Device(CPU, holder="used by root's quickstart"),))
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [run], "one after the other"
    trainings.end(run)
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [proof]


def ended_search(**changes: Any) -> Proof:
    """A search of 5 minutes that was stopped after 2, an hour ago."""
    proof = folder.create(tune_request.of_preset("quickstart", [], Limits(minutes=5.0)))
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


def test_what_waits_for_a_measurement_that_died_starts() -> None:
    """Its entry says that it runs until the runner has followed it."""
    no_process = ended_search(state="running")
    entry = replace(entries.Entry(no_process.id, 1.0, kind="proof"), state="running", started_at=1.0)
    with entries.locked():
        entries.write(entry)
    assert jobs.state_if_not_ended(no_process.id) == ""
    with entries.locked():
        entries.write(replace(entry, state="starting"))
    assert jobs.state_if_not_ended(no_process.id) == "waiting"
    with entries.locked():
        entries.discard(no_process.id)


def test_a_queued_measurement_keeps_what_it_waits_for_and_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    first = queued()
    second = queued(first.id)
    assert [(entry.run, entry.after) for entry in entries.all_entries()] == [(first.id, None), (second.id, first.id)]
    gpu = Gpu(0, "GPU-a", "NVIDIA A10", (8, 6), 24 * 1024**3)
    monkeypatch.setattr(adding, "machine", lambda: Machine((gpu,), "", 8, 64 * 1024**3))
    on_cpu = request.of_change("quickstart", ["device.visible=none"])
    on_cpu = replace(on_cpu, preset=on_cpu.preset.replace("visible: all", "visible: none"))
    both = adding.queue_proof(replace(on_cpu, changes={"device.visible": "all"}))
    assert both.needs == "all", "its trials use the devices of both sides"


def test_a_measurement_that_cannot_be_queued_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RunError("the file system has no locks")

    monkeypatch.setattr(entries, "append", fails)
    with pytest.raises(RunError, match="no locks"):
        queued()
    assert not list(folder.proofs_folder().iterdir())


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


def test_a_measurement_begins_on_the_devices_that_the_runner_has_chosen(
    starting: Proof, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.engine.proof.proof_start.blocks", lambda *_: "")
    assert start.main([starting.id, "1.0", CPU]) == BEGUN
    assert begun == [(starting.id, [CPU])]
    (entry,) = entries.all_entries()
    assert (entry.state, entry.devices) == ("running", [CPU])
    with pytest.raises(RunError, match=f"has begun; gputui proof {starting.id} --stop stops it"):
        entry_changes.remove(starting.id)


def test_a_measurement_waits_while_another_training_would_disturb_it(
    starting: Proof, begun: Begun, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write(home, name="20260921-100000-busy", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    assert start.main([starting.id, "1.0", CPU]) == NOT_FREE
    assert "busy" in capsys.readouterr().out
    assert begun == []


def test_a_measurement_with_anyway_begins_although_others_train_on_the_cpu(
    starting: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(folder, "start", lambda _proof, among: begun.append(among))
    (cpu,) = lease.take([CPU], "quickstart")
    assert start.main([starting.id, "1.0", CPU]) == NOT_FREE
    with entries.locked():
        entries.write(replace(entries.all_entries()[0], anyway=True))
    assert start.main([starting.id, "1.0", CPU]) == BEGUN
    assert begun == [None], "the lease stays with the other training"
    cpu.release()


def test_a_measurement_that_this_machine_cannot_make_any_more_ends_with_the_reason(
    starting: Proof, begun: Begun, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = replace(starting.request, changes={"device.visible": "none"})
    (starting.path / "request.json").write_text(changed.to_json())
    assert start.main([starting.id, "1.0", CPU]) == REFUSED
    assert "device.visible=none compares nothing here" in capsys.readouterr().out
    assert begun == []


def test_a_measurement_that_another_runner_has_taken_over_meanwhile_is_not_started_twice(
    starting: Proof, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocks(*_: object) -> str:
        (entry,) = entries.all_entries()
        with entries.locked():
            entries.write(replace(entry, started_at=2.0))
        return ""

    monkeypatch.setattr("gputui.engine.proof.proof_start.blocks", blocks)
    assert start.main([starting.id, "1.0", CPU]) == NOT_FREE
    assert begun == []
