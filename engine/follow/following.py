"""Starts followers, and is the work of one: reads the events of a run, writes their figures to a target, and notes its
place. While the target fails or does not answer, it waits and tries again; the events wait in the files of the run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..files import typed
from ..files.values import brief, harmless, plain
from ..files.writing import write_atomically
from ..follow_targets import FOLDER
from ..runs import Run
from ..runs.events import EVENT_FILES, Outcome
from ..runs.run import WAITING
from ..system import locks
from ..system.child_process import BackgroundCalls
from ..units import counted
from .target import Batch, PointMaker, Target, about_run, read_batch, without_login

_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>:? ?")  # in messages of libraries, another at each attempt
POLL_SECONDS = 1.0
CALL_SECONDS = 60.0  # for an answer of the target; a later answer is still waited for
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0  # doubled after each failure
GIVE_UP_SECONDS = 600.0  # of failures after the end of the run
PATIENCE_SECONDS = 20.0  # for followers to write the end of a run
_LOOK_SECONDS = 0.1
State = Literal["starting", "following", "waiting", "done", "given_up"]
LOCK_ATTEMPTS = 3000  # of 10 ms: a follower that ends while the run is resumed holds the lock a little longer


class Following:
    """Follows the run in `folder` from `place` on. `say` gets lines for the log."""

    def __init__(self, folder: Path, name: str, target: Target, place: Place, say: Callable[[str], None]) -> None:
        self._folder, self._name, self._target, self._place, self._say = folder, name, target, place, say
        self._calls = BackgroundCalls()
        self._is_open, self._has = False, 0  # the target; the number of the first point that it does not have
        self._failing_since: float | None = None  # after the end of the run
        self._retry_seconds = RETRY_SECONDS

    def follow(self) -> State:
        """`done`, or `given_up` if the target fails for too long after the end, or if the run has been deleted."""
        while True:
            run = Run(self._folder)
            if not self._folder.is_dir():
                self._say("the run has been deleted")
                return "given_up"
            alive = run.liveness
            has_ended = not (alive.engine or alive.trainer) and run.state not in ("starting", WAITING)
            try:
                if self._is_all_written(run, has_ended):
                    return "done"
            except Exception as fault:  # noqa: BLE001 - libraries of targets raise anything
                if self._gives_up(run, fault, has_ended):
                    return "given_up"
                time.sleep(self._retry_seconds)
                self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)

    def _is_all_written(self, run: Run, has_ended: bool) -> bool:
        """Write the next batch; without one wait, or note the end if the run had ended: then True."""
        if not self._is_open:
            is_done = self._place.state == "done" and has_ended
            if is_done and self._is_at(read_batch(run.path, self._place.offsets)):
                self._say(f"all is written already, {counted(self._place.number, 'rows')}")
                return True
            self._open(run)
        wrote = self._write_batch(run)
        if wrote or not has_ended:
            if self._place.problem:
                self._say("goes on")
            self._failing_since, self._retry_seconds = None, RETRY_SECONDS
            self._note(run, "following")
            if not wrote:
                time.sleep(POLL_SECONDS)
            return False
        outcome: Outcome = (run.result or {}).get("outcome") or "crashed"
        self._calls.result(lambda: self._target.end(about_run(run), outcome), CALL_SECONDS)
        self._note(run, "done")
        self._say(f"done: {counted(self._place.number, 'rows')} written to {self._target.where}")
        return True

    def _open(self, run: Run) -> None:
        place = self._place
        self._save(run)  # the key must be noted before there is a remote run
        has = self._calls.result(lambda: self._target.open(about_run(run), place.key), CALL_SECONDS)
        self._has = place.number if has is None else has
        if self._has < place.number:
            lacks = f"the target has only {counted(self._has, 'rows')} of {place.number:,}"
            self._say(f"{lacks}: the rest is written again")
            place = self._place = replace(place, offsets={}, sending=None, **vars(PointMaker()))
        place.remote, place.where = self._target.remote, self._target.where
        self._save(run)
        self._is_open = True
        self._say(f"follows {run.name} to {place.where}, from row {self._has:,} on")

    def _is_at(self, batch: Batch) -> bool:
        return all(batch.ends[name] == self._place.offsets.get(name, 0) for name in EVENT_FILES)

    def _write_batch(self, run: Run) -> bool:
        """False without further events."""
        place = self._place
        batch = read_batch(run.path, place.offsets, place.sending)
        if self._is_at(batch):
            place.sending = None
            return False
        after = replace(place, offsets=dict(batch.ends), sending=None)
        points = [point for point in after.points(batch.events) if point.number >= self._has]
        if points:
            place.sending = dict(batch.ends)
            self._save(run)
            self._calls.result(lambda: self._target.write(points), CALL_SECONDS)
        self._has = max(self._has, after.number)
        after.remote, self._place = self._target.remote, after
        self._save(run)
        return True

    def _gives_up(self, run: Run, fault: Exception, has_ended: bool) -> bool:
        """Notes the problem. True if the run has ended and the target has failed for GIVE_UP_SECONDS since."""
        self._is_open = False
        words = str(fault)
        if isinstance(fault, OSError) and fault.strerror:  # without its number
            words = f"{fault.filename}: {fault.strerror}" if fault.filename else fault.strerror
        text = " ".join(_OBJECT.sub("", without_login(words)).split())
        problem = brief(harmless(text or type(fault).__name__))
        if problem != self._place.problem:
            self._say(f"waits, and tries again: {problem}")
        self._failing_since = (self._failing_since or time.monotonic()) if has_ended else None
        gives_up = has_ended and time.monotonic() - (self._failing_since or 0) > GIVE_UP_SECONDS
        self._note(run, "given_up" if gives_up else "waiting", problem)
        if gives_up:
            self._say(f"gives up; gputui follow {run.name} --to {self._name} goes on from here")
        return gives_up

    def _note(self, run: Run, state: State, problem: str = "") -> None:
        place = self._place
        if (state, problem) != (place.state, place.problem):
            place.since = place.since if state == place.state else time.time()
            place.state, place.problem = state, problem
            try:
                self._save(run)
            except OSError as fault:  # the disk is full; what is written does not depend on the state
                self._say(f"cannot note its state: {fault.strerror or fault}")

    def _save(self, run: Run) -> None:
        """Raises OSError."""
        write_atomically(file_of(run.path, self._name), json.dumps(plain(asdict(self._place))), durable=False)


class FollowError(Exception):
    """A run cannot be followed, or not by this target: what the user can do."""


@dataclass(kw_only=True)
class Place(PointMaker):
    """The place of one follower. Up to the bytes `offsets` of the event files everything is written."""

    key: str  # of the run at the target
    offsets: dict[str, int] = field(default_factory=dict)
    sending: dict[str, int] | None = None  # up to here they may be written
    remote: dict[str, Any] = field(default_factory=dict)  # the target's own, such as the id of the remote run
    state: State = "starting"
    problem: str = ""  # why the follower waits or has given up
    since: float = 0.0  # Unix time of the last change of the state
    where: str = ""  # at the target: a path or an address

    @classmethod
    def new(cls) -> Place:
        return cls(key=os.urandom(8).hex())


def file_of(folder: Path, target: str, ending: str = "json") -> Path:
    """Return the path of a follower's place (json), log or lock."""
    return folder / FOLDER / f"{target}.{ending}"


