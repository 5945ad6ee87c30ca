"""Reads a recording of Nsight Systems (`nsys --export=sqlite`): gaps between kernels, and copies at the same time."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TO_DEVICE = 1  # cudaMemcpyKind: from the host to the device
Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Timeline:
    """The second half of the kernels of one GPU, as the first half includes the start. Shares are of the time of this
    half.
    """

    device: int
    seconds: float
    idle: float  # no kernel runs
    longest_gap_ms: float
    copied_bytes: int  # from the host
    copying: float
    hidden: float | None  # the part of the copying during which a kernel runs


def read(path: Path) -> list[Timeline]:
    """Return the timeline of each GPU in the recording. Raises sqlite3.Error for a recording of another format."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as found:
        kernels = found.execute("SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start").fetchall()
        has = found.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_MEMCPY'").fetchone()
        query = "SELECT deviceId, start, end, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = ? ORDER BY start"
        copies = found.execute(query, (TO_DEVICE,)).fetchall() if has else []
    devices = sorted({device for device, *_ in kernels})
    return [
        _one(device, [(a, b) for which, a, b in kernels if which == device],
             [(a, b, size) for which, a, b, size in copies if which == device])
        for device in devices
    ]  # fmt: skip


def _one(device: int, kernels: Spans, copies: Sequence[tuple[int, int, int]]) -> Timeline:
    busy = _merged(kernels[len(kernels) // 2 :])
    begin, end = busy[0][0], busy[-1][1]
    whole = max(1, end - begin)
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(busy)]
    within = [copy for copy in copies if begin <= copy[0] < end]
    copying = _merged([(a, b) for a, b, _ in within])
    length = sum(b - a for a, b in copying)
    return Timeline(
        device=device,
        seconds=whole / 1e9,
        idle=sum(gaps) / whole,
        longest_gap_ms=max(gaps, default=0) / 1e6,
        copied_bytes=sum(size for *_, size in within),
        copying=length / whole,
        hidden=_overlap(copying, busy) / length if length else None,
    )


def _merged(spans: Spans) -> Spans:
    """Return the spans in their order. Spans that touch or overlap become one."""
    merged: Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _overlap(some: Spans, others: Spans) -> int:
    """Return the time that is in a span of both lists, in the unit of the spans. Spans of one list do not overlap."""
    total = first = second = 0
    while first < len(some) and second < len(others):
        begin = max(some[first][0], others[second][0])
        end = min(some[first][1], others[second][1])
        total += max(0, end - begin)
        if some[first][1] < others[second][1]:
            first += 1
        else:
            second += 1
    return total
