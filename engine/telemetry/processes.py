"""The processes on a GPU: who has started them, what they run, since when, and which of them is the training.

In a container the driver reports the host's process ids, which inside the container belong to no process or to a
different one.
"""

from __future__ import annotations

import os
import pwd
import shlex
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import pynvml

from .reasons import Code

_MPS = "nvidia-cuda-mps"  # its server holds the GPU, and takes many processes
_OF_THE_HOST = "pid:[4026531836]"  # the number of the first namespace of processes, from the kernel's proc_ns.h
_LONGEST_COMMAND = 2000
HIDDEN, NOT_HERE = "hidden by the system", "not visible from here"


def described(found: Sequence[Mapping[str, Any]], own_pid: int | None, whole: bool = False) -> list[dict[str, Any]]:
    """Each process with `name`, `own` and `user`, None as far as they cannot be seen, which `hidden` explains.

    `whole` adds `command`, and the time when it was `started`.
    """
    return [dict(process) | _described(process["pid"], own_pid, whole) for process in found]


def named(process: Mapping[str, Any]) -> str:
    """A described process for people."""
    return f"{process['name'] or 'process'} {process['pid']}"


def sole(processes: Sequence[Mapping[str, Any]]) -> str:
    """The process that keeps all others from a GPU in exclusive mode; none where CUDA's MPS shares it out."""
    shared = any((process["name"] or "").startswith(_MPS) for process in processes)
    return named(processes[0]) if processes and not shared else ""


def _described(pid: int, own_pid: int | None, whole: bool) -> dict[str, Any]:
    try:
        process = psutil.Process(pid)
        if pid != own_pid and not _is_counted_here(pid):
            return {"name": None, "own": None, "user": None, "hidden": NOT_HERE}
        more = {"command": command_of(process), "started": seen(process.create_time)} if whole else {}
        return {"name": seen(process.name), "own": pid == own_pid, "user": user_of(process)} | more
    except (psutil.Error, ValueError, OverflowError):
        return {"name": None, "own": None, "user": None, "hidden": HIDDEN if _exists(pid) else NOT_HERE}


def seen(ask: Any) -> Any:
    """What psutil tells of a process; None for what its user alone may see."""
    try:
        return ask()
    except psutil.AccessDenied:
        return None


def user_of(process: psutil.Process) -> str | None:
    """The name of a process' user. Its number is known even where the system hides all else (hidepid=1)."""
    if (uids := seen(process.uids)) is not None:
        return _user(uids.real)
    try:
        return _user(os.stat(f"/proc/{process.pid}").st_uid)
    except OSError:
        return None


@lru_cache
def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OSError):
        return f"user {number}"


def command_of(process: psutil.Process) -> str | None:
    """The command line as one types it, without the folders of the program; None if it cannot be seen."""
    words = seen(process.cmdline)
    return shlex.join([Path(words[0]).name, *words[1:]])[:_LONGEST_COMMAND] if words else None


def _exists(pid: int) -> bool:
    """Whether there is a process of this number, although /proc does not show it (hidepid=2)."""
    try:
        os.getsid(pid)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_counted_here(pid: int) -> bool:
    """Whether the driver's number is one of this system's: in a container, only where the process uses NVIDIA's driver.

    A stranger's files cannot be seen there, so that it counts as one of another system.
    """
    if _namespace() in ("", _OF_THE_HOST):
        return True
    try:
        return any(os.readlink(file).startswith("/dev/nvidia") for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@lru_cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


# ---- what they do ---------------------------------------------------------------------------------

_FIRST_MICROSECONDS = 1_000_000  # how far the first question goes back


class Work:
    """Which of a GPU's processes work, by the driver's samples, and since when the others do not.

    `read` raises NVMLError where the driver does not tell it, as for a GPU in MIG mode.
    """

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._newest = time.time_ns() // 1000 - _FIRST_MICROSECONDS  # the driver's time of a sample
        self._first: dict[int, float] = {}  # when each process was first looked at, by the steady clock
        self._worked: dict[int, float] = {}  # when it worked last

    def read(self) -> dict[int, float]:
        """The share of the time in which each process has used the chip; who has not used it is not listed."""
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._gpu, self._newest)
        except pynvml.NVMLError as fault:
            if fault.value not in (pynvml.NVML_SUCCESS, Code.NOT_FOUND):  # nobody has used it
                raise
            samples = []
        used: dict[int, float] = {}
        for sample in samples:
            parts = (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
            self._newest = max(self._newest, int(sample.timeStamp))
            if any(parts) and max(parts) <= 100:  # some drivers return samples that were never filled
                used[int(sample.pid)] = max(used.get(int(sample.pid), 0.0), sample.smUtil / 100)
        return used

    def forget(self) -> None:
        """After a question without an answer nothing is known of the time before."""
        self._first, self._worked = {}, {}

    def of(self, processes: Sequence[Mapping[str, Any]], used: Mapping[int, float]) -> list[dict[str, Any]]:
        """The processes with their `use`, and `idle_seconds`: for how long that has been 0.

        `idle_at_least`: a process has done nothing since it was first looked at, and perhaps not before either.
        """
        now, pids = time.monotonic(), {process["pid"] for process in processes}
        self._first = {pid: self._first.get(pid, now) for pid in pids}
        self._worked = {pid: at for pid, at in self._worked.items() if pid in pids} | dict.fromkeys(
            used.keys() & pids, now
        )
        return [dict(process) | self._idle(process["pid"], now, used) for process in processes]

    def _idle(self, pid: int, now: float, used: Mapping[int, float]) -> dict[str, Any]:
        since = self._worked.get(pid, self._first[pid])
        return {
            "use": used.get(pid, 0.0),
            "idle_seconds": round(now - since, 1),
            "idle_at_least": pid not in self._worked,
        }