def read_place(path: Path) -> Place | None:
    """None without a file. FollowError if it is damaged, OSError if it cannot be read."""
    content = typed.read(path, Place)
    if content.unreadable:
        raise OSError(f"{path.name} {content.damage}")
    if content.damage:
        raise FollowError(f"{path} is damaged: remove it, and everything is written once more as another remote run")
    return content.value


# ---- followers of a run ---------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetKind:
    """A kind of target: its module and class here, the library that it needs, if any, and pip's requirement of it."""

    module: str
    target: str
    library: str = ""
    requirement: str = ""

    @property
    def missing(self) -> str:
        """How to install the library if it is missing, else empty."""
        if not self.library or importlib.util.find_spec(self.library) is not None:
            return ""
        return f"{self.library} is not installed; pip install '{self.requirement}' adds it"


# The words of the option run.follow.
TARGETS: dict[str, TargetKind] = {
    "tensorboard": TargetKind("to_tensorboard", "TensorBoard"),
    "prometheus": TargetKind("to_prometheus", "Prometheus"),
    "mlflow": TargetKind("to_mlflow", "Mlflow", "mlflow", "mlflow>=3,<4"),
    "wandb": TargetKind("to_wandb", "Wandb", "wandb", "wandb>=0.21"),
    "trackio": TargetKind("to_trackio", "Trackio", "trackio", "trackio>=0.43"),
}


