"""The command line of this process, as `ps` and /proc show it to everybody.

Linux shows the memory in which the arguments were passed, whatever the process has written there meanwhile. A process
that is to show a longer argument later is started with room for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_START, _END = 45, 46  # arg_start and arg_end in /proc/PID/stat (proc(5)), counted from 0 after the name


def replace_last(words: list[str], path: str) -> None:
    """Show `path` in place of `words`, which are the last words of the command line.

    Additional slashes before the last part of the path fill the room. Raises OSError if the words cannot be replaced or
    the path is too long.
    """
    folder, name = os.path.split(os.fsencode(path))
    left = len(_joined(words)) - len(folder) - len(name)
    if left < 1:
        raise OSError(f"no room for {path}")
    _write(words, folder + b"/" * left + name)


def require_replaceable(words: list[str]) -> None:
    """Raise OSError if `words`, the last words of the command line, cannot be replaced."""
    _write(words, _joined(words))


def _write(words: list[str], new: bytes) -> None:
    if sys.platform != "linux":
        raise OSError("only Linux shows what is written there")
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    old = _joined(words)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(int(fields[_END]) - 1 - len(old))
        if int(fields[_START]) <= 0 or memory.read(len(old)) != old:
            raise OSError("the arguments are not where they were passed")
        memory.seek(-len(old), 1)
        memory.write(new)


def _joined(words: list[str]) -> bytes:
    return b"\0".join(map(os.fsencode, words))
