"""The process of a follower: it takes the lock of its target, and follows the run from its noted place."""

from __future__ import annotations

import time
from pathlib import Path

from ..system import locks
from .following import Following
from .place import FollowError, Place, file_of, read_place
from .targets import TARGETS

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
