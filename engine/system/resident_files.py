"""The pages of programs and libraries that this process has in memory, for processes that it forks.

At a fork Linux leaves out the pages of files, which the new process reads again when it needs them (`vma_needs_copy` in
mm/memory.c). Until then it seems to take less memory than one that has imported the same by itself.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from pathlib import Path

Pages = list[tuple[int, int]]  # address and bytes of pages side by side

_POPULATE_READ = 22  # MADV_POPULATE_READ in linux/mman.h, since Linux 5.14
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 1 << 63  # in an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst)
_ENTRY_BYTES = 8


def resident() -> Pages:
    """Those of now; raises OSError where they cannot be known."""
    found: Pages = []
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            addresses, access, _, _, file, *_ = line.split(maxsplit=5)
            if file != "0" and access.startswith("r"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                pagemap.seek(start // _PAGE * _ENTRY_BYTES)
                found += _runs(start, array("Q", pagemap.read((end - start) // _PAGE * _ENTRY_BYTES)))
    return found


def populate(pages: Pages) -> None:
    """Have them in memory in this process, too; raises OSError."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, length in pages:
        if madvise(address, length, _POPULATE_READ):
            raise OSError(ctypes.get_errno(), "the pages of a library cannot be read")


def _runs(start: int, entries: array[int]) -> Pages:
    found: Pages = []
    began = None
    for number, entry in enumerate(entries):
        if entry & _PRESENT:
            began = number if began is None else began
        elif began is not None:
            found.append((start + began * _PAGE, (number - began) * _PAGE))
            began = None
    if began is not None:
        found.append((start + began * _PAGE, (len(entries) - began) * _PAGE))
    return found
