"""Checks that TensorFlow has compiled bytecode and is not compiled again at each start.

pip compiles what it installs. uv leaves that to the first import, which may not be allowed to write the files.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ..interpreter import installed
from .finding import Finding

LOOKED_AT = ("tensorflow/python/framework/ops.py", "keras/src/models/model.py")  # one for its package
_HEADER_BYTES = 16
_BY_HASH = 1  # a flag in the header of a .pyc file


def findings() -> Iterator[Finding]:
    """A warning when there is no bytecode that Python would use and Python cannot write it either."""
    python = installed.meant()
    if python.version[:2] != sys.version_info[:2]:  # whose bytecode has other names and another form
        return
    sources = [source for source in map(installed.site, LOOKED_AT) if source is not None]
    stale = next((source for source in sources if not _is_fresh(source)), None)
    if stale is None:
        return
    package = installed.site("tensorflow")
    folder = package.parent if package else stale.parent
    locked = not _can_be_kept(stale)
    if sys.dont_write_bytecode:
        why = "PYTHONDONTWRITEBYTECODE is set"
    elif locked:
        why = f"{folder} cannot be written to"
    else:
        return
    what = f"TensorFlow is compiled again at each start, which takes seconds: there is no compiled bytecode, and {why}"
    command = f"{python.python} -m compileall -q {folder}"
    yield Finding("note", "TensorFlow", what, f"ask the owner of the folder to run: {command}" if locked else command)


def _is_fresh(source: Path) -> bool:
    """Whether Python uses the compiled file: made by this Python, from the source as it is now (PEP 552)."""
    try:
        with Path(importlib.util.cache_from_source(str(source))).open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
        made_of = source.stat()
    except OSError:
        return False
    magic, flags, seconds, size = header[:4], *(int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if len(header) < _HEADER_BYTES or magic != importlib.util.MAGIC_NUMBER:
        return False
    same = (seconds, size) == (int(made_of.st_mtime) & 0xFFFFFFFF, made_of.st_size & 0xFFFFFFFF)
    return bool(flags & _BY_HASH) or same


def _can_be_kept(source: Path) -> bool:
    """Whether the compiled file can be written, or its folder created."""
    cache = Path(importlib.util.cache_from_source(str(source))).parent
    return os.access(next(folder for folder in (cache, *cache.parents) if folder.exists()), os.W_OK | os.X_OK)
