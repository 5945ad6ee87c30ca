"""A run as seen from its folder: its files, its processes, its state. The launcher writes preset.yaml, the engine
status.json, and the trainer result.json, or the engine if the trainer could not.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from ..files import run_numbers, typed
from ..files.places import QUEUE
from ..files.reading import Content, last_lines, open_regular, written_at
from ..system import locks, stop_signals
from ..system.identity import Place, Process
from ..system.locks import ENGINE_LOCK, Lock
from .events import EVENT_FILES, EVENTS_FILE, OUTCOMES, T_DIGITS, TELEMETRY_FILE, Event, Finished, Outcome, Summary
from .parsing import parse_line

STARTING_SECONDS = 15.0  # a new run or proof counts as starting for so long if the file system has no locks
LAST_BYTES = 16384
_OK, _OK_BYTES = re.compile(rb'\{\s*"outcome":\s*"ok"'), 64
EARLIER_RESULTS = "result-*.json"  # from before it was resumed
GoingOn = Literal["running", "starting", "stopping"]
PROOF = "proof"  # the kind of an entry of the queue that is a measurement; its folder is no run
WAITING: Literal["waiting"] = "waiting"  # in the queue
StateName = Outcome | GoingOn | Literal["waiting"]
ACTIVE_STATES: tuple[GoingOn, ...] = get_args(GoingOn)
STATE_LABELS = {"ok": "done", "error": "failed"}  # the states that are shown by another word


class _Status(TypedDict, total=False):
    phase: str
    ended_by: str
    ended_by_rule: str
    host: str
    boot_id: str
    pid_namespace: str
    engine_pid: int
    engine_start_ticks: int
    trainer_pid: int
    trainer_start_ticks: int


class RunError(Exception):
    """A run cannot be found or used. The text gives the reason, and often what the user can do."""


@dataclass(frozen=True)
class Queued:
    """The fields of an entry of the queue (queue/entries.py) that other packages read."""

    kind: str = ""
    state: str = ""
    yields: bool = False
    tries: int = 0
    most_tries: int = 1


@dataclass(frozen=True)
class ProofState:
    """The fields of trials.record.Record that the queue reads."""

    state: str = ""
    error: str | None = None
    budget_seconds: float | None = None
    started_t: float | None = None
    host: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None


@dataclass(frozen=True)
class RunOptions:
    tries: int = 1
    give_way: bool = False
    per_gpu: int = 1
    checkpoint: str | float | None = None


@dataclass(frozen=True)
class DeviceOptions:
    visible: str | list[int | str] | None = None


@dataclass(frozen=True)
class LaunchOptions:
    """The options in options.json that decide the run's entry in the queue, and whether it is kept."""

    run: RunOptions = RunOptions()
    device: DeviceOptions = DeviceOptions()


@dataclass(frozen=True)
class Liveness:
    """Which processes of a run are alive. `host` is the name of the machine if it is another one, else empty."""

    engine: bool = False
    trainer: bool = False
    starting: bool = False  # the engine has not written its process id yet
    host: str = ""


