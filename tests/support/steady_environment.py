"""Changes the variables of this process so that threads of TensorFlow can read them at the same time.

Each iterator of tf.data has a thread that calls getenv("TF_JOB_NAME") whenever it tunes the pipeline, at least once a
minute. glibc's setenv frees the array of all variables when a new one makes it move, and a thread that is reading it
then crashes the process, minutes after the test of that pipeline. Here the array never moves, and nothing is freed.
"""

from __future__ import annotations

import ctypes
import os

SLOTS = 4096  # for as many variables, and the null pointer after them
_libc = ctypes.CDLL(None)
_libc.calloc.restype = _libc.strdup.restype = ctypes.c_void_p
_environ = ctypes.c_void_p.in_dll(_libc, "environ")


class _Array:
    def __init__(self) -> None:
        self._slots = (ctypes.c_void_p * SLOTS).from_address(_libc.calloc(SLOTS, ctypes.sizeof(ctypes.c_void_p)))

    def _count(self) -> int:
        """The number of variables, after those that C code has set by itself have been taken over."""
        if _environ.value != ctypes.addressof(self._slots):
            theirs = (ctypes.c_void_p * SLOTS).from_address(_environ.value or 0)
            count = next(at for at, entry in enumerate(theirs) if not entry)
            ctypes.memmove(self._slots, theirs, (count + 1) * ctypes.sizeof(ctypes.c_void_p))
            _environ.value = ctypes.addressof(self._slots)
        return next(at for at, entry in enumerate(self._slots) if not entry)

    def _place(self, name: bytes, count: int) -> int:
        """The index of a variable; `count` if there is none of that name."""
        start = name + b"="
        entries = (ctypes.string_at(self._slots[at] or 0) for at in range(count))
        return next((at for at, entry in enumerate(entries) if entry.startswith(start)), count)

    def put(self, name: str | bytes, value: str | bytes) -> None:
        """Instead of os.putenv."""
        count = self._count()
        assert count < SLOTS - 1
        entry = os.fsencode(name) + b"=" + os.fsencode(value)
        self._slots[self._place(os.fsencode(name), count)] = _libc.strdup(entry)

    def unset(self, name: str | bytes) -> None:
        """Instead of os.unsetenv."""
        count = self._count()
        for at in range(self._place(os.fsencode(name), count), count):
            self._slots[at] = self._slots[at + 1]


def install() -> None:
    """From now on os.environ changes the variables in that array."""
    array = _Array()
    os.putenv, os.unsetenv = array.put, array.unset  # type: ignore[assignment]  # names are no paths
