"""The target `tensorboard`: one file of TensorBoard's events in the folder `tensorboard` of the run, written without
TensorFlow and TensorBoard. A file is a sequence of records (TFRecord: length, checksum of the length, data, checksum of
the data), each an `Event` in the format of Protocol Buffers, with the fields of event.proto and what it imports.
"""

from __future__ import annotations

import functools
import os
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..runs import Run
from ..runs.events import Outcome
from ..runs.history import about as about_column
from .target import AboutRun, Offsets, Point, PointMaker, about_run, read_batch

FOLDER = "tensorboard"  # in a run folder
_DT_STRING = 7  # TensorFlow's number of the type
_START = 1  # SessionLog.START
_LARGEST = 3.4028234e38  # of a float of 32 bits
_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed


class TensorBoard:
    """Appends to a file. `remote` has its name, its length after the last batch, and the figures that are described.
    What a killed follower has written after that length is written over in the same way.
    """

    def __init__(self, remote: dict[str, Any], folder: Path | None = None) -> None:
        self.remote, self.where = remote, ""
        self._folder = folder
        self._about: AboutRun | None = None

    def open(self, about: AboutRun, _key: str) -> int | None:
        """Begin the file again if it is shorter than noted, as after a crash of the machine."""
        self._about = about
        self.where = str(self._folder or about.folder / FOLDER)
        if not self.remote:
            return 0
        if not self.path.exists() or self.path.stat().st_size < self.remote["bytes"]:
            self.remote.clear()
            return 0
        return None

    def write(self, points: Sequence[Point]) -> None:
        assert self._about is not None
        Path(self.where).mkdir(parents=True, exist_ok=True)
        if not self.remote:
            name = f"events.out.tfevents.{int(points[0].t)}.gputui.{self._about.id}"  # which TensorBoard recognizes
            self.remote.update(file=name, bytes=0, described=[])
        described = set(self.remote["described"])
        with self.path.open("r+b" if self.remote["bytes"] else "wb") as stream:
            stream.seek(self.remote["bytes"])
            if not stream.tell():
                t, options = points[0].t, self._about.options
                title = f"**{self._about.title}** {' '.join(f'#{tag}' for tag in self._about.tags)}"
                rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in options.items()]
                table = [title, "", self._about.note, "", "| option | value |", "| --- | --- |", *rows]
                stream.write(header(t) + text(t, "options", "\n".join(table)))
            for point in points:
                if point.goes_back_to is not None:
                    stream.write(goes_back_to(point.t, point.goes_back_to))
                stream.write(scalars(point.t, point.step, point.figures, described))
            stream.truncate()
            stream.flush()
            self.remote.update(bytes=stream.tell(), described=sorted(described))

    @property
    def path(self) -> Path:
        """There is one as soon as a point is written."""
        return Path(self.where, os.path.basename(self.remote["file"]))

    def end(self, _about: AboutRun, _outcome: Outcome) -> None:
        """The file needs no end."""


def write_all(run: Run, folder: Path) -> Path | None:
    """Write one file in `folder`. Without figures return None, and make no folder. Raises OSError."""
    target, maker = TensorBoard({}, folder), PointMaker()
    target.open(about_run(run), "")
    offsets: Offsets = {}
    while (batch := read_batch(run.path, offsets)).ends != offsets:
        if points := list(maker.points(batch.events)):
            target.write(points)
        offsets = batch.ends
    return target.path if target.remote else None


# ---- records ---------------------------------------------------------------------------------------


def header(t: float) -> bytes:
    """The record with which a file begins."""
    return _record(_event(t, 0) + _text(3, "brain.Event:2"))


def scalars(t: float, step: int, values: Mapping[str, float], described: set[str]) -> bytes:
    """A figure that is not in `described` gets its description, which TensorBoard reads from a tag's first value."""
    parts = []
    for name, value in values.items():
        meta = b"" if name in described else _bytes(1, _text(1, "scalars")) + _text(3, about_column(name))
        described.add(name)
        figure = struct.pack("<f", max(-_LARGEST, min(_LARGEST, value)))
        parts.append(_bytes(1, _text(1, name) + b"\x15" + figure + (_bytes(9, meta) if meta else b"")))
    return _record(_event(t, step) + _bytes(5, b"".join(parts)))


def text(t: float, name: str, markdown: str) -> bytes:
    """TensorBoard shows it under the tab Text."""
    meta = _bytes(1, _text(1, "text"))
    tensor = _number(1, _DT_STRING) + _bytes(2, b"") + _text(8, markdown)
    return _record(_event(t, 0) + _bytes(5, _bytes(1, _text(1, name) + _bytes(8, tensor) + _bytes(9, meta))))


def goes_back_to(t: float, step: int) -> bytes:
    """TensorBoard forgets the figures after `step`, from which the training continues."""
    return _record(_event(t, step + 1) + _bytes(7, _number(1, _START)))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """RFC 3720, appendix B.4."""
    of_word, crc, even = _of_word(), 0xFFFFFFFF, len(data) & ~1
    for word in struct.unpack(f"<{even // 2}H", data[:even]):
        crc = of_word[(crc ^ word) & 0xFFFF] ^ crc >> 16
    for byte in data[even:]:
        crc = _of_byte()[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@functools.cache
def _of_byte() -> Sequence[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0) for crc in table]
    return table


@functools.cache
def _of_word() -> Sequence[int]:
    """Return how each two bytes change the checksum, which needs half as many steps as byte by byte."""
    of_byte = _of_byte()
    return array(
        "I", [of_byte[(first := of_byte[word & 0xFF] ^ word >> 8) & 0xFF] ^ first >> 8 for word in range(65536)]
    )


# ---- Protocol Buffers ---------------------------------------------------------------------------


def _event(t: float, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", t) + _number(2, step)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
