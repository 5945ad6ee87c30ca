"""Compiles the stand-in for GPUs once for each version of its source and of TensorFlow, and keeps it for later runs.

`python -m tests.support.fakegpu.build` does so ahead: `make test` starts it beside the first tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.doors.engine import installed

SOURCE = Path(__file__).with_name("src")
# TensorFlow's own libraries are in the process before this one: empty ones with their names satisfy the linker.
TENSORFLOW = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
C = ("-std=gnu11", "-O1", "-fPIC", "-pthread")
# As TensorFlow's wheels are built.
CXX = ("-std=c++17", "-O1", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64", "-DNDEBUG")
# GCC looks for garbage only beyond 2 GB: it takes 1.3 GB instead of 1.0, and a seventh less time.
NO_GARBAGE = ("--param", "ggc-min-heapsize=2000000")


def library() -> Path:
    """The compiled library, in the user's cache folder; waits if another process compiles it just now."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputui-tests"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"libfakegpu-{_key()}.so"
    with open(folder / "lock", "w") as lock, tempfile.TemporaryDirectory() as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _compile(path, Path(scratch))
    return path


def _key() -> str:
    files = [Path(__file__), *sorted(SOURCE.iterdir())]
    text = b"".join(path.read_bytes() for path in files if path.suffix in (".c", ".cc", ".h", ".py"))
    return f"{installed.tensorflow_version()}-{hashlib.sha256(text).hexdigest()[:12]}"


def _compile(path: Path, folder: Path) -> None:
    """About 9 seconds of processor time, nearly all of it for TensorFlow's headers."""
    package = importlib.util.find_spec("tensorflow")
    assert package is not None
    assert package.origin is not None
    headers = ("-isystem", str(Path(package.origin).with_name("include")))
    for name in TENSORFLOW:
        _run("cc", "-shared", "-fPIC", "-x", "c", os.devnull, f"-Wl,-soname,{name}", "-o", folder / name)
    for name in ("settings", "device", "driver"):
        _run("cc", *C, *headers, "-c", SOURCE / f"{name}.c", "-o", folder / f"{name}.o")
    _run("c++", *CXX, *NO_GARBAGE, *headers, "-c", SOURCE / "library.cc", "-o", folder / "library.o")
    stubs = [folder / name for name in TENSORFLOW]
    made = folder / path.name
    _run("c++", "-shared", "-pthread", "-o", made, *sorted(folder.glob("*.o")), "-Wl,--no-as-needed", *stubs)
    shutil.copy(made, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


if __name__ == "__main__":
    library()