@dataclass(frozen=True)
class Run:
    """A run, identified by the path of its folder. Every property reads the disk again."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def name(self) -> str:
        """The short name, such as `r42`; the id if the run has no number."""
        number = self.number
        return self.id if number is None else f"r{number}"

    @property
    def number(self) -> int | None:
        """The number by which the runs of a home are counted, from 1; None for a run of an older gputui."""
        return run_numbers.number_of(self.path)

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def queue_file(self) -> Path:
        """The path of the run's entry in the queue, which exists while the run is queued."""
        return self.path.parent.parent / QUEUE / f"{self.id}.json"

    @property
    def status(self) -> Mapping[str, Any]:
        return self._status().value

    @property
    def result(self) -> Mapping[str, Any] | None:
        """None if there is neither result.json nor a summary in the last event, or if result.json is damaged."""
        read = self.read_result()
        return read.value or (None if read.damage else self._result_in_events())

    @property
    def damage(self) -> list[str]:
        """One sentence for each of the files status.json and result.json that is damaged; empty if none is."""
        return [content.damage for content in (self._status(), self.read_result()) if content.damage]

    def _result_in_events(self) -> Mapping[str, Any] | None:
        # Of the latest launch: an event that is older than the preset is of an earlier one, and that of the trainer
        # counts only as its last.
        ends = [event for event in self._last_events(EVENTS_FILE)[-1:] if isinstance(event, Finished)]
        ends += [event for event in self._last_events(TELEMETRY_FILE) if isinstance(event, Finished)]
        last = max(reversed(ends), key=lambda event: event.t, default=None)
        if last is None or last.t < written_at(self.file("preset.yaml")) - 10**-T_DIGITS:
            return None
        return {**last.summary, "outcome": last.outcome}

    def _status(self) -> Content[Mapping[str, Any]]:
        return typed.read_entries(self.file("status.json"), _Status)

    def read_result(self) -> Content[Mapping[str, Any]]:
        """Return the content of result.json. A result without a valid outcome is treated as damaged."""
        result = typed.read_entries(self.file("result.json"), Summary)
        if result.value and result.value.get("outcome") not in OUTCOMES:
            return Content({}, result.damage or "result.json is damaged, left out")
        return result

    def has_completed(self) -> bool:
        """By a few bytes of result.json, as there may be thousands of runs: it begins with the outcome `ok`."""
        try:
            with open_regular(self.file("result.json")) as stream:
                return bool(_OK.match(stream.read(_OK_BYTES)))
        except OSError:
            return False

    @property
    def whole_result(self) -> Mapping[str, Any]:
        """With `seconds` and `goodput` over all launches of a resumed run; empty without a result."""
        earlier = [typed.read_entries(path, Summary).value for path in self.path.glob(EARLIER_RESULTS)]
        results = [*earlier, self.result or {}]
        times = [(result.get("seconds"), result.get("goodput")) for result in results]
        figures = (
            {"seconds": sum(seconds for seconds, _ in times if seconds is not None)} if times[-1][0] is not None else {}
        )
        both = [(seconds, goodput) for seconds, goodput in times if seconds is not None and goodput is not None]
        if None not in times[-1] and (total := sum(seconds for seconds, _ in both)):
            figures["goodput"] = sum(seconds * goodput for seconds, goodput in both) / total
        return {**(self.result or {}), **figures}

    @property
    def ended_by_rule(self) -> str:
        """The action of the rule of run.watch that has ended this launch; empty without one, or if a person has too."""
        return "" if self.status.get("asked_by_person") else self.status.get("ended_by_rule", "")

    def process(self, role: str) -> Process | None:
        """Return the process with the role `engine` or `trainer`; None if it has not been started."""
        return Process.read(self.status, role)

    @property
    def liveness(self) -> Liveness:
        """Which processes of the run are alive, and on which machine."""
        return _liveness(self.path, self.status)

    def alive(self, role: str) -> bool:
        return bool(getattr(self.liveness, role))

    @property
    def state(self) -> StateName:
        """The outcome, or `starting`, `running`, `stopping` (the trainer has not ended) or `waiting` (in the queue)."""
        return self.state_of(self.liveness)

    def state_of(self, now: Liveness) -> StateName:
        """Return the state of the run. `now` has the processes that are alive, so that they are not checked again."""
        # One call of `stat` for a run that is not queued, or if the folder belongs to another user.
        if not (now.engine or now.trainer) and os.path.exists(self.queue_file):
            entry = typed.read_usable(self.queue_file, Queued)
            if entry.kind != PROOF and entry.state != "running":
                return "starting" if entry.state == "starting" else WAITING
        return self.state_without_queue(now)

    def state_without_queue(self, now: Liveness) -> StateName:
        """Return the same as `state_of` for a run that is not queued."""
        if now.engine:
            return "starting" if now.starting else "running"
        if now.trainer:
            return "stopping"
        result = self.result
        if result is not None:
            outcome: Outcome = result["outcome"]
            return outcome
        # A lock that is not held means that nothing is starting.
        has_begun = bool(self.status) or locks.held(self.file(ENGINE_LOCK)) is not None
        seconds = time.time() - written_at(self.file("preset.yaml"))
        return "starting" if not has_begun and 0 <= seconds < STARTING_SECONDS else "crashed"

    @property
    def is_active(self) -> bool:
        """True if the run is starting, running or stopping."""
        return self.state in ACTIVE_STATES

    def last_date(self) -> float:
        """Return the Unix time of the newest event; 0 if there are no events."""
        times = [event.t for name in EVENT_FILES for event in self._last_events(name)]
        return max(times, default=0.0)

    def _last_events(self, name: str) -> list[Event]:
        lines = last_lines(self.file(name), LAST_BYTES)
        return [event for line in lines if (event := parse_line(line)) is not None]

    def log_tail(self, lines: int = 20) -> list[str]:
        """Return the last `lines` lines of engine.log, from its last 64 kB; empty if it cannot be read."""
        return [line.decode("utf-8", "replace") for line in last_lines(self.file("engine.log"), 65536)[-lines:]]


