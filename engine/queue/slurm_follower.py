"""Follows the entries of the queue that Slurm starts: why each job waits, and whether it has ended without its run.

All jobs are asked for at once, in a thread, as Slurm's controller may be slow or down. Slurm's states replace those of
an entry only if the entry has not changed since they were asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..job import slurm_programs
from ..job.slurm_programs import CANCELLED, ENDED, GONE, WAITS, SlurmJob
from ..runs import RunError
from ..system.background_call import BackgroundCall
from . import entries
from .entries import Entry
from .jobs import SLURM_LOG, Job

INTERVAL_SECONDS = 10.0  # between two calls of squeue; at least LEAST_SECONDS if an entry has changed
LEAST_SECONDS = 2.0
SUBMITTED_SECONDS = 120.0  # sbatch has answered by then, or the command that called it was killed
RESULT_SECONDS = 60.0  # for a result that was written on another machine to be seen on this one
HELD = "JobHeld"  # how the reason of a held job begins


class SlurmFollower:
    """Follows the jobs in Slurm of the queue's entries: call `follow` repeatedly. `why` has the reasons why runs wait,
    by their ids.
    """

    def __init__(self) -> None:
        self.why: dict[str, str] = {}
        self._call: BackgroundCall[dict[str, SlurmJob]] | None = None
        self._asked: Mapping[str, Entry] = {}  # the entries at the last query of Slurm
        self._asked_at = -INTERVAL_SECONDS
        self._ended_at: dict[str, float] = {}
        self.ended: list[Job] = []  # the jobs whose entries were removed because they have ended

    def follow(self, listed: Sequence[Entry]) -> bool:
        """Query Slurm for the jobs of the entries, in a thread, or act on the result of the last query. Return True if
        a result has arrived.

        `listed` are the entries that Slurm starts.
        """
        if not listed:
            self.why, self._call = {}, None
            return False
        if self._call is None:
            now = {entry.run: entry for entry in listed}
            if time.monotonic() - self._asked_at >= (INTERVAL_SECONDS if now == self._asked else LEAST_SECONDS):
                self._asked, self._asked_at = now, time.monotonic()
                ids = [entry.slurm_job for entry in listed if entry.slurm_job]
                self._call = BackgroundCall(lambda: slurm_programs.jobs(ids))
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
        """Change an entry as its job in Slurm has changed. Return why the run waits; empty if it does not wait.

        `job` is None if Slurm has no such job.
        """
        if job is None:
            if time.time() - entry.queued_at > SUBMITTED_SECONDS:
                self._close(entry, "it was not submitted to Slurm, as its command was interrupted", False)
            return "is being submitted to Slurm"
        if job.state in ENDED:
            self._after_end(entry, job.state)
            return f"Slurm job {entry.slurm_job} has ended ({job.state})"
        self._ended_at.pop(entry.run, None)  # Slurm has started it again since it ended
        if job.state in WAITS:
            self._wait(entry, job)
            return _reason(entry, job)
        return f"Slurm starts job {entry.slurm_job} on {job.nodes}" if entry.state in entries.WAITS else ""

    def _wait(self, entry: Entry, job: SlurmJob) -> None:
        """Give an entry the state of its job: `waiting`, also after the job was requeued, or `held`."""
        is_held = job.reason.startswith(HELD)
        if entry.state != ("held" if is_held else "waiting") and not entry.job.is_alive():
            reason = f"held in Slurm ({job.reason})" if is_held else ""
            self._replace(entry, replace(entry, state="held" if is_held else "waiting", hold_reason=reason))

    def _after_end(self, entry: Entry, state: str) -> None:
        """Remove the entry of a job that has ended. If the run has no result, write one that names the job's state."""
        words = f"Slurm job {entry.slurm_job} " + (
            "was cancelled" if state == CANCELLED else "is not known to Slurm any more" if state == GONE
            else f"has ended as {state}"
        )  # fmt: skip
        if entry.state != "running":
            last = _last_line(entry)
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
        """Write the result of a run that has not begun or was lost, and remove its entry.

        With `is_stopped` the result is that of a stopped run, else an error with `message`.
        """

        def close() -> None:
            error = {"kind": "queue", "message": message, "hint": f"{SLURM_LOG} in the run folder has the job's output"}
            entry.job.close("stopped" if is_stopped else "error", None if is_stopped else error)

        self._replace(entry, None, close)

    def _replace(self, entry: Entry, after: Entry | None, first: Callable[[], None] | None = None) -> None:
        """Replace an entry by `after`, or remove it if that is None, unless the entry has changed since Slurm was
        queried.

        `first` is called before that, if it is given and the run's folder exists.
        """
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


def _reason(entry: Entry, job: SlurmJob) -> str:
    after = f" (after {entries.name_of(entry.after)})" if entry.after and "Dependency" in job.reason else ""
    starts = f"; Slurm expects to start it at {job.starts.replace('T', ' ')}" if job.starts else ""
    return f"waits in Slurm as job {entry.slurm_job}: {job.reason or job.state}{after}{starts}"


def _last_line(entry: Entry) -> str:
    """Return the last line that the job has printed; empty if there is none."""
    try:
        lines = (entry.job.path / SLURM_LOG).read_bytes()[-4096:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
