"""Finds out for how long the processes on the GPUs have been idle, by notes from one reading of the GPUs to the next.

NVML has no history. A process counts as idle since the first reading from which on no reading has seen it use a GPU (in
the second before the reading, by the driver's samples), while it has used nearly no CPU time between the readings:
without CPU time nothing is started on a GPU. If the driver does not report the use of each process, the whole GPU must
be idle. If one of these is not known, nothing is reported for the process.

The notes of each user are a file in the folder of the leases, which is emptied when the machine is started. Only this
user's own notes are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..files.declared_types import completed
from ..files.reading import read_object
from ..files.values import mapping
from ..files.writing import write_atomically
from ..system.identity import Place, Process
from . import lease
from .free_gpus import BUSY, GpuUse, GpuUser

NOTED_SECONDS = 60.0  # between two notes
HOW_IDLE = "at no look of gputui since then did the process use the GPU, and in between it used nearly no CPU time"
CPU_SECONDS, CPU_SHARE = 0.5, 0.003  # that an idle process may use between two notes: Python wakes up now and then


@dataclass(frozen=True)
class _Note:
    """The note on a process: since when it has been idle, the time of the note, and its CPU time until then.

    The two times are in seconds since the start of the machine.
    """

    idle_since: float
    noted_at: float
    cpu_seconds: float


class IdleNotes:
    """Keeps notes on which processes are idle. `of` may be called often: the file is read and written about once a
    minute.
    """

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}
        self._read_at = float("-inf")

    def of(self, gpus: Sequence[GpuUse]) -> list[GpuUse]:
        """Return the GPUs of a reading, with `idle_seconds` of each of their processes for which it is known."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        is_due = now - self._read_at >= NOTED_SECONDS
        if is_due:
            self._notes, self._read_at = _read(), now
        before, names = self._notes, dict[int, str]()
        self._notes = {}
        for pid, places in _places(gpus).items():
            cpu_seconds = places[0][1].cpu_seconds
            if cpu_seconds is None or any(_is_idle(*place) is None for place in places):
                continue
            names[pid] = f"{pid} {Process.of(pid).start_ticks}"
            note = before.get(names[pid])
            if note is None or not _rests(note, now, cpu_seconds) or not all(_is_idle(*place) for place in places):
                note = _Note(now, now, cpu_seconds)
            elif now - note.noted_at >= NOTED_SECONDS:
                note = replace(note, noted_at=now, cpu_seconds=cpu_seconds)
            self._notes[names[pid]] = note
        works = (note.idle_since - before[name].idle_since for name, note in self._notes.items() if name in before)
        if is_due or self._notes.keys() != before.keys() or max(works, default=0.0) >= NOTED_SECONDS:
            _write(self._notes)
        idle = {pid: now - self._notes[name].idle_since for pid, name in names.items()}
        return [replace(gpu, users=gpu.users and tuple(_with_idle(user, idle) for user in gpu.users)) for gpu in gpus]


def _with_idle(user: GpuUser, idle: dict[int, float]) -> GpuUser:
    return replace(user, idle_seconds=idle.get(user.pid))


def _places(gpus: Sequence[GpuUse]) -> dict[int, list[tuple[GpuUse, GpuUser]]]:
    places: dict[int, list[tuple[GpuUse, GpuUser]]] = {}
    for gpu in gpus:
        for user in gpu.users or ():
            places.setdefault(user.pid, []).append((gpu, user))
    return places


def _is_idle(gpu: GpuUse, user: GpuUser) -> bool | None:
    """Return True if the process does not use the GPU in this reading, False if it does; None if that is not known."""
    if user.use is not None:
        return user.use == 0
    return None if gpu.busy is None else gpu.busy <= BUSY


def _rests(note: _Note, now: float, cpu_seconds: float) -> bool:
    return cpu_seconds - note.cpu_seconds <= CPU_SECONDS + CPU_SHARE * (now - note.noted_at)


def _read() -> dict[str, _Note]:
    with contextlib.suppress(OSError):
        path = _path()
        about = path.lstat()
        if about.st_uid == os.geteuid() and stat.S_ISREG(about.st_mode):
            content = read_object(path).value
            place = Place.read(content)
            if place is not None and place.is_here:
                plain = {name: completed(_Note, mapping(note)) for name, note in mapping(content.get("notes")).items()}
                return {name: _Note(**values) for name, values in plain.items() if values is not None}
    return {}


def _write(notes: dict[str, _Note]) -> None:
    """Write the notes. A folder that cannot be written is no error: then nothing is known the next time."""
    plain = {name: asdict(note) for name, note in notes.items()}
    with contextlib.suppress(OSError):
        write_atomically(_path(), json.dumps(Place.here().as_fields() | {"notes": plain}), durable=False)


def _path() -> Path:
    return lease.folder() / f"idle.{os.geteuid()}.json"
