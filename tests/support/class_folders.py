"""Folders of small images, each with pixels of its own, and whether prepared data has each of them exactly once."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLASSES = ("cat", "dog")
Good = set[tuple[bytes, int]]  # the hash of the pixels and the label of each image that is not broken


def png(pixels: bytes, side: int) -> bytes:
    """RGB pixels of a square as PNG."""
    rows = b"".join(b"\0" + pixels[at : at + 3 * side] for at in range(0, len(pixels), 3 * side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part)) for name, part in parts
    )


def class_folders(root: Path, good: int, broken: int, side: int = 8) -> Good:
    """Write so many good and broken images, mixed. Return the good ones."""
    kept: Good = set()
    bad = set(random.Random(0).sample(range(good + broken), broken))
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for index in range(label, good + broken, len(CLASSES)):
            pixels = random.Random(index).randbytes(3 * side * side)
            encoded = png(pixels, side)
            if index not in bad:
                kept.add((hashlib.sha256(pixels).digest(), label))
            (root / name / f"{index:06}.png").write_bytes(encoded[: len(encoded) // 2] if index in bad else encoded)
    return kept


def _records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        yield content[at + 12 : at + 12 + length]
        at += 16 + length


def _sample(record: bytes, side: int) -> tuple[bytes, int]:
    """The features of a serialised Example: the hash of image, a field of that length, and label, the last byte."""
    length, field = 3 * side * side, b"\n"
    while length > 127:
        field, length = field + bytes([length & 127 | 128]), length >> 7
    at = record.index(field + bytes([length])) + len(field) + 1
    return hashlib.sha256(record[at : at + 3 * side * side]).digest(), record[-1]


def manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"written": [], "complete": False}
    return content


def check(folder: Path, good: Good, broken: int, side: int = 8) -> None:
    """The manifest is right, and each good image is there exactly once."""
    listed = manifest(folder)
    assert listed["complete"]
    assert listed["samples"]["train"] + listed["samples"]["validation"] == len(good)
    named = {each["sample"] for part in listed["written"] for each in part["broken"]}
    assert listed["samples"]["broken"] == broken == len(named)
    assert sorted(path.name for path in folder.glob("*.tfrecord")) == [each["file"] for each in listed["written"]]
    assert list(folder.glob(".*.part")) == []
    seen: Counter[tuple[bytes, int]] = Counter()
    for each in listed["written"]:
        path = folder / each["file"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == each["sha256"]
        stored = [_sample(record, side) for record in _records(path)]
        assert len(stored) == each["samples"]
        seen.update(stored)
    assert seen == Counter(good)
