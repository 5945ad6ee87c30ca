"""`gputui prepare` as a user runs it: killed, stopped and started again; its files are read without TensorFlow."""

from __future__ import annotations

import hashlib
import json
import signal
import struct
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import gputui, opened, until

SIDE, CLASSES = 8, ("cat", "dog")


def png(pixels: bytes) -> bytes:
    """SIDE x SIDE pixels of RGB as PNG."""
    rows = b"".join(b"\0" + pixels[at : at + 3 * SIDE] for at in range(0, len(pixels), 3 * SIDE))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    made = (
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part)) for name, part in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def class_folders(root: Path, number: int, broken: int) -> set[tuple[bytes, int]]:
    """Write so many images, each with pixels of its own, and broken ones. Return pixels and label of the good ones."""
    good = set()
    for index in range(number + broken):
        path = root / CLASSES[index % 2] / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = hashlib.sha512(str(index).encode()).digest() * 3
        if index < number:
            good.add((pixels, index % 2))
        path.write_bytes(png(pixels) if index < number else png(pixels)[:60])
    return good


def records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        yield content[at + 12 : at + 12 + length]
        at += 16 + length


def sample_in(record: bytes) -> tuple[bytes, int]:
    """The features image, which is a field of 192 bytes, and label, which is the last byte of a serialised Example."""
    at = record.index(b"\n\xc0\x01")
    return record[at + 3 : at + 3 + 3 * SIDE * SIDE], record[-1]


def manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"written": []}
    return content


def check(folder: Path, good: set[tuple[bytes, int]], broken: int) -> None:
    """The manifest is right, and each good image is there exactly once."""
    listed = manifest(folder)
    assert listed["complete"]
    assert listed["samples"]["train"] + listed["samples"]["validation"] == len(good)
    assert listed["samples"]["broken"] == broken == sum(len(each["broken"]) for each in listed["written"])
    assert {path.name for path in folder.glob("*.tfrecord")} == {each["file"] for each in listed["written"]}
    seen: Counter[tuple[bytes, int]] = Counter()
    for each in listed["written"]:
        path = folder / each["file"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == each["sha256"]
        stored = [sample_in(record) for record in records(path)]
        assert len(stored) == each["samples"]
        seen.update(stored)
    assert seen == Counter(good)


@pytest.mark.slow
def test_a_preparation_that_is_stopped_and_killed_goes_on_with_the_next_file(tmp_path: Path) -> None:
    good = class_folders(tmp_path / "images", 190, 10)
    folder = tmp_path / "ready"
    settings = (f"data=images:{tmp_path}/images", f"shape=[{SIDE}, {SIDE}, 3]")
    given = [word for setting in settings for word in ("--set", setting)]
    arguments = ["prepare", "--preset", "quickstart", *given, "-o", str(folder), "--shards", "90"]

    def interrupted(number: int, files: int) -> subprocess.CompletedProcess[str]:
        process = opened(*arguments)
        until(lambda: len(manifest(folder)["written"]) >= files, every=0.005)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, errors)

    stopped = interrupted(signal.SIGTERM, 3)
    assert stopped.returncode == 130, stopped
    assert "files are complete; the same command goes on" in stopped.stderr
    assert list(folder.glob(".*.part")) == []
    first = manifest(folder)["written"][0]
    interrupted(signal.SIGKILL, len(manifest(folder)["written"]) + 3)
    assert not manifest(folder)["complete"]

    refused = gputui(*arguments, "--dtype", "float16")
    assert refused.returncode == 2
    assert "begun with other settings: dtype is float16, and was not given" in refused.stderr
    done = gputui(*arguments, "--workers", "2", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout) == manifest(folder)
    assert manifest(folder)["written"][0] == first
    check(folder, good, 10)
    (folder / "00001-validation.tfrecord").write_bytes(b"")
    assert gputui(*arguments).returncode == 0
    check(folder, good, 10)