# ---- whether it is alive, and where ----------------------------------------------------------------

# A run on this machine is alive while its engine holds its lock. If the file system has no locks, and for runs of an
# older gputui without locks, the processes in the status file are checked instead. A run on another machine is alive as
# long as its heartbeat continues.
FRESH_SECONDS = 60.0  # a heartbeat older than this has stopped; clocks of two machines may differ by this much
# A live heartbeat changes within this time. Attempts are counted, not seconds: on a busy machine all of the time may
# have passed before the second attempt.
BEATS_WITHIN_SECONDS, POLL_SECONDS = 3.0, 0.1


def _liveness(folder: Path, status: Mapping[str, Any]) -> Liveness:
    """Return which processes of the run in `folder` are alive; `status` is the content of its status.json."""
    place = Place.read(status)
    if place is None or place.is_here:
        held = locks.held(folder / ENGINE_LOCK)
        engine = Process.read(status, "engine")
        listed = _lives(engine, folder)
        # A lock that is not held may be another file than the engine's, such as a copy.
        alive = listed if held is None else held or (listed and _lives(engine, folder, verified=True))
        return Liveness(
            engine=alive,
            trainer=_lives(Process.read(status, "trainer"), folder, verified=held is not None),
            starting=alive and not listed,
        )
    beats = status.get("phase") != "ended" and _beats(folder, status.get("heartbeat"))
    if locks.held(folder / ENGINE_LOCK):
        return Liveness(engine=True, starting=not beats, host=place.name if beats else "")
    return Liveness(engine=True, host=place.name) if beats and not _is_certain(folder, place) else Liveness()


def _lives(process: Process | None, folder: Path, verified: bool = False) -> bool:
    # A status file can name any process, and a folder can be copied: with `verified` the process must be seen to work
    # for this run. An older gputui wrote neither machine nor start: then the command line must name the run.
    if process is None:
        return False
    if process.place is None:
        return process.is_mine() and process.serves(folder)
    return process.alive() and (not verified or process.serves(folder) or process.has_open(folder / EVENTS_FILE))


def _liveness_closely(folder: Path, read_status: Callable[[], Mapping[str, Any]]) -> Liveness:
    """As `_liveness`, but wait up to 3 s for a new heartbeat of a run on another machine that seems to be dead, as the
    clocks of two machines may differ.
    """
    status = read_status()
    now, place = _liveness(folder, status), Place.read(status)
    if now.engine or place is None or place.is_here or status.get("phase") == "ended" or _is_certain(folder, place):
        return now
    for _ in range(round(BEATS_WITHIN_SECONDS / POLL_SECONDS) + 1):
        if read_status().get("heartbeat") != status.get("heartbeat"):
            return Liveness(engine=True, host=place.name)
        time.sleep(POLL_SECONDS)
    return now


def _is_certain(folder: Path, place: Place) -> bool:
    # Its lock is not held, which says so only if both share a kernel, as containers on one host do.
    return place.shares_kernel and locks.held(folder / ENGINE_LOCK) is False


_seen: dict[Path, tuple[Any, float]] = {}  # the heartbeat of a run, and when it was first seen, by this machine's clock


