"""Submits the queue's entries to Slurm, each as one job, and asks a job that trains to stop. A job without an entry
starts nothing: an entry is written before sbatch is called, so that its job finds it however soon it starts.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..files.places import home
from ..files.reading import last_lines
from ..job import slurm
from ..job.slurm import CANCELLED, ENDED, GONE, WAITS, SlurmJob
from ..options import gpu_choice
from ..runs import RunError
from ..system.child_process import BackgroundCall
from . import entries, jobs, queue_settings
from .entries import Entry, State
from .jobs import SLURM_LOG, Job
from .queue_devices import CPU
from .queue_settings import SLURM, Settings

PERSON_STOPS = "URG"  # the signal to the job's process that a person asks for the stop; slurm_job.py obeys it
_GPUS = ("--gpus", "--gres", "--tres-per", "-G")
_GPU_VARIABLES = ("SBATCH_GPUS", "SBATCH_GRES", "SBATCH_TRES_PER")


def is_used() -> bool:
    """Return True if Slurm starts the runs of this queue. Raises RunError if queue.yaml cannot be read."""
    settings = queue_settings.read()
    if settings.engine_faults:
        raise RunError(settings.engine_faults[0])
    return settings.engine == SLURM


def submit(entry: Entry) -> Entry:
    """Queue an entry, and submit its job. RunError if Slurm cannot start it or refuses; then the queue has no entry."""
    settings = queue_settings.read()
    arguments = [*_resources(entry, settings), *_dependency(entry.after)]
    with entries.locked():
        entry = entries.append(replace(entry, slurm_job=""))
    try:
        # The command replaces the shell, so that signals for the batch script reach it.
        words = [sys.executable, "-P", "-m", "gputui.engine.queue.slurm_job", entry.run]
        command = shlex.join(["exec", "env", f"GPUTUI_HOME={os.path.abspath(home())}", *words])
        job = slurm.submit([*arguments, f"--wrap={command}"], entries.environment_to_keep())
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
            slurm.cancel(job)
    entries.ensure_runner()
    return replace(entry, slurm_job=job)


def stop(name: str) -> bool:
    """Ask the job of `name` to stop, as a person does: a second request ends it at once. False if no job trains it."""
    entry = entries.read(name)
    if entry is None or not entry.slurm_job or entry.state in entries.WAITS:
        return False
    slurm.signal_batch(entry.slurm_job, PERSON_STOPS)
    return True


def _resources(entry: Entry, settings: Settings) -> Iterator[str]:
    """The arguments of sbatch; those of the user's settings come last, so that they override the others."""
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
    """The argument with which a job waits for the end of `after`. RunError if that is not a job of Slurm."""
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


INTERVAL_SECONDS = 10.0  # between two calls of squeue; at least LEAST_SECONDS if an entry has changed
LEAST_SECONDS = 2.0
SUBMITTED_SECONDS = 120.0  # sbatch has answered by then, or the command that called it was killed
RESULT_SECONDS = 60.0  # for a result that was written on another machine to be seen on this one
HELD = "JobHeld"  # how the reason of a held job begins


