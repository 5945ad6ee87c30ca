"""The state of Keras callbacks in a checkpoint: of Keras' own classes, and of classes with get_state and set_state."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..cluster.exchange import Exchange
from ..common.training_errors import TrainerError
from ..common.versions import replaced

# What changes in Keras' own callbacks while they train (3.15). The learning rate, which LearningRateScheduler and
# ReduceLROnPlateau set, is a variable of the optimizer. TerminateOnNaN, LambdaCallback, RemoteMonitor and ProgbarLogger
# keep nothing that a training needs, and BackupAndRestore is refused.
_OF_SAVING = ("best", "_batches_seen_since_last_saving", "_last_batch_seen")
ATTRIBUTES: dict[type[keras.callbacks.Callback], tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch", "best_weights"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "cooldown_counter", "best"),
    keras.callbacks.ModelCheckpoint: _OF_SAVING,
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
    keras.callbacks.History: ("epoch", "history"),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
}
if hasattr(keras.callbacks, "OrbaxCheckpoint"):  # not in all versions; not tried, as it needs orbax-checkpoint
    ATTRIBUTES[keras.callbacks.OrbaxCheckpoint] = (*_OF_SAVING, "_total_batches_seen")

PAIR = ("get_state", "set_state")


def require_pair(callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Raise TrainerError if a callback has only one of the methods get_state and set_state."""
    for callback in callbacks:
        given = [name for name in PAIR if callable(getattr(callback, name, None))]
        if len(given) == 1:
            (lacking,) = set(PAIR) - set(given)
            what = f"the callback {_name(callback)} has {given[0]}, but no {lacking}"
            raise TrainerError("user_code", what, f"give it {lacking} too")


def gives_state(callback: keras.callbacks.Callback) -> bool:
    return all(callable(getattr(callback, name, None)) for name in PAIR)


def state_of(callbacks: Sequence[keras.callbacks.Callback], arrays: Arrays) -> list[Any]:
    """Return the states of the callbacks for JSON, with their arrays in `arrays`. Raises TrainerError."""
    states = []
    for callback in callbacks:
        names = next((names for kind, names in ATTRIBUTES.items() if isinstance(callback, kind)), ())
        values = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
        if isinstance(callback, keras.callbacks.CSVLogger):
            path = _local_file(callback)
            length = path.stat().st_size if path is not None else None
            has_header = callback.writer is not None or not callback.append_header
            checksum = _checksum(path, length)
            values["csv"] = {"bytes": length, "crc32": checksum, "keys": callback.keys, "has_header": has_header}
        state = {"class": _name(callback), "keras": arrays.pack(values)}
        if gives_state(callback):
            given, hint = callback.get_state(), f"a state may hold {ALLOWED}"
            what = f"get_state of the callback {_name(callback)} returns"
            if not isinstance(given, dict):
                raise TrainerError("user_code", f"{what} {type(given).__name__}, not a dict", hint)
            try:
                state["own"] = arrays.pack(given, "state")
            except NotPackable as fault:
                raise TrainerError("user_code", f"{what} {fault}, which no checkpoint can hold", hint) from None
        states.append(state)
    return states


def restore(callbacks: Sequence[keras.callbacks.Callback], states: Sequence[Any], arrays: Arrays) -> list[str]:
    """Set the states in callbacks of the same classes, in the order of each class, after their on_train_begin, which
    resets them. Returns a text for each callback that could not be restored completely.
    """
    left, texts = list(states), list[str]()
    for callback in callbacks:
        state = next((state for state in left if state["class"] == _name(callback)), None)
        if state is None:
            texts.append(f"{_name(callback)} starts again: the checkpoint has no state of it")
            csv = isinstance(callback, keras.callbacks.CSVLogger) and not callback.append
            if csv and (path := _local_file(callback)):
                os.truncate(path, 0)
                callback.append_header = True
            continue
        left.remove(state)
        for name, value in arrays.unpack(state["keras"]).items():
            if name == "csv":
                texts += _continue_csv(callback, value)
            else:
                setattr(callback, name, value)
        keeps_best = isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_best_only
        if keeps_best and callback.best is not None:
            saved = callback.filepath
            if "{" not in saved and "://" not in saved and not os.path.exists(saved):
                texts.append(f"{saved}, in which {_name(callback)} has saved the best model, is missing")
        if "own" in state and gives_state(callback):
            callback.set_state(arrays.unpack(state["own"]))
    return texts


