"""How much memory a process has had at most, as the kernel counts it.

Memory that is shared with other processes counts in each of them. The peak (VmHWM) of a process that was forked from
one that waits with everything imported begins with the pages that both share, without those of libraries until it
touches them: it is less by up to the size of the libraries than that of a process which has imported all by itself,
always by about the same. ru_maxrss of a process begins with the size of the program that started it, so that it serves
only for children of a small one.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peaks:
    """In bytes; None where it is not known. The address space matters only where it is limited (ulimit -v)."""

    resident: int | None = None
    address_space: int | None = None


def of_this_process() -> Peaks:
    try:
        told = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines() if ":" in line)
    except OSError:
        return Peaks()
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return Peaks(_bytes(told.get("VmHWM", "")), _bytes(told.get("VmPeak", "")) if limited else None)


def of_ended_children() -> Peaks:
    """Of the largest of the processes that this one has started and that have ended; it is small itself."""
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Peaks(kilobytes * 1024 or None)


def _bytes(told: str) -> int | None:
    """`  123456 kB` -> bytes."""
    words = told.split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else None
