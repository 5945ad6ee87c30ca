"""The processes around those that use GPUs, as a tree for each user: what has started them, and what they have started.

Nothing here sends a signal to a process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import psutil

from .processes import command_of, seen, user_of

MOST = 300  # processes of a tree; a machine may have tens of thousands
_FIRST = 1  # the process that adopts all others


@dataclass(frozen=True)
class Branch:
    """A process at its place: `edges` says for each level above it, and last for itself, whether more follow there.

    `alike` counts processes of the same command and parent without a GPU or children, of which only the first is shown.
    """

    pid: int
    user: str | None
    command: str | None
    started: float | None
    uses_gpu: bool
    edges: tuple[bool, ...] = ()
    alike: int = 1


def trees(using: Collection[int]) -> list[Branch]:
    """From top to bottom, user by user; a process of `using` that cannot be seen is left out."""
    parents = {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}
    known = {pid: _branch(pid, True) for pid in sorted(set(using) & parents.keys())}
    lines = {pid: branch for pid, branch in known.items() if branch is not None}
    for pid in list(lines):
        _add_above(pid, parents, lines)
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
    except psutil.Error:  # it has ended meanwhile
        return None


def _add_above(pid: int, parents: Mapping[int, int], lines: dict[int, Branch]) -> None:
    """What has started it, as far as that is the same user's."""
    parent = parents[pid]
    while parent in parents and parent > _FIRST and parent not in lines and len(lines) < MOST:
        above = _branch(parent, False)
        if above is None or above.user != lines[pid].user:
            return
        lines[parent] = above
        parent = parents[parent]


def _add_below(pid: int, children: Mapping[int, list[int]], lines: dict[int, Branch]) -> None:
    for child in children.get(pid, ()):
        if child not in lines and len(lines) < MOST and (below := _branch(child, False)) is not None:
            lines[child] = below
        if child in lines:
            _add_below(child, children, lines)


def _ordered(
    pid: int, edges: tuple[bool, ...], shown: Mapping[int, list[int]], lines: Mapping[int, Branch]
) -> Iterator[Branch]:
    """A branch, and below it those that it has started; those that are alike as one."""
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
