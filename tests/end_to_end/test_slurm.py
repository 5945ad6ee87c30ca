"""Trainings in jobs of a real Slurm, by the batch scripts of the documents and by the queue: `make test-slurm`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import SLURM_LOG, Run, checkpoint_files, entries, folder, queue_settings, run_cluster, runs
from tests.end_to_end import slurm_cluster as slurm
from tests.end_to_end.slurm_cluster import Slurm
from tests.support.front_door import documented, happened, step, until
from tests.support.idle import idle
from tests.support.needs import lacks

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(600)]
BATCH, SIGNALLED, BY_SRUN = documented("clusters.md", "### A job that goes on by itself")
(TOGETHER,) = documented("clusters.md", "## Several nodes under Slurm")
SHORT, LONG = "1", "30"  # time limits of a job in minutes; Slurm knows none that is shorter


@pytest.fixture
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A cluster whose jobs find the command under test; the parameter says by what it follows their processes."""
    if why := slurm.missing():
        lacks("slurm", why)
    if request.param == "cgroup" and not slurm.has_freezer():
        pytest.skip("proctrack/cgroup needs the freezer of control groups version 1, or systemd")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm.cluster(folder, request.param) as made:
        yield made


@pytest.mark.parametrize("jobs", ["linuxproc"], indirect=True)
def test_a_job_goes_on_after_a_requeue_and_after_its_time_limit(jobs: Slurm, tmp_path: Path) -> None:
    """The time limit comes when there is a checkpoint already: a busy machine may need it all to import TensorFlow."""
    limited = submitted(jobs, tmp_path, "limited", BY_SRUN)
    signalled = submitted(jobs, tmp_path, "signalled", SIGNALLED)
    cancelled = submitted(jobs, tmp_path, "cancelled", BATCH)
    trains(jobs, limited, "limited")
    jobs.run("scontrol", "requeue", limited)
    jobs.start_again(limited, restarts=1, limit=SHORT)
    assert "job's batch script or shell, which runs once" in in_a_shell(jobs)

    for number, name in ((signalled, "signalled"), (cancelled, "cancelled")):
        trains(jobs, number, name)
    jobs.run("scancel", "--batch", "--signal=USR1", signalled)  # as --signal=B:USR1 has Slurm do before the limit
    jobs.run("scancel", cancelled)
    for number, name, state in ((signalled, "signalled", "FAILED"), (cancelled, "cancelled", "CANCELLED")):
        jobs.until_ended(number, state)
        stopped(name)
    assert jobs.job(signalled)["ExitCode"] == "75:0", jobs.report()

    jobs.start_again(limited, restarts=2, limit=LONG)
    run = trains(jobs, limited, "limited", ended=2)
    assert "ended before the time limit of the job" in jobs.output("limited")
    went_on(run)
    jobs.run("scancel", limited)
    jobs.until_ended(limited, "CANCELLED")
    stopped("limited")


@pytest.mark.parametrize("jobs", ["linuxproc", "cgroup"], indirect=True)
def test_what_ends_a_job_leaves_a_checkpoint(jobs: Slurm, tmp_path: Path) -> None:
    requeued = submitted(jobs, tmp_path, "requeued", BATCH)
    together = submitted(jobs, tmp_path, "together", TOGETHER, run="{checkpoint: 50}", kind="multi_worker")
    trains(jobs, requeued, "requeued")
    jobs.run("scontrol", "requeue", requeued)
    jobs.start_again(requeued, restarts=1)

    trains(jobs, together, "together")
    other = run_of("together", 1)
    assert other is not None
    jobs.run("scancel", together)
    jobs.until_ended(together, "CANCELLED")
    assert until(lambda: other.result, 30)["steps"] == checkpoint_of(stopped("together"))

    went_on(trains(jobs, requeued, "requeued", ended=1))
    jobs.run("scancel", requeued)
    jobs.until_ended(requeued, "CANCELLED")
    stopped("requeued")


