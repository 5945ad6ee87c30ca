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
                facts = process.as_dict(["name", "uids", *(("cmdline", "create_time", "cpu_times") if whole else ())])
                # The user is None if the system hides it.
                about = {"name": facts["name"], "own": _is_below(pid, own_pid), "user": None}
                with contextlib.suppress(OSError):  # the user can be seen also if all else is hidden (hidepid=1)
                    user_id = facts["uids"].real if facts["uids"] else os.stat(f"/proc/{pid}").st_uid
                    about["user"] = proc.user_name(user_id)
                if whole:  # the command as a user types it, without the folder of the program
                    words, times = facts["cmdline"], facts["cpu_times"]
                    command = shlex.join([Path(words[0]).name, *words[1:]])[:_LONGEST_COMMAND] if words else None
                    about |= {"command": command, "started": facts["create_time"]}
                    about["cpu_seconds"] = None if times is None else times.user + times.system
        except (psutil.Error, ValueError, OverflowError):
            about = {"hidden": HIDDEN if _exists(pid) else NOT_HERE}
        named.append(replace(listed, **about))
    return tuple(named)


def _is_below(pid: int, own_pid: int | None) -> bool:
    """It is the process `own_pid`, or was started by it, as a command starts others."""
    while own_pid is not None and pid > 1 and pid != own_pid:
        process = proc.stat(pid)
        pid = 0 if process is None else process.parent
    return pid == own_pid


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
