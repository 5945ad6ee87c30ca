"""Whether a run is alive, and on which machine.

On this machine its lock decides, which the engine holds as long as it lives. Where the file system has no locks, and
for runs of a gputui that used none, the processes in its status file are checked instead. A run on another machine is
alive as long as its heartbeat continues.
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
# A heartbeat that continues does so within this time. Looks are counted, not seconds: on a busy machine all of them may
# be over before the second look.
BEATS_WITHIN_SECONDS, LOOK_SECONDS = 3.0, 0.1


@dataclass(frozen=True)
class Liveness:
    """Which parts of a run are alive; `host` is the other machine, where it runs on one."""

    engine: bool = False
    trainer: bool = False
    starting: bool = False  # the engine has not written its process id yet
    host: str = ""


def check(folder: Path, status: Mapping[str, Any]) -> Liveness:
    """The life of the run in the folder, whose status.json says `status`."""
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
    told = _lives(engine, folder)
    # A lock that nobody holds may be another file than the engine's, such as one that was copied back.
    alive = told if held is None else held or (told and _lives(engine, folder, seen=True))
    return Liveness(
        engine=alive,
        trainer=_lives(Process.read(status, "trainer"), folder, seen=held is not None),
        starting=alive and not told,
    )


def _lives(process: Process | None, folder: Path, seen: bool = False) -> bool:
    """Whether a process in the status file is alive; where `seen`, it must also be seen to work for this very run.

    A status file can name any process, and a folder can be copied. A process without place and start was written by an
    older gputui: its command line must name the run.
    """
    if process is None:
        return False
    if process.place is None:
        return process.is_mine() and process.serves(folder)
    return process.alive() and (not seen or process.serves(folder) or process.has_open(folder / EVENTS_FILE))


def check_closely(folder: Path, read_status: Callable[[], Mapping[str, Any]]) -> Liveness:
    """As `check`; for a run on another machine also whether its heartbeat continues, whatever the two clocks show."""
    status = read_status()
    now, place = check(folder, status), Place.read(status)
    if now.engine or place is None or place.is_here or status.get("phase") == "ended" or _is_certain(folder, place):
        return now
    for _ in range(round(BEATS_WITHIN_SECONDS / LOOK_SECONDS) + 1):
        if read_status().get("heartbeat") != status.get("heartbeat"):
            return Liveness(engine=True, host=place.name)
        time.sleep(LOOK_SECONDS)
    return now


def _is_certain(folder: Path, place: Place) -> bool:
    """Whether the lock of a run elsewhere says that nobody holds it, and can be relied on."""
    return place.shares_kernel and locks.held(folder / ENGINE_LOCK) is False


_seen: dict[Path, tuple[Any, float]] = {}  # the heartbeat of a run, and when it was first seen, by this machine's clock


def _beats(folder: Path, heartbeat: Any) -> bool:
    """At first judged by the date of the heartbeat, later by whether it changes."""
    now = time.monotonic()
    if folder not in _seen:
        fresh = isinstance(heartbeat, int | float) and abs(time.time() - heartbeat) < FRESH_SECONDS
        _seen[folder] = (heartbeat, now if fresh else now - FRESH_SECONDS)
    elif _seen[folder][0] != heartbeat:
        _seen[folder] = (heartbeat, now)
    return now - _seen[folder][1] < FRESH_SECONDS
