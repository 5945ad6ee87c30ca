"""Starts the followers of a run, and reads how far they are."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..follow_targets import FOLDER
from ..system import locks
from .following import FollowError, Following, Place, file_of, read_place
from .targets import TARGETS

PATIENCE_SECONDS = 20.0  # for followers to write the end of a run
_POLL_SECONDS = 0.1


def start(folder: Path, target: str) -> subprocess.Popen[bytes]:
    """Start the follower of the run in `folder` for a target, in a session of its own. Return its process.

    If the run already has one for this target, the new one ends as soon as it notices that. Raises OSError.
    """
    log = file_of(folder, target, "log")
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gputui.engine.follow", str(folder), target],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def missing(targets: Sequence[str]) -> list[str]:
    """Return one line for each of the targets whose library is not installed, with the command that installs it."""
    return [TARGETS[name].missing for name in targets if name in TARGETS and TARGETS[name].missing]


@dataclass(frozen=True)
class FollowerState:
    """How far the follower of a run for one target is. `damage` is the reason if its place cannot be read."""

    target: str
    is_alive: bool
    place: Place
    damage: str = ""

    @property
    def words(self) -> str:
        """The state as one phrase, such as `done` or `waits: connection refused`."""
        if self.damage or self.place.state == "done":
            return self.damage or "done"
        if not self.is_alive:
            return f"gave up: {self.place.problem}" if self.place.state == "given_up" else "has ended before the run"
        return f"waits: {self.place.problem}" if self.place.problem else "follows"


def state(folder: Path, target: str) -> FollowerState:
    """Return the state of one follower of the run in `folder`; if it has not begun, that of a new one."""
    is_alive = bool(locks.held(file_of(folder, target, "lock")))
    try:
        return FollowerState(target, is_alive, read_place(file_of(folder, target)) or Place())
    except (FollowError, OSError) as fault:
        return FollowerState(target, is_alive, Place(), str(fault))


def wait(folder: Path, seconds: float = PATIENCE_SECONDS) -> list[FollowerState]:
    """Wait until the run's followers have ended, at most `seconds`. Return those that go on.

    It is called after the run has ended by a process with which a job or a container ends.
    """
    until = time.monotonic() + seconds
    while (alive := [each for each in states(folder) if each.is_alive]) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    return alive


def states(folder: Path) -> list[FollowerState]:
    """Return the state of each follower that the run in `folder` has had, in the order of the targets' names."""
    names = sorted(path.stem for path in (folder / FOLDER).glob("*.json") if path.stem in TARGETS)
    return [state(folder, name) for name in names]


LOCK_ATTEMPTS = 3000  # of 10 ms: a follower that ends while the run is resumed holds the lock a little longer


def say(line: str) -> None:
    """Write a line with the date into the log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)


def main(folder: Path, name: str) -> int:
    """Follow the run. Returns the exit code."""
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
            place = read_place(path) or Place()
            following = Following(folder, name, kind.make(place.remote), place, say)
        except (FollowError, OSError) as fault:
            say(str(fault))
            return 2
        return 0 if following.follow() == "done" else 1