@pytest.mark.parametrize("jobs", ["linuxproc"], indirect=True)
def test_slurm_starts_the_runs_of_the_queue(jobs: Slurm, tmp_path: Path) -> None:
    """Each is a job: the second waits for the first, one is cancelled, and one goes on after a requeue until a stop."""
    queue_settings.path().parent.mkdir(parents=True)
    queue_settings.path().write_text("engine: slurm\nsbatch: [--cpus-per-task=2]\n")
    first = queued(jobs, tmp_path, "first", "--set", "epochs=20")  # about 20 seconds
    second = queued(jobs, tmp_path, "second", "--set", "epochs=1", "--after", first.id)
    cancelled = queued(jobs, tmp_path, "cancelled", "--after", first.id)
    requeued = queued(jobs, tmp_path, "requeued", run="{checkpoint: 5, tries: 2}")
    number, waits, *_ = (job_of(jobs, run) for run in (first, second))
    assert [run.state for run in (second, cancelled)] == ["waiting", "waiting"]
    reason = f"waits in Slurm as job {waits}: Dependency (after {first.name})"
    jobs.until(waits, lambda: reason in jobs.run("gputui", "queue"), 60)
    assert jobs.run("gputui", "queue", "rm", cancelled.id) == f"{cancelled.name} is taken out of the queue"
    assert cancelled.state == "stopped"
    assert job_of(jobs, cancelled, "CANCELLED")

    jobs.until(number, lambda: first.state == "ok", 240)
    jobs.until(waits, lambda: second.state == "ok", 240)
    assert happened(second, "started")[0]["t"] >= happened(first, "finished")[0]["t"]

    number = job_of(jobs, requeued)
    trains(jobs, number, "requeued")
    jobs.run("scontrol", "requeue", number)
    jobs.until(number, lambda: requeued.state == "waiting")
    jobs.start_again(number, restarts=1)
    went_on(trains(jobs, number, "requeued", ended=1))
    assert "is asked to stop by Slurm" in jobs.run("gputui", "stop", requeued.id)
    jobs.until_ended(number, "COMPLETED")
    stopped("requeued")
    until(lambda: "The queue is empty" in jobs.run("gputui", "queue"), 60)
    assert not entries.all_entries()


SWEPT = """
workload: {model: mlp, data: digits}
train: {epochs: 3, steps_per_epoch: 5, learning_rate: 0.01}
device: {visible: none}
"""


@pytest.mark.parametrize("jobs", ["linuxproc"], indirect=True)
def test_the_trials_of_a_sweep_are_jobs_that_pause_go_on_and_survive_it(jobs: Slurm, tmp_path: Path) -> None:
    """The sweep is killed while its jobs train: the resumed one takes what they have done, and repeats no epoch."""
    queue_settings.path().parent.mkdir(parents=True)
    queue_settings.path().write_text("engine: slurm\nsbatch: [--cpus-per-task=2]\n")
    preset, log = tmp_path / "swept.yaml", tmp_path / "sweep.log"
    preset.write_text(f"schema_version: 1{SWEPT}")
    over = f"--preset {preset} --over learning_rate=1e-5,1e-4,1e-2 --halving 1 --proof-seeds 0"

    def sweep(options: str) -> None:
        jobs.run("sh", "-c", f"setsid gputui sweep {options} >>{log} 2>&1 &")

    sweep(over)
    until(lambda: jobs.run("squeue", "--noheader", "--states=RUNNING", "--format=%j"), 60)
    jobs.run("pkill", "-KILL", "-f", "gputui.engine.proof")  # among the processes of the node alone
    until(lambda: "the sweep's process has crashed" in log.read_text(), 30)
    sweep("--resume")
    until(lambda: "is the best of" in log.read_text().partition("goes on")[2], 240)
    (proof,) = folder.proofs()
    made = proof.record.sweep
    assert made is not None
    assert made.winner == {"train.learning_rate": 0.01}, log.read_text()
    assert sorted(trial.state for trial in made.trials) == ["done", "done", "dropped"]
    for trial in made.trials:
        run = Run(runs.runs_folder() / trial.run)
        is_done = trial.state == "done"
        assert [event["epoch"] for event in happened(run, "epoch")] == ([1, 2, 3] if is_done else [1])
        started, jobs_of = len(happened(run, "started")), run.file(SLURM_LOG).read_text().count("trains in job")
        assert (started, jobs_of) == ((2, 2) if is_done else (1, 1)), "a job to the rung, and one to the end"