class SlurmFollower:
    """Follows the jobs in Slurm of the queue's entries: call `follow` repeatedly. `why` runs wait, by id."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}
        self._call: BackgroundCall[dict[str, SlurmJob]] | None = None
        self._asked: Mapping[str, Entry] = {}  # the entries at the last query of Slurm
        self._asked_at = -INTERVAL_SECONDS
        self._ended_at: dict[str, float] = {}
        self.ended: list[Job] = []  # the jobs whose entries were removed because they have ended

    def follow(self, listed: Sequence[Entry]) -> bool:
        """Query Slurm for the jobs of the entries, in a thread, or act on the last answer: then True."""
        if not listed:
            self.why, self._call = {}, None
            return False
        if self._call is None:
            now = {entry.run: entry for entry in listed}
            if time.monotonic() - self._asked_at >= (INTERVAL_SECONDS if now == self._asked else LEAST_SECONDS):
                self._asked, self._asked_at = now, time.monotonic()
                ids = [entry.slurm_job for entry in listed if entry.slurm_job]
                self._call = BackgroundCall(lambda: slurm.jobs(ids))
            return False
        try:
            jobs = self._call.result(0)
        except TimeoutError:
            return False
        except RunError as fault:
            self._call = None
            message = str(fault).partition("\n")[0]
            self.why = {entry.run: f"Slurm does not answer: {message}" for entry in self._asked.values()}
            return True
        self._call = None
        self.why = {entry.run: self._act(entry, jobs.get(entry.slurm_job or "")) for entry in self._asked.values()}
        return True

    def _act(self, entry: Entry, job: SlurmJob | None) -> str:
        """Change an entry as its job in Slurm has changed (None: none such). Return why the run waits, if it does."""
        if job is None:
            if time.time() - entry.queued_at > SUBMITTED_SECONDS:
                self._close(entry, "it was not submitted to Slurm, as its command was interrupted", False)
            return "is being submitted to Slurm"
        if job.state in ENDED:
            self._after_end(entry, job.state)
            return f"Slurm job {entry.slurm_job} has ended ({job.state})"
        self._ended_at.pop(entry.run, None)  # Slurm has started it again since it ended
        if job.state in WAITS:
            is_held = job.reason.startswith(HELD)
            state: State = "held" if is_held else "waiting"
            if entry.state != state and not entry.job.is_alive():
                reason = f"held in Slurm ({job.reason})" if is_held else ""
                self._replace(entry, replace(entry, state=state, hold_reason=reason))
            after = f" (after {entries.name_of(entry.after)})" if entry.after and "Dependency" in job.reason else ""
            starts = f"; Slurm expects to start it at {job.starts.replace('T', ' ')}" if job.starts else ""
            return f"waits in Slurm as job {entry.slurm_job}: {job.reason or job.state}{after}{starts}"
        return f"Slurm starts job {entry.slurm_job} on {job.nodes}" if entry.state in entries.WAITS else ""

    def _after_end(self, entry: Entry, state: str) -> None:
        """Remove the entry. If the run has no result, write one that names the job's state."""
        words = f"Slurm job {entry.slurm_job} " + (
            "was cancelled" if state == CANCELLED else "is not known to Slurm any more" if state == GONE
            else f"has ended as {state}"
        )  # fmt: skip
        if entry.state != "running":
            lines = [line.strip() for line in last_lines(entry.job.path / SLURM_LOG, 4096) if line.strip()]
            last = lines[-1].decode("utf-8", "replace") if lines else ""
            self._close(entry, f"{words} before the run began" + (f": {last}" if last else ""), state == CANCELLED)
            return
        since = self._ended_at.setdefault(entry.run, time.monotonic())
        if entry.job.end_of().has_result:
            self._replace(entry, None)
        elif time.monotonic() - since >= RESULT_SECONDS and not entry.job.is_alive():
            self._close(entry, words, False)
        else:
            return
        self._ended_at.pop(entry.run, None)

    def _close(self, entry: Entry, message: str, is_stopped: bool) -> None:

        def close() -> None:
            error = {"kind": "queue", "message": message, "hint": f"{SLURM_LOG} in the run folder has the job's output"}
            entry.job.close("stopped" if is_stopped else "error", None if is_stopped else error)

        self._replace(entry, None, close)

    def _replace(self, entry: Entry, after: Entry | None, first: Callable[[], None] | None = None) -> None:
        """Replace an entry (None: remove it) unless it changed since the query; before that call `first`."""
        with entries.locked():
            if entries.read(entry.run) != entry:
                return
            if first is not None and entry.job.exists():
                first()
            if after is None:
                self.ended.append(entry.job)
                entries.discard(entry.run)
            else:
                entries.write(after)