def _name(callback: keras.callbacks.Callback) -> str:
    return type(callback).__name__


# ---- CSVLogger ------------------------------------------------------------------------------------


def begin_training(callback: keras.callbacks.Callback, logs: dict[str, Any], resumed: bool) -> None:
    """Call on_train_begin of the callback. The file of a CSVLogger of a `resumed` training is not emptied."""
    keeps_rows = resumed and isinstance(callback, keras.callbacks.CSVLogger)
    with replaced(callback, append=True) if keeps_rows else contextlib.nullcontext():
        callback.on_train_begin(logs)


def _continue_csv(callback: keras.callbacks.CSVLogger, state: dict[str, Any]) -> list[str]:
    """Cut off the rows after the checkpoint. Return a text if the file is not the one that was written."""
    path = _local_file(callback)
    callback.keys, callback.append_header = state["keys"], not state["has_header"]
    if path is None:
        return [f"{callback.filename} is not a local file: rows of epochs that are trained again are in it twice"]
    length = state["bytes"]  # None if the file was missing
    if length is not None and path.stat().st_size >= length and _checksum(path, length) == state["crc32"]:
        os.truncate(path, length)
        return []
    callback.append_header = not path.stat().st_size
    return [f"{callback.filename} has changed since the checkpoint: rows are appended to it"]


def _local_file(callback: keras.callbacks.CSVLogger) -> Path | None:
    path = Path(callback.filename)
    return path if "://" not in str(callback.filename) and path.is_file() else None


def _checksum(path: Path | None, length: int | None) -> int | None:
    if path is None or length is None:
        return None
    with path.open("rb") as stream:
        return zlib.crc32(stream.read(length))


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
        """Return the value, which lies at `place`, with digests in place of its arrays. Raises NotPackable."""
        if type(value) in _PLAIN:
            return value
        at = f" in {place}" if place else ""
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            if array.dtype.kind not in _KINDS and not _has_name(array.dtype):
                raise NotPackable(f"an array of {array.dtype}{at}")
            digest = hashlib.sha256(f"{_type_of(array)} {array.shape} ".encode())
            digest.update(_bytes_of(array))
            self.by_digest[digest.hexdigest()] = array
            return {"array": digest.hexdigest(), "scalar": isinstance(value, np.generic)}
        if type(value) in (list, tuple):
            items = [self.pack(item, f"{place}[{index}]") for index, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            if odd := [key for key in value if type(key) is not str]:
                raise NotPackable(f"the key {odd[0]!r}{at}")
            return {"dict": {key: self.pack(item, f"{place}[{key!r}]") for key, item in value.items()}}
        raise NotPackable(f"a value of type {type(value).__name__}{at}")

    def unpack(self, packed: Any) -> Any:
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
    begins = 8 + int.from_bytes(data[:8], "big")
    head: Mapping[str, Any] = json.loads(data[8:begins])
    arrays = Arrays()
    _take_all(arrays, head["arrays"], memoryview(data)[begins:])
    return list(head["workers"]), arrays


def _listed(arrays: Arrays) -> list[Any]:
    return [[digest, _type_of(array), list(array.shape)] for digest, array in arrays.by_digest.items()]


def _take_all(arrays: Arrays, listed: Sequence[Any], data: memoryview) -> None:
    begins = 0
    for digest, kind, shape in listed:
        dtype = np.dtype(kind if kind[0] in "<>|=" else tf.as_dtype(kind).as_numpy_dtype)
        count = math.prod(shape)
        arrays.by_digest[digest] = np.frombuffer(data, dtype, count, begins).reshape(shape)
        begins += count * dtype.itemsize


# ---- of several machines --------------------------------------------------------------------------


def gathered(value: Any, arrays: Arrays, exchange: Exchange) -> tuple[list[Any], Arrays]:
    """Return the packed value of every worker, and all arrays. All workers call this with their own. An array that
    an earlier worker has too, such as the best weights, is not exchanged.
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
