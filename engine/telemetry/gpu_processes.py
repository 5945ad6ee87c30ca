"""The processes on a GPU: who has started them, what they run, since when, and their trees. In a container the driver
reports the host's process ids, which inside the container belong to no process or to a different one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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


# ---- the processes around them -------------------------------------------------------------------

MOST = 300  # processes of a tree; a machine may have tens of thousands
_FIRST = 1  # the process that adopts all others


@dataclass(frozen=True)
class Branch:
    """A process and its place in the tree: `edges` has for each level above it, and last for its own, whether more
    follow on that level. `alike` processes (of the same command and parent, without GPU and children) are one.
    `started` is Unix time.
    """

    pid: int
    user: str | None
    command: str | None
    started: float | None
    uses_gpu: bool
    edges: tuple[bool, ...] = ()
    alike: int = 1


def trees(using: Collection[int]) -> list[Branch]:
    """The processes that use a GPU, those above them of the same user, and all below them, at most 300, as rows of
    trees that are sorted by user and start. Those that cannot be seen or have ended are left out.
    """
    parents = {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
    branches = {pid: _branch(pid, True) for pid in sorted(set(using) & parents.keys())}
    lines = {pid: branch for pid, branch in branches.items() if branch is not None}
    for pid in list(lines):  # as long as those above it belong to the same user
        parent = parents[pid]
        while parent in parents and parent > _FIRST and parent not in lines and len(lines) < MOST:
            above = _branch(parent, False)
            if above is None or above.user != lines[pid].user:
                break
            lines[parent] = above
            parent = parents[parent]
    children = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    for pid in sorted(set(using) & lines.keys()):
        _add_below(pid, children, lines)
    shown: dict[int, list[int]] = defaultdict(list)
    for pid in sorted(lines, key=lambda pid: (lines[pid].started or 0, pid)):
        shown[parents[pid]].append(pid)
    tops = [pid for pid in lines if parents[pid] not in lines]
    ordered = sorted(tops, key=lambda pid: (lines[pid].user or "~", lines[pid].started or 0, pid))
    return [line for pid in ordered for line in _ordered(pid, (), shown, lines)]


def _branch(pid: int, uses_gpu: bool) -> Branch | None:
    try:
        process = psutil.Process(pid)
        command = command_of(process) or seen(process.name)
        return Branch(pid, user_of(process), command, seen(process.create_time), uses_gpu)
    except psutil.Error:  # the process has ended meanwhile
        return None


def _add_below(pid: int, children: Mapping[int, list[int]], lines: dict[int, Branch]) -> None:
    for child in children.get(pid, ()):
        if child not in lines and len(lines) < MOST and (below := _branch(child, False)) is not None:
            lines[child] = below
        if child in lines:
            _add_below(child, children, lines)


def _ordered(
    pid: int, edges: tuple[bool, ...], shown: Mapping[int, list[int]], lines: Mapping[int, Branch]
) -> Iterator[Branch]:
    """The process, and below it those that it has started; equal ones are one, with their number."""
    yield replace(lines[pid], edges=edges)
    below = shown.get(pid, [])
    plain = {child for child in below if not lines[child].uses_gpu and not shown.get(child)}
    alike = Counter(lines[child].command for child in plain)
    firsts = {lines[child].command: child for child in reversed(below) if child in plain}
    kept = [child for child in below if child not in plain or firsts[lines[child].command] == child]
    for number, child in enumerate(kept):
        inner = (*edges, number < len(kept) - 1)
        branches = list(_ordered(child, inner, shown, lines))
        branches[0] = replace(branches[0], alike=alike[lines[child].command] if child in plain else 1)
        yield from branches