def start(folder: Path, target: str) -> subprocess.Popen[bytes]:
    """In a session of its own. If there is one already, it ends as soon as it notices that. Raises OSError."""
    log = file_of(folder, target, "log")
    log.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "gputui.engine.follow", str(folder), target]
    with log.open("ab") as stream:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)


def missing(targets: Sequence[str]) -> list[str]:
    """A line for each library that is not installed, with the command that installs it."""
    return [TARGETS[name].missing for name in targets if name in TARGETS and TARGETS[name].missing]


@dataclass(frozen=True)
class FollowerState:
    """`damage` is why its place cannot be read."""

    target: str
    is_alive: bool
    place: Place
    damage: str = ""

    @property
    def words(self) -> str:
        """`done` or `waits: connection refused`."""
        if self.damage or self.place.state == "done":
            return self.damage or "done"
        if not self.is_alive:
            return f"gave up: {self.place.problem}" if self.place.state == "given_up" else "has ended before the run"
        return f"waits: {self.place.problem}" if self.place.problem else "follows"


def state(folder: Path, target: str) -> FollowerState:
    """Return the state; if the follower has not begun, that of a new one."""
    is_alive = bool(locks.held(file_of(folder, target, "lock")))
    try:
        return FollowerState(target, is_alive, read_place(file_of(folder, target)) or Place.new())
    except (FollowError, OSError) as fault:
        return FollowerState(target, is_alive, Place.new(), str(fault))


def wait(folder: Path, seconds: float = PATIENCE_SECONDS) -> list[FollowerState]:
    """The followers that go on after `seconds`; for a process whose end is that of a job or a container."""
    until = time.monotonic() + seconds
    while (alive := [each for each in states(folder) if each.is_alive]) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return alive


def states(folder: Path) -> list[FollowerState]:
    """Return the states in the order of the targets' names."""
    names = sorted(path.stem for path in (folder / FOLDER).glob("*.json") if path.stem in TARGETS)
    return [state(folder, name) for name in names]


def main(folder: Path, name: str) -> int:
    """Follow the run, with the log on standard output. Returns the exit code."""

    def say(line: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)

    kind, path = TARGETS[name], file_of(folder, name)
    path.parent.mkdir(exist_ok=True)
    try:
        lock = locks.take(file_of(folder, name, "lock"), LOCK_ATTEMPTS)
    except locks.Taken:
        say("another follower of this run has this target")
        return 0
    with lock:
        try:
            if kind.missing:
                raise FollowError(kind.missing)
            place = read_place(path) or Place.new()
            target = getattr(importlib.import_module(f".{kind.module}", __package__), kind.target)(place.remote)
            following = Following(folder, name, target, place, say)
        except (FollowError, OSError) as fault:
            say(str(fault))
            return 2
        return 0 if following.follow() == "done" else 1