def queued(jobs: Slurm, folder: Path, name: str, *options: str, run: str = "{checkpoint: 5}") -> Run:
    """Put a run in the queue by a command on a node."""
    preset = idle(folder, run, name)
    return runs.find(jobs.run("gputui", "--preset", preset, "--set", "visible=none", "--queue", *options))


def job_of(jobs: Slurm, run: Run, state: str = "") -> str:
    """The number of the job of a queued run, which has its name."""
    states = [f"--states={state}"] if state else []
    return jobs.run("squeue", "--noheader", f"--name={run.id}", "--format=%i", *states)


def submitted(jobs: Slurm, folder: Path, name: str, script: str, *options: str, run: str = "{}", kind: str = "") -> str:
    """Submit a batch script of the documents with a preset of this name, and without GPUs; the number of the job."""
    preset = idle(folder, run, name)
    if kind:
        Path(preset).write_text(Path(preset).read_text() + f"strategy: {{kind: {kind}}}\n")
    text = re.sub(r"(mine|big)\.yaml", preset, re.sub(r" --gpus\S*", "", script))
    assert preset in text
    return jobs.submit(name, text, *options)


def in_a_shell(jobs: Slurm) -> str:
    """What a command for several machines says in a shell that salloc opens: Slurm counts it as a step of one task."""
    shell = ("salloc", "--nodes=2", "srun", "--interactive", "--preserve-env", "sh", "-c")
    return jobs.run(*shell, "gputui --preset quickstart --set strategy.kind=multi_worker --dry-run 2>&1 || true")


def run_of(name: str, worker: int = 0) -> Run | None:
    """The run of this preset, as this worker."""
    for run in runs.all_runs():
        found = run_cluster.of_run(run)
        if f"-{name}" in run.id and (found.index if found else 0) == worker:
            return run
    return None


def trains(jobs: Slurm, number: str, name: str, ended: int = 0) -> Run:
    """The run of this preset once it trains, after it has ended so many times."""

    def found() -> Run | None:
        run = run_of(name)
        before = lives(run) if run is not None else []
        if run is None or len(before) != ended + 1 or before[-1]["type"] != "started":
            return None
        return run if step(run) > 1 + (before[-1]["resumed_at_step"] or 0) else None

    run: Run = jobs.until(number, found, 240)
    return run


def lives(run: Run) -> list[dict[str, Any]]:
    """The last event of each start: how it has ended, or that it has begun."""
    events = sorted(happened(run, "started", "finished"), key=lambda event: event["t"])
    return [event for event in events if event["type"] == "finished" or event is events[-1]]


def went_on(run: Run) -> None:
    """It goes on at the step at which it had ended."""
    *ends, begun = lives(run)
    assert begun["resumed_at_step"] == ends[-1]["summary"]["steps"] >= ends[0]["summary"]["steps"] > 0


def stopped(name: str) -> Run:
    """The run of this preset, which has been stopped with a checkpoint of its last step."""
    run = run_of(name)
    assert run is not None
    result = until(lambda: run.result, 30)
    assert (result["outcome"], checkpoint_of(run)) == ("stopped", result["steps"]), (result, run.log_tail(20))
    return run


def checkpoint_of(run: Run) -> int | None:
    return checkpoint_files.whole_step(run.file("checkpoints"))
