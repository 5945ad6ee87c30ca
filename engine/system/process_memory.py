"""The memory of this process: its peak as the kernel counts it, and the pages of libraries that a fork leaves out. A
forked trainer's peak (VmHWM) lacks the pages of libraries that it has not used: at a fork Linux leaves out the pages of
files (`vma_needs_copy` in mm/memory.c). ru_maxrss begins with the size of the program that started a process, so that
it is useful only for the children of a small process.
"""

from __future__ import annotations

import ctypes
import os
import resource
from array import array
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from . import proc

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peaks:
    """The peaks in bytes; `address_space` is given only if it is limited (ulimit -v)."""

    resident: int | None = None
    address_space: int | None = None


def peaks() -> Peaks:
    status, limited = proc.sizes(STATUS), resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return Peaks(status.get("VmHWM"), status.get("VmPeak") if limited else None)


# ---- the pages of libraries ----------------------------------------------------------------------


Pages = list[tuple[int, int]]  # address and bytes of pages side by side

_POPULATE_READ = 22  # MADV_POPULATE_READ in linux/mman.h, since Linux 5.14
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 1 << 63  # in an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst)
_ENTRY_BYTES = 8


def library_pages() -> Pages:
    """The pages of files that are in the memory of this process now. Raises OSError."""
    pages: Pages = []
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            addresses, access, _, _, file, *_ = line.split(maxsplit=5)
            if file != "0" and access.startswith("r"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                pagemap.seek(start // _PAGE * _ENTRY_BYTES)
                entries = array("Q", pagemap.read((end - start) // _PAGE * _ENTRY_BYTES))
                there = [number for number, entry in enumerate(entries) if entry & _PRESENT]
                for _, group in groupby(enumerate(there), lambda at: at[1] - at[0]):
                    numbers = [number for _, number in group]
                    pages.append((start + numbers[0] * _PAGE, len(numbers) * _PAGE))
    return pages


def populate(pages: Pages) -> None:
    """Bring the pages of the process that has forked this one into memory. OSError before Linux 5.14."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, length in pages:
        if madvise(address, length, _POPULATE_READ):
            raise OSError(ctypes.get_errno(), "the pages of a library cannot be read")
