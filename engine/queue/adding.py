"""Puts runs in the queue: makes the run folder of a preset, or takes a run that has ended, which is resumed."""

from __future__ import annotations

import os
import shutil

from ..job import slurm as slurm
from ..plan import MULTI_WORKER
from ..presets import Preset
from ..process import launch, resuming
from ..runs import Run, RunError, code_files, run_cluster
from . import entries
from .entries import Entry


def queue_preset(preset: Preset, after: Run | None = None) -> Entry:
    """Make the run folder of a preset, which the caller has checked, and put the run in the queue.

    Raises RunError if it cannot be queued; then no folder is left.
    """
    refuse_here(f"gputui --preset {preset.file or preset.name}")
    if preset.options.strategy.kind == MULTI_WORKER:
        raise RunError("a training on several machines cannot wait in the queue of one of them")
    run = launch.create_queued(preset)
    try:
        return entries.add(run, after)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def queue_resume(run: Run, after: Run | None = None, code: str = "") -> Entry:
    """Put a run that has ended in the queue, which resumes it. `code` is `new` or `copy` if its code has changed.

    Raises RunError if it cannot be resumed.
    """
    refuse_here(f"gputui resume {run.id}")
    if run_cluster.of_run(run) is not None:
        raise RunError(f"{run.id} trains on several machines, and cannot wait in the queue of one of them")
    if reason := resuming.why_not(run):
        raise RunError(reason)
    if code != "new":
        code_files.check(run, code == "copy")
    return entries.add(run, after, code)


def refuse_here(command: str) -> None:
    """Raise RunError within a Slurm job, whose end would end the runner. `command` is what Slurm is to queue."""
    if job := slurm.job_of(os.environ):
        raise RunError(
            f"--queue is not for Slurm job {job}: the queue's runner would end with the job\n"
            f"let Slurm queue it: sbatch --gpus=1 --wrap={command!r}"
        )