def _beats(folder: Path, heartbeat: Any) -> bool:
    # Within 60 s: by the clock at the first call for a folder, later compared with the call before.
    now = time.monotonic()
    if folder not in _seen:
        fresh = isinstance(heartbeat, int | float) and abs(time.time() - heartbeat) < FRESH_SECONDS
        _seen[folder] = (heartbeat, now if fresh else now - FRESH_SECONDS)
    elif _seen[folder][0] != heartbeat:
        _seen[folder] = (heartbeat, now)
    return now - _seen[folder][1] < FRESH_SECONDS


# ---- to stop it, or to keep others off it ----------------------------------------------------------

# The signals to a process of gputui if a person asks it to stop. Only a second request of a person ends it at once.
ASKED_BY_PERSON = (signal.SIGTERM, stop_signals.BY_PERSON)


def request_stop(run: Run, numbers: Sequence[int] = ASKED_BY_PERSON) -> None:
    """The first request ends a run gracefully, the second of a person at once. `numbers` are the signals:
    ASKED_BY_PERSON, or that of a scheduler. RunError if it does not run on this machine.
    """
    now = run.liveness
    refuse_elsewhere(run, now, "stop")
    for role in ("engine", "trainer"):
        process = run.process(role)
        if getattr(now, role) and process is not None and not now.starting:
            signal_process(run, role, process, numbers if role == "engine" else (signal.SIGTERM,))
            return
    state = run.state_of(now)
    if state == WAITING:
        raise RunError(f"{run.name} waits in the queue; gputui queue rm {run.name} takes it out")
    raise RunError(f"{run.name} is not running (it is {STATE_LABELS.get(state, state)})")


def signal_process(run: Run, role: str, process: Process, numbers: Sequence[int] = (signal.SIGTERM,)) -> None:
    """Send the signals `numbers` to `process`, the engine or trainer of a run. `role` is `engine` or `trainer`. Raises
    RunError, and sends nothing, if `process` has ended or cannot be verified to belong to the run and to this user.
    """
    holds = run.file(ENGINE_LOCK if role == "engine" else EVENTS_FILE)
    try:
        stop_signals.send(
            process,
            numbers,
            run.file("status.json"),
            lambda candidate: candidate.has_open(holds) or candidate.serves(run.path),
        )
    except stop_signals.NotVerified as fault:
        raise RunError(f"{run.name}: {fault}: no signal is sent") from None


def refuse_elsewhere(run: Run, now: Liveness, verb: str) -> None:
    """RunError if it runs on another machine; `verb`, such as `stop`, is proposed for that."""
    if now.host:
        command = "runs rm" if verb == "delete" else verb
        raise RunError(f"{run.name} is running on {now.host}; {verb} it there: gputui {command} {run.name}")


def not_ended_error(run: Run, state: str, verb: str) -> RunError | None:
    """Return the error that refuses an action on a run that waits or is active here. `verb` is that of `reserved`."""
    if state == WAITING:
        return RunError(f"{run.name} cannot be {verb}d: it waits in the queue; gputui queue rm {run.name} takes it out")
    if state in ACTIVE_STATES:
        return RunError(f"{run.name} cannot be {verb}d: it is {state}; stop it before {verb[:-1]}ing it")
    return None


@contextlib.contextmanager
def reserved(run: Run, verb: str, from_queue: bool = False) -> Iterator[Lock]:
    """Hold the lock of a run, so that no other process starts or deletes it. RunError if it is alive or queued (unless
    `from_queue`), or locked. `verb` is for the message, such as `delete`.
    """
    now = _liveness_closely(run.path, lambda: run.status)
    refuse_elsewhere(run, now, verb)
    state = run.state_without_queue(now) if from_queue else run.state_of(now)
    if error := not_ended_error(run, state, verb):
        raise error
    try:
        lock = locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"{run.name} cannot be {verb}d: it is running, or another gputui is using it") from None
    except OSError as fault:
        raise RunError(f"{run.name} cannot be locked: {fault.strerror or fault}: {fault.filename}") from None
    with lock:
        if run.liveness.trainer:
            raise RunError(f"{run.name} cannot be {verb}d: its trainer has not ended yet")
        yield lock
