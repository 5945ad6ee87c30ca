"""Which installed package the module `pynvml` comes from: more than one ships it, only nvidia-ml-py the right one."""

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
    """That the right module is there, and is not shadowed or slowed down by an outdated package."""
    right, old = _version(RIGHT), _version("pynvml")
    place = _place()
    owner = _owner(place) if place else None
    if owner is not None and owner != RIGHT:
        what = f"the module pynvml is that of {owner} {_version(owner)}, not of {RIGHT}: readings are old or wrong"
        yield Finding("warning", ABOUT, what, f"pip uninstall {owner}; pip install --force-reinstall {RIGHT}")
    elif right is None or place is None:
        yield Finding("error", ABOUT, f"{RIGHT} is not installed: GPUs cannot be read", f"pip install {RIGHT}")
    elif owner is None:
        what = f"the module pynvml is not that of {RIGHT}, but {place}: readings may be wrong"
        yield Finding("warning", ABOUT, what, "take it out of the way (PYTHONPATH), or rename it")
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
    """The file of the module."""
    try:
        found = importlib.util.find_spec(ABOUT)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found and found.origin else None


def _owner(place: Path) -> str | None:
    """The package that has brought the file; of several, the one whose list has its checksum: the last installed."""
    owners = [name for name in set(metadata.packages_distributions().get(ABOUT, [])) if _lists(name, place)]
    last = [name for name in owners if _checksum(place) in _lists(name, place)]
    return next(iter(sorted(last) or sorted(owners)), None)


def _lists(distribution: str, place: Path) -> list[str]:
    """The checksums, "" for none, under which a package lists a file; a distribution's own package has no list."""
    files = metadata.files(distribution)
    if files is None:
        return [""]
    listed = [file for file in files if file.name == place.name]
    ours = [file for file in listed if Path(str(file.locate())).resolve() == place.resolve()]
    return [file.hash.value if file.hash else "" for file in ours]


def _checksum(place: Path) -> str:
    """As it stands in a package's list."""
    digest = hashlib.sha256(place.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")
