"""The machine's NUMA nodes, and lists of CPUs in words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import limits


def nodes() -> int:
    """The number of the machine's NUMA nodes."""
    found = list((limits.ROOT / Path("sys/devices/system/node")).glob("node[0-9]*"))
    return max(1, len(found))


def in_words(cpus: Iterable[int]) -> str:
    """`0-3,8`, as the kernel writes a list of CPUs."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
