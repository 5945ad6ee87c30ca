"""What is done with the entries of the queue: they are moved, held, released, taken out, or asked to give way."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..files.reading import bytes_of
from ..job import slurm
from ..runs import RunError, request_stop
from ..runs.events import TELEMETRY_FILE
from ..runs.run import PROOF
from . import entries
from .entries import Entry
from .jobs import job_of

Where = Literal["top", "up", "down"]
_MOVES_IN_SLURM = (
    "Slurm orders its jobs\nscontrol top {job} puts it first; scontrol update JobId={job} Nice=100 lets others go first"
)
RESULT_FILE = "result.json"
BEGINNING_SECONDS = 20.0  # for a run that is being started to have its engine


def _entry(name: str) -> Entry:
    entry = entries.read(name)
    if entry is None:
        raise RunError(f"{entries.name_of(name)} is not in the queue; gputui queue lists what is")
    return entry


def _waiting(name: str) -> Entry:
    entry = _entry(name)
    if entry.state not in entries.WAITS:
        stops = f"gputui proof {entry.run} --stop" if entry.kind == PROOF else f"gputui stop {entry.name}"
        raise RunError(f"{entry.name} has begun; {stops} stops it")
    return entry


def move(name: str, where: Where) -> Entry:
    """Move an entry that waits; the first or last stays. RunError if it is not queued, has begun, or is Slurm's."""
    with entries.locked():
        entry = _waiting(name)
        if entry.is_of_slurm:
            raise RunError(f"{entries.name_of(name)} is not moved: {_MOVES_IN_SLURM.format(job=entry.slurm_job)}")
        waiting = [other for other in entries.all_entries() if other.state in entries.WAITS and not other.is_of_slurm]
        at = [other.run for other in waiting].index(name)
        if where == "top" and at:
            entry = replace(entry, place=waiting[0].place - 1)
            entries.write(entry)
        elif where != "top" and 0 <= (to := at + (1 if where == "down" else -1)) < len(waiting):
            other = waiting[to]
            apart = 0.0 if other.place != entry.place else 1e-3
            entries.write(replace(other, place=entry.place))
            entry = replace(entry, place=other.place + (apart if where == "down" else -apart))
            entries.write(entry)
        return entry


def hold(name: str, reason: str = "held by you") -> Entry:
    """Keep a waiting entry from being started until `release`. RunError if it is not in the queue or has begun."""
    with entries.locked():
        entry = _waiting(name)
        if entry.slurm_job:
            slurm.control(entry.slurm_job, "hold")
        entry = replace(entry, state="held", hold_reason=reason)
        entries.write(entry)
        return entry


def release(name: str) -> Entry:
    """Let a held entry be started again, and set the counted failures of its group to 0. Raises RunError."""
    with entries.locked():
        entry = _entry(name)
        if entry.state == "held":
            if entry.slurm_job:
                slurm.control(entry.slurm_job, "release")
            entry = replace(entry, state="waiting", hold_reason="")
            entries.write(entry)
        entries.set_failures(entry.group, 0)
    entries.ensure_runner()
    return entry


def places() -> dict[str, float]:
    return {entry.run: entry.place for entry in entries.all_entries()}


def restore_places(before: Mapping[str, float]) -> list[str]:
    """Give the entries that still wait the places that `places` has returned. Return the reason if none waits. Raises
    RunError."""
    with entries.locked():
        waiting = [each for each in entries.all_entries() if each.state in entries.WAITS and each.run in before]
        for entry in waiting:
            if before[entry.run] != entry.place:
                entries.write(replace(entry, place=before[entry.run]))
    return [] if waiting else ["not taken back: none of the moved runs waits in the queue any longer"]


@dataclass(frozen=True)
class Removed:
    """An entry that was taken out, with the content of its environment's file (None: it had none). `was_closed`: it was
    given the result `stopped`. `telemetry_bytes` is the size of its telemetry before, if any.
    """

    entry: Entry
    environment: bytes | None
    was_closed: bool
    telemetry_bytes: int | None

    def put_back(self) -> None:
        """Restore the entry at its place. RunError if it waits again, has begun meanwhile or was deleted."""
        name = self.entry.run
        with entries.locked():
            job = self.entry.job
            if entries.file_of(name).exists() or job.is_alive():
                raise RunError(f"{name} waits again, or has begun")
            if not job.exists():
                raise RunError(f"{name} was deleted meanwhile")
            if self.was_closed:
                (job.path / RESULT_FILE).unlink(missing_ok=True)
                if self.telemetry_bytes is None:
                    (job.path / TELEMETRY_FILE).unlink(missing_ok=True)
                else:  # of an earlier start of the run
                    os.truncate(job.path / TELEMETRY_FILE, self.telemetry_bytes)
            if self.environment is not None:
                path = entries.environment_file(name)
                path.touch(mode=0o600)
                path.write_bytes(self.environment)
            entries.write(self.entry)
        entries.ensure_runner()


def remove(name: str) -> Removed | None:
    """Take an entry that waits, or a damaged one, out; raises RunError. One that never began ends as stopped. What is
    returned puts it back; it is None for a damaged entry, a measurement, and a job of Slurm.
    """
    wait_for_start(name)
    with entries.locked():
        entry, removed = entries.read(name), None
        if entry is not None or not entries.file_of(name).exists():
            entry = _waiting(name)
            if entry.slurm_job:
                slurm.cancel(entry.slurm_job)
        job = entry.job if entry is not None else job_of(name)
        if job.exists():
            if entry is not None and entry.kind != PROOF and not entry.is_of_slurm:
                environment = entries.environment_file(name)
                kept = environment.read_bytes() if environment.exists() else None
                written = bytes_of(job.path / TELEMETRY_FILE)
                removed = Removed(entry, kept, not (job.path / RESULT_FILE).exists(), written)
            job.close("stopped")
        entries.discard(name)
        return removed


def wait_for_start(name: str) -> None:
    """Wait while the run `name` has the state `starting`, for at most 20 s."""
    until = time.monotonic() + BEGINNING_SECONDS
    while (entry := entries.read(name)) is not None and entry.state == "starting" and time.monotonic() < until:
        time.sleep(0.1)


def pause() -> None:
    """No more runs start until `resume_queue`. Raises RunError."""
    with entries.locked():
        (entries.queue_folder() / entries.PAUSED).touch()


def resume_queue() -> None:
    with entries.locked(), contextlib.suppress(FileNotFoundError):
        (entries.queue_folder() / entries.PAUSED).unlink()
    entries.ensure_runner()


def ask_to_yield(name: str) -> None:
    """Ask the running run `name` to stop and return to the queue, unless it was asked before."""
    with entries.locked():
        entry = entries.read(name)
        if entry is None or entry.state != "running" or entry.yields:
            return
        entries.write(replace(entry, yields=True))  # before the run can end
        try:
            request_stop(entry.folder, (signal.SIGTERM,))
        except RunError:  # its engine has not written yet who it is, or it has ended
            entries.write(entry)


def end_for_good(name: str) -> None:
    """The run `name` was asked to give way, and its user stops it."""
    with entries.locked():
        entry = entries.read(name)
        if entry is not None and entry.yields:
            entries.write(replace(entry, yields=False))
