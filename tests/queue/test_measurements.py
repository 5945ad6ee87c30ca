"""Measurements in the queue: the commands, with a real proof on the CPU, and the runner with stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.leases import free_gpus
from gputui.engine.proof import folder, request
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.request import ProofError
from gputui.engine.queue import adding, entries, entry_changes, jobs
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.queue.runner import REFUSED
from gputui.engine.system import locks
from gputui.tui import cli
from gputui.tui.base.errors import WRONG

from tests.support.front_door import gputui, until
from tests.support.queued import Said, Trainings, add, no_runner, states, waiting

CHANGE = ("--preset", "quickstart", "--set", "steps_per_execution=4")


def queued(after: str | None = None) -> Proof:
    """A measurement in the queue, whose runner is the test."""
    asked = request.of_change("quickstart", ["steps_per_execution=4"])
    return Proof(folder.proofs_folder() / adding.queue_proof(asked, after).run)


@pytest.mark.slow
def test_a_queued_measurement_waits_for_a_run_and_is_measured_without_a_terminal(home: Path) -> None:
    gputui("queue", "pause")
    run = gputui("--preset", "quickstart", "--set", "epochs=1", "--queue").stdout.strip()
    done = gputui("ab", *CHANGE, "--seconds", "0.2", "--queue", "--after", run)
    assert done.returncode == 0, done.stderr
    proof = folder.find(done.stdout.strip())
    assert done.stderr == "place 2 in the queue, needs the CPU: the queue is paused; gputui queue start goes on\n"
    assert proof.state == "waiting"
    assert "waits in the queue" in gputui("proof", proof.id).stdout
    rows = [json.loads(line) for line in gputui("queue", "--json").stdout.splitlines()]
    assert [(row["run"], row["kind"]) for row in rows] == [(run, "run"), (proof.id, "ab")]
    gputui("queue", "start")
    until(lambda: proof.state == "running")
    until(lambda: proof.state == "done")
    assert proof.record.comparisons[0].decision in ("faster", "slower", "no difference", "undecided")
    assert proof.record.started_t >= jobs.job_of(run).end_of().at - 1, "the wait is no part of it"
    until(lambda: not entries.all_entries())
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


def test_a_waiting_measurement_is_shown_so_and_can_be_taken_out(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)

    first, second = queued(), queued()
    assert (first.state, second.record.state) == ("waiting", "waiting")
    assert f"{first.id} (ab)" in said("queue")
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
    add(held, named, any_one)
    entry_changes.hold(held.id)
    boxes = [free_gpus.GpuUse(index, f"GPU-{index}", "NVIDIA A100", 0, 40 * 1024**3, 0.0, ()) for index in range(2)]
    monkeypatch.setattr(free_gpus, "read", lambda: boxes)
    assert cli.run(("gpus", "--json")) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["next"] for line in lines] == [any_one.id, named.id]
    assert cli.run(("gpus",)) == 0
    assert any_one.id in capsys.readouterr().out.splitlines()[1]


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
