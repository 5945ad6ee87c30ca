"""Reads what Nsight Systems has recorded (`nsys --export=sqlite`): gaps between kernels, and copies beside them."""

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
    """One GPU, over the second half of its kernels: the first holds start-up. Times are shares of that time."""

    device: int
    seconds: float
    idle: float  # no kernel runs
    longest_gap_ms: float
    copied_bytes: int  # from the host
    copying: float
    hidden: float | None  # the part of the copying during which a kernel runs


def read(path: Path) -> list[Timeline]:
    """The GPUs in the recording; raises sqlite3.Error where it is of another form."""
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
    """Spans that touch or overlap as one, in their order."""
    merged: Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _overlap(some: Spans, others: Spans) -> int:
    """How long both are there; each is merged."""
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
