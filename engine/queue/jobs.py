"""The folder of a queued run or measurement: whether its process is alive, how it has ended, and its time left."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from ..files import typed
from ..files.places import QUEUE, proofs_folder, runs_folder
from ..files.reading import read_object, written_at
from ..files.writing import write_atomically
from ..runs import ACTIVE_STATES, Run, events
from ..runs.events import TELEMETRY_FILE
from ..runs.parsing import EventWriter
from ..runs.run import PROOF, STATE_LABELS, WAITING, Liveness, ProofState, Queued
from ..system import locks
from ..system.locks import ENGINE_LOCK, PROOF_LOCK

SLURM_LOG = "slurm.log"  # in the folder of a job that Slurm starts: what the Slurm job prints
FAILED = ("error", "crashed", "oom", "failed")


@dataclass(frozen=True)
class End:
    """How a job has ended: its state, its error, and the Unix time. `has_result` is False if it wrote none."""

    state: str
    kind: str = ""
    message: str = ""
    at: float = 0.0
    has_result: bool = True


class _Minutes(TypedDict):
    minutes: float


class _TimeLimits(TypedDict, total=False):
    search: _Minutes | None
    limit_seconds: float | None


class _Folder:
    """A queued run or measurement by the path of its folder. Every method reads the files again."""

    first_file, lock_file = "preset.yaml", ENGINE_LOCK
    begun_files: tuple[str, ...] = ("status.json", "result.json")

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return (self.path / self.first_file).exists()

    def has_begun(self, started_at: float) -> bool:
        """Return True if the process started at `started_at` holds its lock or has written a file since."""
        if locks.held(self.path / self.lock_file):
            return True
        return any(written_at(self.path / name) >= started_at for name in self.begun_files)


class RunJob(_Folder):
    """A queued run."""

    @property
    def run(self) -> Run:
        return Run(self.path)

    def is_alive(self) -> bool:
        """Return True if a process runs the job."""
        now = self.run.liveness
        return now.engine or now.trainer

    def state(self) -> str:
        """Return the state that a user sees; `waiting` while the job is queued and has not begun."""
        return self.run.state

    def end_of(self) -> End:
        """The job must not be alive."""
        state, result = self.run.state_without_queue(Liveness()), self.run.result
        error = (result or {}).get("error") or {}
        message = error.get("message") or STATE_LABELS.get(state, state)
        at = written_at(self.path / "result.json") or time.time()
        return End(state, error.get("kind") or "", message, at, result is not None)

    def close(self, outcome: events.Outcome, error: Mapping[str, str] | None = None) -> None:
        """Write the result of a job that ends without being started. An earlier one is kept if it is `stopped`."""
        if outcome == "stopped" and self.run.result is not None:
            return
        summary = asdict(events.Summary(outcome=outcome)) | ({"error": dict(error)} if error else {})
        writer = EventWriter(self.run.file(TELEMETRY_FILE), self.run.id)
        if error:
            writer.emit(events.Fault(**error))
        writer.emit(events.Finished(outcome=outcome, summary=summary))
        writer.close()
        write_atomically(self.run.file("result.json"), json.dumps(events.plain(summary), indent=1))


class ProofJob(_Folder):
    """A queued measurement: a proof, a search, or a measurement of scaling."""

    first_file, lock_file = "request.json", PROOF_LOCK
    begun_files = ("proof.json",)

    def is_alive(self) -> bool:
        return bool(locks.held(self.path / PROOF_LOCK))

    def state(self) -> str:
        state = self._record().state
        entry = typed.read_usable(self.path.parent.parent / QUEUE / f"{self.path.name}.json", Queued)
        if self.is_alive():
            return "running"
        is_waiting = entry.kind == PROOF and entry.state != "running"
        return WAITING if is_waiting else "crashed" if state == "running" else state

    def _record(self) -> ProofState:
        return typed.read_usable(self.path / "proof.json", ProofState)

    def end_of(self) -> End:
        record, at = self._record(), written_at(self.path / "proof.json") or time.time()
        state = record.state if record.state not in ("", "running") else "crashed"
        return End(state, "", record.error or state, at, state != "crashed")

    def limit_seconds(self) -> float | None:
        """Return the time limit, which a search always uses up; None without one."""
        limits = typed.read_entries(self.path / self.first_file, _TimeLimits).value
        search, limit = limits.get("search"), limits.get("limit_seconds")
        return 60 * search["minutes"] if search else limit

    def seconds_left(self) -> float | None:
        """Return the rest of the measurement's time, at least 0; None if it has not begun or has no limit."""
        least, begun = self._record().budget_seconds, self._record().started_t
        return None if least is None or begun is None else max(0.0, begun + least - time.time())

    def close(self, outcome: events.Outcome, error: Mapping[str, str] | None = None) -> None:
        record = dict(read_object(self.path / "proof.json").value)
        if outcome == "stopped" and record.get("state") != "running":
            return
        why = {"error": error["message"]} if error else {"ended_because": "it was taken out of the queue"}
        record |= {"state": "failed" if error else outcome, "doing": "ended", **why}
        write_atomically(self.path / "proof.json", json.dumps(record, indent=1))


Job = RunJob | ProofJob


def job_of(name: str, kind: str = "") -> Job:
    """If `kind` is empty, it is the run with this id if that exists, else the measurement."""
    run = RunJob(runs_folder() / name)
    return ProofJob(proofs_folder() / name) if kind == PROOF or (not kind and not run.exists()) else run


def state_if_not_ended(name: str) -> str:
    """The state of the run or measurement `name` if it waits or runs, else empty."""
    job = job_of(name)
    state = job.state() if job.exists() else ""
    return state if state in (*ACTIVE_STATES, WAITING) else ""
