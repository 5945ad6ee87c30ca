"""The processes on a GPU: who has started them, what they run, and since when. In a container the driver
reports the host's process ids, which inside the container belong to no process or to a different one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from ..gpu import GpuProcess
from ..system import proc

_OF_THE_HOST = "pid:[4026531836]"  # the number of the first namespace of processes, from the kernel's proc_ns.h
_LONGEST_COMMAND = 2000
HIDDEN, NOT_HERE = "hidden by the system", "not visible from here"


def described(processes: Iterable[GpuProcess], own_pid: int | None, whole: bool = False) -> tuple[GpuProcess, ...]:
    """Add name, user and `own` (`own_pid`), or why they are `hidden`; with `whole` also command, start and CPU time."""
    named = []
    for listed in processes:
        pid = listed.pid
        try:
            process = psutil.Process(pid)
            about: dict[str, Any] = {"hidden": NOT_HERE}
            if pid == own_pid or _is_counted_here(pid):
                about = {"name": seen(process.name), "own": pid == own_pid, "user": user_of(process)}
                if whole:
                    times = seen(process.cpu_times)
                    about |= {"command": command_of(process), "started": seen(process.create_time)}
                    about["cpu_seconds"] = None if times is None else times.user + times.system
        except (psutil.Error, ValueError, OverflowError):
            about = {"hidden": HIDDEN if _exists(pid) else NOT_HERE}
        named.append(replace(listed, **about))
    return tuple(named)


def seen(ask: Any) -> Any:
    """Return what the function `ask` of psutil returns; None if only the process' user may see it."""
    try:
        return ask()
    except psutil.AccessDenied:
        return None


def user_of(process: psutil.Process) -> str | None:
    """Return the name of a process' user, also if the system hides all else (hidepid=1); None if it cannot be seen."""
    if (uids := seen(process.uids)) is not None:
        return proc.user_name(uids.real)
    try:
        return proc.user_name(os.stat(f"/proc/{process.pid}").st_uid)
    except OSError:
        return None


def command_of(process: psutil.Process) -> str | None:
    """Return the command line as a user types it, without the folder of the program; None if it cannot be seen."""
    words = seen(process.cmdline)
    return shlex.join([Path(words[0]).name, *words[1:]])[:_LONGEST_COMMAND] if words else None


def _exists(pid: int) -> bool:
    """It exists even if /proc does not show it (hidepid=2)."""
    try:
        os.getsid(pid)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_counted_here(pid: int) -> bool:
    # In a container only if the process has NVIDIA's devices open, and if that can be seen: it is of the same user.
    if proc.pid_namespace() in ("", _OF_THE_HOST):
        return True
    with contextlib.suppress(OSError):
        return any(os.readlink(file).startswith("/dev/nvidia") for file in proc.open_files(pid))
    return False
