"""Which installed package the module `pynvml` comes from: more than one ships it, only nvidia-ml-py the right one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .finding import Finding

RIGHT = "nvidia-ml-py"
ABOUT = "pynvml"


def findings() -> Iterator[Finding]:
    """That the right module is there, and is not shadowed or slowed down by the outdated package `pynvml`."""
    right, old = _version(RIGHT), _version("pynvml")
    if right is None:
        yield Finding("error", ABOUT, f"{RIGHT} is not installed: GPUs cannot be read", f"pip install {RIGHT}")
        return
    place = _place()
    if place is not None and place.name == "__init__.py":
        version = f"pynvml {old}" if old else "the package pynvml"
        remedy = f"pip uninstall pynvml; pip install --force-reinstall {RIGHT}"
        yield Finding("warning", ABOUT, f"{version} shadows the module of {RIGHT}: readings are old or wrong", remedy)
    elif old is not None:
        what = f"the deprecated package pynvml {old} is installed beside {RIGHT}: it slows down each start"
        yield Finding("note", ABOUT, what, "pip uninstall pynvml")
    else:
        yield Finding("ok", ABOUT, f"{RIGHT} {right}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _place() -> Path | None:
    """The file of the module; nvidia-ml-py's is the single file pynvml.py, the other's a folder."""
    try:
        found = importlib.util.find_spec("pynvml")
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin else None
