"""Checks what ends a run in a job: the job's time limit, and a signal of its scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from ..job import job_end
from ..job.machine import Machine
from ..options import Options
from ..units import clock
from .finding import Finding


def time_limit(options: Options, machine: Machine) -> Iterator[Finding]:
    """What run.max_minutes=auto will do here."""
    key, job = "run.max_minutes", machine.job_id
    if options.run.max_minutes != "auto":
        return
    ends, usable = machine.job_ends, machine.job_ends.usable_seconds if machine.job_ends else None
    if not job:
        message, change = "outside of a Slurm job auto is no limit", "for a limit here give minutes"
    elif ends is None or usable is None:
        message, change = f"squeue is asked for the end of the Slurm job {job}", f"the run ends itself {job_end.MARGIN}"
    else:
        message = f"the Slurm job {job} ends in {clock(max(0.0, ends.seconds or 0.0))}"
        change = f"the run ends itself after {clock(usable)}"
    yield Finding("note", (key,), message, change)
    if job and options.run.checkpoint == "off":
        yield _nothing_kept(key)


def stop_signal(options: Options, _machine: Machine) -> Iterator[Finding]:
    """A run that is ended by its scheduler and keeps nothing."""
    if options.run.stop_signal != "none" and options.run.checkpoint == "off":
        yield _nothing_kept("run.stop_signal")


def _nothing_kept(key: str) -> Finding:
    message = "without checkpoints a run that is ended with its job cannot be resumed"
    return Finding("warning", (key, "run.checkpoint"), message, "set run.checkpoint=epoch, or every so many steps")
