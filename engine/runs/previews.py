"""The files of a run's previews, `previews/epoch-0003/NAME.png`, .txt or .json: what the function `preview` of a user's
code has shown after each epoch. A PNG is written and read here without a library: 8 bits, RGB, no filter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files.reading import open_regular

FOLDER = "previews"
MOST_SIDE = 512  # pixels of a picture's width and height
MOST_BYTES = 2 * 1024**2  # of a file
_EPOCH = re.compile(r"epoch-(\d+)")
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Bitmap:
    width: int
    height: int
    rgb: bytes  # of all pixels, row by row


@dataclass(frozen=True)
class Matrix:
    """Counts of samples by their class (row) and the predicted class (column), for as many classes as names."""

    counts: list[list[int]]
    classes: list[str]


Shown = Bitmap | Matrix | str


def write(run: Path, epoch: int, files: Mapping[str, bytes]) -> None:
    """Write the previews of an epoch, counted from 1, in place of those that it has. Raises OSError."""
    folder = run / FOLDER
    draft, final = folder / ".draft", folder / f"epoch-{epoch:04d}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for name, content in files.items():
        (draft / name).write_bytes(content)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(draft, final)


def are_in(run: Path) -> bool:
    return (run / FOLDER).is_dir()


def listed(run: Path) -> dict[int, dict[str, Path]]:
    """Return the files of each epoch, counted from 1, by their names without the ending; empty if there are none."""
    epochs: dict[int, dict[str, Path]] = {}
    for folder in (run / FOLDER).glob("epoch-*"):
        if number := _EPOCH.fullmatch(folder.name):
            epochs[int(number[1])] = {file.stem: file for file in sorted(folder.glob("*.*"))}
    return dict(sorted(epochs.items()))


def read(file: Path) -> Shown:
    """Raises OSError, or ValueError if the file is damaged."""
    with open_regular(file) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("the file is too large")
    if file.suffix == ".txt":
        return content.decode(errors="replace")
    return _unpacked(content) if file.suffix == ".png" else _matrix(json.loads(content))


def as_png(picture: Bitmap) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    line = 3 * picture.width
    lines = b"".join(b"\0" + picture.rgb[line * y : line * (y + 1)] for y in range(picture.height))
    head = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    return _PNG + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _unpacked(content: bytes) -> Bitmap:
    if content[:16] != _PNG + struct.pack(">I", 13) + b"IHDR" or len(content) < 41:
        raise ValueError("the file is no PNG of gputui's")
    width, height = struct.unpack(">II", content[16:24])
    (size,) = struct.unpack(">I", content[33:37])
    if not 0 < width <= MOST_SIDE or not 0 < height <= MOST_SIDE:
        raise ValueError("the picture is too large")
    line = 3 * width + 1
    try:
        lines = zlib.decompressobj().decompress(content[41 : 41 + size], line * height)
    except zlib.error as fault:
        raise ValueError(str(fault)) from None
    rgb = b"".join(lines[line * y + 1 : line * (y + 1)] for y in range(height))
    if len(rgb) != 3 * width * height:
        raise ValueError("the file is no PNG of gputui's, or incomplete")
    return Bitmap(width, height, rgb)


def _matrix(content: object) -> Matrix:
    try:
        counts = [[int(count) for count in row] for row in content["counts"]]  # type: ignore[index]
        classes = [str(name) for name in content["classes"]]  # type: ignore[index]
    except (KeyError, TypeError) as fault:
        raise ValueError("the file holds no counts") from fault
    if any(len(row) != len(counts) for row in counts) or len(classes) != len(counts):
        raise ValueError("the counts are not square")
    return Matrix(counts, classes)
