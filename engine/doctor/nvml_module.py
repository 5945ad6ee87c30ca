"""Finds out which installed package provides the module `pynvml`: several do, only nvidia-ml-py is the right one."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .finding import Finding

RIGHT = "nvidia-ml-py"
ABOUT = "pynvml"


def findings() -> Iterator[Finding]:
    """Findings where the right module is missing, or is shadowed or slowed down by an outdated package."""
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
        what = f"the deprecated package pynvml {old} is installed beside {RIGHT}: it slows down every start of Python"
        yield Finding("note", ABOUT, what, "pip uninstall pynvml")
    else:
        yield Finding("ok", ABOUT, f"{RIGHT} {right}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _place() -> Path | None:
    """The file of the module."""
    try:
        found = importlib.util.find_spec(ABOUT)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin else None


def _owner(place: Path) -> str | None:
    """The package that provides the file; of several, the one whose list has its checksum, which was installed last."""
    owners = [name for name in set(metadata.packages_distributions().get(ABOUT, [])) if _lists(name, place)]
    last = [name for name in owners if _checksum(place) in _lists(name, place)]
    return next(iter(sorted(last) or sorted(owners)), None)


def _lists(distribution: str, place: Path) -> list[str]:
    """The checksums under which a package lists a file, "" for a file without one; system packages have no list."""
    files = metadata.files(distribution)
    if files is None:
        return [""]
    listed = [file for file in files if file.name == place.name]
    ours = [file for file in listed if Path(str(file.locate())).resolve() == place.resolve()]
    return [file.hash.value if file.hash else "" for file in ours]


def _checksum(place: Path) -> str:
    """The checksum of a file, written as in a package's list of files."""
    digest = hashlib.sha256(place.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")
