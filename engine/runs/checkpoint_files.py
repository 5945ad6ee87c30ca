"""Finds a run's checkpoints, and checks without TensorFlow whether they are intact: a manifest has the sizes and
checksums of TensorFlow's files. In a checkpoint without one, of an older gputui, no file may be missing or empty.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files.writing import sync, write_atomically

PREFIX = "state"  # suffixes of TensorFlow's files
MANIFEST = "manifest.json"
_NAME = re.compile(r"step-([0-9]{10})")
_SHARD = re.compile(rf"{PREFIX}\.data-([0-9]{{5}})-of-([0-9]{{5}})")
_BLOCK_BYTES = 1 << 20
_NAMED = 3  # checkpoints in a message


class Damage(Exception):
    """A checkpoint cannot be used. The text is the reason in a few words."""


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:010d}"


def steps_in(folder: Path | str) -> list[int]:
    """Of the entries that are named like a checkpoint, unverified, the highest first; none if unreadable."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)


def whole_step(folder: Path) -> int | None:
    """The newest with an intact checkpoint, None without any. Raises Damage if all are damaged."""
    reasons: dict[int, str] = {}
    for step in steps_in(folder):
        try:
            verify(folder, step)
            return step
        except Damage as damage:
            reasons[step] = f"is damaged ({damage})"
    if reasons:
        raise Damage(describe(reasons))
    return None


def describe(reasons: Mapping[int, str]) -> str:
    """One text for the checkpoints that cannot be used, with the reasons (by step); three are named."""
    first = "; ".join(f"checkpoint of step {step} {why}" for step, why in list(reasons.items())[:_NAMED])
    return f"{first}; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else first


def seal(draft: Path, step: int) -> None:
    """Write the manifest of a finished checkpoint in `draft`, and wait for the disk. Raises OSError."""
    files = {}
    for path in sorted(draft.iterdir()):
        files[path.name] = {"bytes": path.stat().st_size, "crc32": _checksum(path)}
        sync(path)
    write_atomically(draft / MANIFEST, json.dumps({"step": step, "files": files}, indent=1) + "\n")


def verify(folder: Path, step: int) -> bool:
    """Damage if it is not intact. False without a manifest: its files are there, and not empty."""
    path = path_of(folder, step)
    try:
        if not path.is_dir():
            raise Damage("it is not a folder")
        if not (path / MANIFEST).exists():
            shards = [match for each in os.listdir(path) if (match := _SHARD.fullmatch(each))]
            count = int(shards[0][2]) if shards else 1
            for name in (f"{PREFIX}.index", *(f"{PREFIX}.data-{number:05d}-of-{count:05d}" for number in range(count))):
                if not (path / name).is_file():
                    raise Damage(f"{name} is missing")
                if not (path / name).stat().st_size:
                    raise Damage(f"{name} is empty")
            return False
        manifest = _manifest(path)
        if manifest["step"] != step:
            raise Damage(f"it belongs to step {manifest['step']}")
        for name, facts in manifest["files"].items():
            if not (path / name).is_file():
                raise Damage(f"{name} is missing")
            size = (path / name).stat().st_size
            if size != facts["bytes"]:
                raise Damage(f"{name} has {size} of {facts['bytes']} bytes")
        for name, facts in manifest["files"].items():
            if _checksum(path / name) != facts["crc32"]:
                raise Damage(f"the checksum of {name} does not match")
        return True
    except OSError as fault:
        raise Damage(f"it cannot be read: {fault.strerror or fault}") from None


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        is_valid = isinstance(manifest["step"], int) and f"{PREFIX}.index" in manifest["files"]
        if is_valid and all(
            os.path.basename(name) == name and isinstance(facts["bytes"], int) and isinstance(facts["crc32"], int)
            for name, facts in manifest["files"].items()
        ):
            return dict(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise Damage(f"{MANIFEST} is damaged")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
