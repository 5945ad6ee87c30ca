"""The memory of this process: its peak as the kernel counts it, and the pages of libraries that a fork leaves out.

Memory that is shared with other processes counts in each of them. A trainer may be forked from a process that has
already imported everything. Its peak (VmHWM) then begins with the pages that both processes share, but without the
pages of libraries until it uses them. So its peak is lower than that of a process that has imported everything by
itself, by at most the size of the libraries, and always by about the same amount. ru_maxrss of a process begins with
the size of the program that started it, so that it is useful only for the children of a small process.

At a fork Linux leaves out the pages of files, which the new process reads again when it needs them (`vma_needs_copy` in
mm/memory.c). Until then the process seems to take less memory than a process that has imported the same modules by
itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
from array import array
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peaks:
    """The largest memory of a process in bytes; None if it is not known.

    `address_space` is given only if the address space is limited (ulimit -v).
    """

    resident: int | None = None
    address_space: int | None = None


def peaks() -> Peaks:
    """Return the peaks of this process until now."""
    try:
        status = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines() if ":" in line)
    except OSError:
        return Peaks()
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return Peaks(_bytes(status.get("VmHWM", "")), _bytes(status.get("VmPeak", "")) if limited else None)


def peaks_of_ended_children() -> Peaks:
    """Return the peak of the largest process that this process has started and waited for; its values are None without
    one.

    The value is correct only if this process itself is small.
    """
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Peaks(kilobytes * 1024 or None)


def _bytes(text: str) -> int | None:
    """Return the bytes in a text such as `  123456 kB`; None if it has another form."""
    words = text.split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else None


# ---- the pages of libraries ----------------------------------------------------------------------


Pages = list[tuple[int, int]]  # address and bytes of pages side by side

_POPULATE_READ = 22  # MADV_POPULATE_READ in linux/mman.h, since Linux 5.14
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT = 1 << 63  # in an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst)
_ENTRY_BYTES = 8


def library_pages() -> Pages:
    """Return the pages of libraries and other files that are in the memory of this process now.

    Raises OSError if they cannot be determined.
    """
    pages: Pages = []
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            addresses, access, _, _, file, *_ = line.split(maxsplit=5)
            if file != "0" and access.startswith("r"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                pagemap.seek(start // _PAGE * _ENTRY_BYTES)
                pages += _runs(start, array("Q", pagemap.read((end - start) // _PAGE * _ENTRY_BYTES)))
    return pages


def populate(pages: Pages) -> None:
    """Bring pages of `library_pages`, from the process that has forked this one, into the memory of this process.

    Raises OSError if that fails, as before Linux 5.14.
    """
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, length in pages:
        if madvise(address, length, _POPULATE_READ):
            raise OSError(ctypes.get_errno(), "the pages of a library cannot be read")


def _runs(start: int, entries: array[int]) -> Pages:
    pages: Pages = []
    began = None
    for number, entry in enumerate(entries):
        if entry & _PRESENT:
            began = number if began is None else began
        elif began is not None:
            pages.append((start + began * _PAGE, (number - began) * _PAGE))
            began = None
    if began is not None:
        pages.append((start + began * _PAGE, (len(entries) - began) * _PAGE))
    return pages
