"""Files of TensorBoard's events, written without TensorFlow and TensorBoard. A file is a sequence of records (TFRecord:
length, checksum of the length, data, checksum of the data), each an `Event` in the format of Protocol Buffers. The
numbers of the fields are those of event.proto, summary.proto and tensor.proto.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Mapping, Sequence

from ..runs.history import about

_DT_STRING = 7  # TensorFlow's number of the type
_START = 1  # SessionLog.START
_LARGEST = 3.4028234e38  # of a float of 32 bits
_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed


def header(t: float) -> bytes:
    """The record with which a file begins."""
    return _record(_event(t, 0) + _text(3, "brain.Event:2"))


def scalars(t: float, step: int, values: Mapping[str, float], described: set[str]) -> bytes:
    """A figure that is not in `described` gets its description, which TensorBoard reads from a tag's first value."""
    parts = []
    for name, value in values.items():
        meta = b"" if name in described else _bytes(1, _text(1, "scalars")) + _text(3, about(name))
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
