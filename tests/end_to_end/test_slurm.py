"""Trainings in jobs of a real Slurm, by the batch scripts of the documents: `make test-slurm`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run, checkpoint_files
from gputui.engine.runs import cluster as clusters

from tests.support import slurm
from tests.support.front_door import documented, happened, step, until
from tests.support.idle import idle
from tests.support.slurm import Slurm

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing()),
]
BATCH, SIGNALLED, REQUEUED = documented("troubleshooting.md", "### A job that goes on by itself")
TOGETHER = documented("many-machines.md", "## Slurm")[1]


@pytest.fixture(params=["linuxproc", "cgroup"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A cluster whose jobs find the command under test; processes are followed by their parents, or by a group."""
    if request.param == "cgroup" and not slurm.has_freezer():
        pytest.skip("proctrack/cgroup needs the freezer of control groups version 1, or systemd")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm.cluster(folder, request.param) as made:
        yield made


def test_what_ends_a_job_leaves_a_checkpoint(jobs: Slurm, tmp_path: Path) -> None:
    """All jobs at once, as most of the time is waited: Slurm counts time limits in minutes."""
    limited = submitted(jobs, tmp_path, "limited", REQUEUED, "--time=2", "--requeue")
    signalled = submitted(jobs, tmp_path, "signalled", SIGNALLED)
    cancelled = submitted(jobs, tmp_path, "cancelled", BATCH)
    requeued = submitted(jobs, tmp_path, "requeued", BATCH)
    together = submitted(jobs, tmp_path, "together", TOGETHER, run="{checkpoint: 50}", kind="multi_worker")
    assert "job's batch script or shell, which runs once" in in_a_shell(jobs)
    for name in ("signalled", "cancelled", "requeued", "together"):
        until(lambda name=name: (run := run_of(name)) and step(run) > 1, 240)  # type: ignore[misc]
    jobs.run("scancel", "--batch", "--signal=USR1", signalled)  # as --signal=B:USR1 has Slurm do before the limit
    jobs.run("scancel", cancelled, together)
    jobs.run("scontrol", "requeue", requeued)

    for name in ("cancelled", "signalled"):
        stopped(name)
    until(lambda: jobs.state(signalled) == "FAILED")
    assert jobs.job(signalled)["ExitCode"] == "75:0", jobs.output("signalled")
    chief, other = stopped("together"), run_of("together", 1)
    assert other is not None
    assert until(lambda: other.result)["steps"] == checkpoint_of(chief)
    for name, number in (("requeued", requeued), ("limited", limited)):  # each goes on in the same job
        until(lambda number=number: jobs.job(number)["Restarts"] == "1", 180)  # type: ignore[misc]
        jobs.start_now(number)
        run = until(lambda name=name: resumed(name), 300)  # type: ignore[misc]
        jobs.run("scancel", number)
        assert happened(run, "started")[-1]["resumed_at_step"] == happened(run, "finished")[0]["summary"]["steps"] > 0
    for number in (cancelled, together, requeued, limited):
        until(lambda number=number: jobs.state(number) == "CANCELLED")  # type: ignore[misc]


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
        found = clusters.of_run(run)
        if f"-{name}" in run.id and (found.index if found else 0) == worker:
            return run
    return None


def resumed(name: str) -> Run | None:
    """The run of this preset once it goes on."""
    run = run_of(name)
    return run if run is not None and len(happened(run, "started")) == 2 else None


def stopped(name: str) -> Run:
    """The run of this preset when it has been stopped, with a checkpoint of its last step."""
    run = run_of(name)
    assert run is not None
    result = until(lambda: run.result, 90)
    assert (result["outcome"], checkpoint_of(run)) == ("stopped", result["steps"]), (result, run.log_tail(20))
    return run


def checkpoint_of(run: Run) -> int | None:
    return checkpoint_files.whole_step(run.file("checkpoints"))
