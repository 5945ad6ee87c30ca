"""Finds faults of installed Python packages that slow gputui down or prevent its readings: pynvml, compiled bytecode.
Several packages provide the module `pynvml`, and only nvidia-ml-py is the right one. Without compiled bytecode
TensorFlow is compiled again at each start; uv leaves that to the first import, which may not be allowed to write.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ..finding import Finding
from ..interpreter import installed
from ..system.child_process import BackgroundCall

RIGHT = "nvidia-ml-py"
ABOUT = "pynvml"


def nvml_module_findings() -> Iterator[Finding]:
    """Missing, from another package, slowed down by an old one, or `ok`."""
    right, old = _version(RIGHT), _version("pynvml")
    place = _place()
    owner = _owner(place) if place else None
    if owner is not None and owner != RIGHT:
        what = f"the module pynvml comes from {owner} {_version(owner)}, not from {RIGHT}: readings may be wrong"
        yield Finding("warning", ABOUT, what, f"pip uninstall {owner}; pip install --force-reinstall {RIGHT}")
    elif right is None or place is None:
        yield Finding("error", ABOUT, f"{RIGHT} is not installed: GPUs cannot be read", f"pip install {RIGHT}")
    elif owner is None:
        what = f"the module pynvml is {place}, not that of {RIGHT}: readings may be wrong"
        yield Finding("warning", ABOUT, what, "rename that file, or take its folder off PYTHONPATH")
    elif old is not None:
        what = f"the deprecated package pynvml {old} is installed with {RIGHT}: it slows down every start of Python"
        yield Finding("note", ABOUT, what, "pip uninstall pynvml")
    else:
        yield Finding("ok", ABOUT, f"{RIGHT} {right}")


def tensorboard_findings() -> Iterator[Finding]:
    """TensorFlow 2.21 no longer brings tensorboard."""
    if installed.intended().place is not None and installed.site("tensorboard") is None:
        what = "the package tensorboard is not installed: Keras' TensorBoard callback and tf.summary fail"
        yield Finding("note", "tensorboard", what, installed.install("tensorboard"))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _place() -> Path | None:
    try:
        spec = importlib.util.find_spec(ABOUT)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin else None


def _owner(place: Path) -> str | None:
    owners = [name for name in set(metadata.packages_distributions().get(ABOUT, [])) if _lists(name, place)]
    last = [name for name in owners if _checksum(place) in _lists(name, place)]
    return next(iter(sorted(last) or sorted(owners)), None)


def _lists(distribution: str, place: Path) -> list[str]:
    """Checksums with which a package lists a file; empty text: without one, as of a system package."""
    files = metadata.files(distribution)
    if files is None:
        return [""]
    listed = [file for file in files if file.name == place.name]
    ours = [file for file in listed if Path(str(file.locate())).resolve() == place.resolve()]
    return [file.hash.value if file.hash else "" for file in ours]


def _checksum(place: Path) -> str:
    digest = hashlib.sha256(place.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


# ---- TensorFlow's bytecode -----------------------------------------------------------------------


LOOKED_AT = ("tensorflow/python/framework/ops.py", "keras/src/models/model.py")  # one for its package
_HEADER_BYTES = 16
_BY_HASH = 1  # a flag in the header of a .pyc file


def bytecode_findings() -> Iterator[Finding]:
    """Nothing is reported about a Python of another version than gputui's own."""
    python = installed.intended()
    if python.version[:2] != sys.version_info[:2]:  # whose bytecode has other names and another form
        return
    sources = [source for source in map(installed.site, LOOKED_AT) if source is not None]
    stale = next((source for source in sources if not _is_fresh(source)), None)
    if stale is None:
        return
    package = installed.site("tensorflow")
    folder = package.parent if package else stale.parent
    cache = Path(importlib.util.cache_from_source(str(stale))).parent
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    locked = not os.access(there, os.W_OK | os.X_OK)
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
    """This Python has made the compiled file from the present source (PEP 552)."""
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


Output = subprocess.CompletedProcess[str]


class Child:
    """A Python process that runs `program` from the creation on, for `seconds`. Any thread may call `end`."""

    def __init__(self, program: str, environment: Mapping[str, str], *flags: str, python: str = sys.executable) -> None:
        self._began, self.seconds = time.monotonic(), 0.0
        self._command, pipe = [python, "-P", *flags, "-c", program], subprocess.PIPE
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "text": True, "errors": "replace"}
        self._process: subprocess.Popen[str] | None = None
        self._fault = ""
        try:
            variables = os.environ | environment
            self._process = subprocess.Popen(self._command, stdout=pipe, stderr=pipe, env=variables, **how)
        except OSError as fault:
            self._fault = str(fault)
        self._output = BackgroundCall(self._listen)

    def _listen(self) -> Output:
        if self._process is None:
            return subprocess.CompletedProcess(self._command, -1, "", self._fault)
        output, log = self._process.communicate()
        self.seconds = time.monotonic() - self._began
        return subprocess.CompletedProcess(self._command, self._process.returncode, output, log)

    def output(self, deadline: float) -> Output | None:
        """None at the deadline (time.monotonic): it is then ended. stderr says why it could not be started."""
        try:
            return self._output.result(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            self.seconds = time.monotonic() - self._began
            self.end()
            return None

    def end(self) -> None:
        """Waits at most 1 s: a process in an uninterruptible call of the driver does not end."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(1)
