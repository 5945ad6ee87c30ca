"""Finds out if a run is alive, and on which machine. A run on this machine is alive while its engine holds its lock. If
the file system has no locks, and for runs of an older gputui without locks, the processes in the status file are
checked instead. A run on another machine is alive as long as its heartbeat continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..system import locks
from ..system.identity import Place, Process
from ..system.locks import ENGINE_LOCK
from .events import EVENTS_FILE

FRESH_SECONDS = 60.0  # a heartbeat older than this has stopped; clocks of two machines may differ by this much
# A live heartbeat changes within this time. Attempts are counted, not seconds: on a busy machine all of the time may
# have passed before the second attempt.
BEATS_WITHIN_SECONDS, POLL_SECONDS = 3.0, 0.1


@dataclass(frozen=True)
class Liveness:
    """Which processes of a run are alive. `host` is the name of the machine if it is another one, else empty."""

    engine: bool = False
    trainer: bool = False
    starting: bool = False  # the engine has not written its process id yet
    host: str = ""


def check(folder: Path, status: Mapping[str, Any]) -> Liveness:
    """Return which processes of the run in `folder` are alive; `status` is the content of its status.json."""
    place = Place.read(status)
    if place is None or place.is_here:
        return _check_here(folder, status)
    beats = status.get("phase") != "ended" and _beats(folder, status.get("heartbeat"))
    if locks.held(folder / ENGINE_LOCK):
        return Liveness(engine=True, starting=not beats, host=place.name if beats else "")
    return Liveness(engine=True, host=place.name) if beats and not _is_certain(folder, place) else Liveness()


def _check_here(folder: Path, status: Mapping[str, Any]) -> Liveness:
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


def _lives(process: Process | None, folder: Path, verified: bool = False) -> bool:
    # A status file can name any process, and a folder can be copied: with `verified` the process must be seen to work
    # for this run. An older gputui wrote neither machine nor start: then the command line must name the run.
    if process is None:
        return False
    if process.place is None:
        return process.is_mine() and process.serves(folder)
    return process.alive() and (not verified or process.serves(folder) or process.has_open(folder / EVENTS_FILE))


def check_closely(folder: Path, read_status: Callable[[], Mapping[str, Any]]) -> Liveness:
    """As `check`, but wait up to 3 s for a new heartbeat of a run on another machine that seems to be dead: `check`
    compares clocks, and those of two machines may differ.
    """
    status = read_status()
    now, place = check(folder, status), Place.read(status)
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
