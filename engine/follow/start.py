"""Starts the followers of a run, and reads how far they are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..follow_targets import FOLDER
from ..system import locks
from .following import FollowError, Following, Place, file_of, read_place
from .target import Target

PATIENCE_SECONDS = 20.0  # for followers to write the end of a run
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class TargetKind:
    """A kind of target: its module and class here, the library that it needs, if any, and pip's requirement of it."""

    module: str
    target: str
    library: str = ""
    requirement: str = ""

    def make(self, remote: dict[str, Any]) -> Target:
        """`remote` is the target's part of the place. Only the module of the target that is used is imported."""
        target: Target = getattr(importlib.import_module(f".{self.module}", __package__), self.target)(remote)
        return target

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
        time.sleep(_POLL_SECONDS)
    return alive


def states(folder: Path) -> list[FollowerState]:
    """Return the states in the order of the targets' names."""
    names = sorted(path.stem for path in (folder / FOLDER).glob("*.json") if path.stem in TARGETS)
    return [state(folder, name) for name in names]


LOCK_ATTEMPTS = 3000  # of 10 ms: a follower that ends while the run is resumed holds the lock a little longer


def say(line: str) -> None:
    """Print a line with the date."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)


def main(folder: Path, name: str) -> int:
    """Returns the exit code."""
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
            following = Following(folder, name, kind.make(place.remote), place, say)
        except (FollowError, OSError) as fault:
            say(str(fault))
            return 2
        return 0 if following.follow() == "done" else 1
