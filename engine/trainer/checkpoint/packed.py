"""Values of Python and NumPy as one file of a checkpoint: nested lists, tuples and dicts, numbers, text, arrays.

The file holds the length of its head (8 bytes), the head as JSON, then the bytes of all arrays. Each worker of a
training on several machines has one value in it. An array that occurs several times is there once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ..cluster.exchange import Exchange

ALLOWED = "None, numbers, text, NumPy arrays, and lists, tuples and dicts of them whose keys are text"
_PLAIN = (bool, int, float, str, type(None))
_KINDS = "biufcUSmM"  # NumPy's own types; others (bfloat16) have their name in the file


class NotPackable(Exception):
    """A value cannot be saved. The text says what it is, and where it lies: `a set in ['seen']`."""


@dataclass
class Arrays:
    """Arrays by the digest of their type, shape and bytes."""

    by_digest: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def pack(self, value: Any, place: str = "") -> Any:
        """Return the value as one for JSON, in which arrays are replaced by their digests, and take the arrays.

        `place` says where the value lies, for messages. Raises NotPackable.
        """
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.ndarray | np.generic):
            return {"array": self._take(value, place), "scalar": isinstance(value, np.generic)}
        if type(value) is list:
            return [self.pack(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.pack(item, f"{place}[{index}]") for index, item in enumerate(value)]}
        if type(value) is dict:
            if odd := [key for key in value if type(key) is not str]:
                raise NotPackable(f"the key {odd[0]!r}{_at(place)}")
            return {"dict": {key: self.pack(item, f"{place}[{key!r}]") for key, item in value.items()}}
        raise NotPackable(f"a value of type {type(value).__name__}{_at(place)}")

    def _take(self, value: Any, place: str) -> str:
        array = np.asarray(value)
        if array.dtype.kind not in _KINDS and not _has_name(array.dtype):
            raise NotPackable(f"an array of {array.dtype}{_at(place)}")
        digest = hashlib.sha256(f"{_type_of(array)} {array.shape} ".encode())
        digest.update(_bytes_of(array))
        self.by_digest[digest.hexdigest()] = array
        return digest.hexdigest()

    def unpack(self, packed: Any) -> Any:
        """Return the value that `pack` has got."""
        if isinstance(packed, list):
            return [self.unpack(item) for item in packed]
        if not isinstance(packed, dict):
            return packed
        if "dict" in packed:
            return {key: self.unpack(item) for key, item in packed["dict"].items()}
        if "tuple" in packed:
            return tuple(self.unpack(item) for item in packed["tuple"])
        array = self.by_digest[packed["array"]]
        return array[()] if packed["scalar"] else array.copy()


def _at(place: str) -> str:
    return f" in {place}" if place else ""


def _has_name(kind: np.dtype[Any]) -> bool:
    try:
        return np.dtype(tf.as_dtype(kind.name).as_numpy_dtype) == kind
    except TypeError:
        return False


def _type_of(array: np.ndarray[Any, Any]) -> str:
    own = array.dtype.kind in _KINDS and array.dtype.isbuiltin != 2  # 2: of a library, as float8_e5m2 of ml_dtypes
    return array.dtype.str if own else array.dtype.name


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


# ---- files ----------------------------------------------------------------------------------------


def pieces(workers: Sequence[Any], arrays: Arrays) -> Iterator[bytes | memoryview]:
    """Yield the content of a file with the packed value of each worker, and the arrays of all of them."""
    head = json.dumps({"workers": list(workers), "arrays": _listed(arrays)}).encode()
    yield len(head).to_bytes(8, "big")
    yield head
    yield from map(_bytes_of, arrays.by_digest.values())


def read(data: bytes) -> tuple[list[Any], Arrays]:
    """Return the packed value of each worker, and the arrays, of the content of a file."""
    begins = 8 + int.from_bytes(data[:8], "big")
    head: Mapping[str, Any] = json.loads(data[8:begins])
    arrays = Arrays()
    _take_all(arrays, head["arrays"], memoryview(data)[begins:])
    return list(head["workers"]), arrays


def _listed(arrays: Arrays) -> list[Any]:
    return [[digest, _type_of(array), list(array.shape)] for digest, array in arrays.by_digest.items()]


def _take_all(arrays: Arrays, listed: Sequence[Any], data: memoryview) -> None:
    """Add the arrays that are `listed`, whose bytes follow each other in `data`."""
    begins = 0
    for digest, kind, shape in listed:
        dtype = np.dtype(kind if kind[0] in "<>|=" else tf.as_dtype(kind).as_numpy_dtype)
        count = math.prod(shape)
        arrays.by_digest[digest] = np.frombuffer(data, dtype, count, begins).reshape(shape)
        begins += count * dtype.itemsize


# ---- of several machines --------------------------------------------------------------------------


def gathered(value: Any, arrays: Arrays, exchange: Exchange) -> tuple[list[Any], Arrays]:
    """Return the packed value of every worker, and the arrays of all of them.

    All workers call this with their own `value` and `arrays`. An array that an earlier worker has too, such as the best
    weights, is not exchanged.
    """
    heads = [json.loads(head) for head in exchange.of_all(json.dumps([value, _listed(arrays)]).encode())]
    lacking, taken = list[list[Any]](), {digest for digest, *_ in heads[0][1]}
    for _, listed in heads:  # of each worker, the arrays that no earlier one has
        lacking.append([entry for entry in listed if entry[0] not in taken])
        taken |= {digest for digest, *_ in listed}
    mine = b"".join(_bytes_of(arrays.by_digest[digest]) for digest, *_ in lacking[exchange.index])
    for entries, data in zip(lacking, exchange.of_all(mine), strict=True):
        _take_all(arrays, entries, memoryview(data))
    return [value for value, _ in heads], arrays
