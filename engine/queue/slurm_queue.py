"""Submits the runs and measurements of the queue to Slurm, each as one job, and asks a job that trains to stop.

The entry is written before sbatch is called, so that the job finds it however soon it starts. A job without an entry
starts nothing (slurm_job.py), so that no run trains that was taken out meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace

from ..files.places import home
from ..job import slurm_programs
from ..job.machine_gpus import Answers, Machine
from ..options import gpu_choice
from ..runs import RunError
from . import entries, jobs, queue_settings
from .entries import Entry
from .free_devices import CPU
from .jobs import SLURM_LOG
from .queue_settings import SLURM, Settings

PERSON_STOPS = "URG"  # the signal to the job's process that a person asks for the stop; slurm_job.py obeys it
_GPUS = ("--gpus", "--gres", "--tres-per", "-G")
_GPU_VARIABLES = ("SBATCH_GPUS", "SBATCH_GRES", "SBATCH_TRES_PER")


def is_used() -> bool:
    """Return True if Slurm starts the runs of this user's queue, False if the runner does.

    Raises RunError if queue.yaml cannot be read, so that it is not certain.
    """
    settings = queue_settings.read()
    if settings.engine_faults:
        raise RunError(settings.engine_faults[0])
    return settings.engine == SLURM


def unknown_machine() -> Machine:
    """Return the machine for checks of a preset that trains on a node which Slurm chooses: nothing is known of its
    GPUs.
    """
    return Machine.of(Answers(missing="Slurm chooses the node"))


def submit(entry: Entry) -> Entry:
    """Put an entry in the queue, and submit its job. Return the entry with the id of the job.

    Raises RunError if Slurm cannot start such a run, or refuses the job; then the queue has no entry.
    """
    settings = queue_settings.read()
    arguments = [*_resources(entry, settings), *_dependency(entry.after)]
    with entries.locked():
        entry = entries.append(replace(entry, slurm_job=""))
    try:
        job = slurm_programs.submit([*arguments, f"--wrap={_command(entry)}"], entries.environment_to_keep())
    except BaseException:
        with entries.locked():
            entries.discard(entry.run)
        raise
    with entries.locked():
        current = entries.read(entry.run)  # the job may have begun already
        if current is not None:
            entries.write(replace(current, slurm_job=job))
    if current is None:  # the entry was removed meanwhile
        with contextlib.suppress(RunError):
            slurm_programs.cancel(job)
    entries.ensure_runner()
    return replace(entry, slurm_job=job)


def stop(name: str) -> bool:
    """Ask the job that trains the run or measurement `name` to stop, as a person does: a second request ends it at
    once. Return False if no job of the queue trains it.
    """
    entry = entries.read(name)
    if entry is None or not entry.slurm_job or entry.state in entries.WAITS:
        return False
    slurm_programs.signal_batch(entry.slurm_job, PERSON_STOPS)
    return True


def _resources(entry: Entry, settings: Settings) -> Iterator[str]:
    """Yield the arguments of sbatch for a run. The arguments in the user's settings come last, so that they override
    the others.

    Raises RunError if Slurm cannot follow an option of the run.
    """
    if entry.gives_way:
        raise RunError(
            "run.give_way is for the queue of one machine: in Slurm, preemption does it\nset run.give_way=false"
        )
    if entry.per_gpu > 1:
        raise RunError("run.per_gpu is for the queue of one machine: Slurm gives each job its GPU\nset run.per_gpu=1")
    yield from ("--nodes=1", "--ntasks=1", f"--job-name={entry.run}")
    yield from (f"--output={str(entry.job.path / SLURM_LOG).replace('%', '%%')}", "--open-mode=append")
    yield "--requeue" if entry.most_tries > 1 else "--no-requeue"
    named = any(word.startswith(_GPUS) for word in settings.sbatch)
    named |= any(name.startswith(_GPU_VARIABLES) for name in os.environ)
    choice = gpu_choice.parse(entry.needs)
    if entry.needs not in (CPU, "all") and choice is None:
        count = len(entry.needs.split(","))
        raise RunError(
            f"device.visible names GPUs of one machine, and Slurm chooses them\nset device.visible=free:{count}"
        )
    if choice and not named and (choice.name or choice.least_bytes):
        raise RunError(
            f"{choice}: the kinds of GPUs have names of their own in Slurm\n"
            f"in {queue_settings.path()} write sbatch: [--gpus=KIND:{choice.count}]; scontrol show node lists the kinds"
        )
    if entry.needs != CPU and not named:
        yield f"--gpus={choice.count if choice else 1}"
    yield from settings.sbatch


def _dependency(after: str | None) -> Iterator[str]:
    """Yield the argument with which a job waits for the end of the run or measurement `after`; nothing if that has
    ended.

    Raises RunError if `after` is not a job of Slurm.
    """
    state = jobs.state_if_not_ended(after) if after else ""
    if after is None or not state:
        return
    other = entries.read(after)
    if other is None or not other.slurm_job:
        raise RunError(
            f"{entries.name_of(after)} is {state}, and not in a job of the queue, so that Slurm cannot wait for it\n"
            "leave out --after, or give the command again when that has ended"
        )
    yield f"--dependency=afterany:{other.slurm_job}"


def _command(entry: Entry) -> str:
    """Return the command of the job. It replaces the shell, so that signals for the batch script reach it."""
    words = [sys.executable, "-P", "-m", "gputui.engine.queue.slurm_job", entry.run]
    return shlex.join(["exec", "env", f"GPUTUI_HOME={os.path.abspath(home())}", *words])
