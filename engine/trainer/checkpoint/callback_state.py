"""The state of Keras callbacks in a checkpoint: of Keras' own classes, and of classes with get_state and set_state.

`state_of` gives the state of any list of callbacks, and `restore` sets it in callbacks of a resumed training, after
their on_train_begin, which resets them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from ..common.training_errors import TrainerError
from .packed import ALLOWED, Arrays, NotPackable

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
            raise TrainerError(
                "user_code",
                f"the callback {_name(callback)} has {given[0]}, but no {lacking}",
                f"give it {lacking} too",
            )


def gives_state(callback: keras.callbacks.Callback) -> bool:
    """Return True if the callback has the methods get_state and set_state."""
    return all(callable(getattr(callback, name, None)) for name in PAIR)


def state_of(callbacks: Sequence[keras.callbacks.Callback], arrays: Arrays) -> list[Any]:
    """Return the states of the callbacks as values for JSON. Their arrays are added to `arrays`.

    Raises TrainerError if get_state of a callback returns a value that cannot be saved.
    """
    return [_state_of(callback, arrays) for callback in callbacks]


def _state_of(callback: keras.callbacks.Callback, arrays: Arrays) -> dict[str, Any]:
    state: dict[str, Any] = {"class": _name(callback), "keras": arrays.pack(_of_keras(callback))}
    if not gives_state(callback):
        return state
    given = callback.get_state()
    hint = f"a state may hold {ALLOWED}"
    if not isinstance(given, dict):
        kind = type(given).__name__
        raise TrainerError("user_code", f"get_state of the callback {_name(callback)} returns {kind}, not a dict", hint)
    try:
        return {**state, "own": arrays.pack(given, "state")}
    except NotPackable as fault:
        what = f"get_state of the callback {_name(callback)} returns {fault}, which no checkpoint can hold"
        raise TrainerError("user_code", what, hint) from None


def _of_keras(callback: keras.callbacks.Callback) -> dict[str, Any]:
    names = next((names for kind, names in ATTRIBUTES.items() if isinstance(callback, kind)), ())
    values = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
    return values | ({"csv": _csv_state(callback)} if isinstance(callback, keras.callbacks.CSVLogger) else {})


def restore(callbacks: Sequence[keras.callbacks.Callback], states: Sequence[Any], arrays: Arrays) -> list[str]:
    """Set the states that `state_of` has returned in callbacks of the same classes, in the order of each class.

    Returns a text for each callback that could not be restored completely, as a clause about it.
    """
    left, texts = list(states), list[str]()
    for callback in callbacks:
        state = next((state for state in left if state["class"] == _name(callback)), None)
        if state is None:
            texts.append(f"{_name(callback)} starts again: the checkpoint has no state of it")
            _begin_csv_again(callback)
            continue
        left.remove(state)
        texts += _set(callback, state, arrays)
    return texts


def _set(callback: keras.callbacks.Callback, state: dict[str, Any], arrays: Arrays) -> list[str]:
    texts = []
    for name, value in arrays.unpack(state["keras"]).items():
        if name == "csv":
            texts += _continue_csv(callback, value)
        else:
            setattr(callback, name, value)
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        texts += _missing_best(callback)
    if "own" in state and gives_state(callback):
        callback.set_state(arrays.unpack(state["own"]))
    return texts


def _missing_best(callback: keras.callbacks.ModelCheckpoint) -> list[str]:
    path = callback.filepath
    if not callback.save_best_only or callback.best is None or "{" in path or "://" in path or os.path.exists(path):
        return []
    return [f"{path}, in which {_name(callback)} has saved the best model, is missing"]


def _name(callback: keras.callbacks.Callback) -> str:
    return type(callback).__name__


# ---- CSVLogger ------------------------------------------------------------------------------------


def begin_training(callback: keras.callbacks.Callback, logs: dict[str, Any], resumed: bool) -> None:
    """Call on_train_begin of the callback. The file of a CSVLogger of a `resumed` training is not emptied."""
    if not resumed or not isinstance(callback, keras.callbacks.CSVLogger):
        callback.on_train_begin(logs)
        return
    appends, callback.append = callback.append, True
    try:
        callback.on_train_begin(logs)
    finally:
        callback.append = appends


def _csv_state(callback: keras.callbacks.CSVLogger) -> dict[str, Any]:
    path = _local_file(callback)
    length = path.stat().st_size if path is not None else None
    has_header = callback.writer is not None or not callback.append_header
    return {"bytes": length, "crc32": _checksum(path, length), "keys": callback.keys, "has_header": has_header}


def _continue_csv(callback: keras.callbacks.CSVLogger, state: dict[str, Any]) -> list[str]:
    """Cut off the rows after the checkpoint, and go on with the same columns. Returns a text if the file is not the one
    that was written.
    """
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


def _begin_csv_again(callback: keras.callbacks.Callback) -> None:
    if isinstance(callback, keras.callbacks.CSVLogger) and not callback.append and (path := _local_file(callback)):
        os.truncate(path, 0)
        callback.append_header = True


def _local_file(callback: keras.callbacks.CSVLogger) -> Path | None:
    path = Path(callback.filename)
    return path if "://" not in str(callback.filename) and path.is_file() else None


def _checksum(path: Path | None, length: int | None) -> int | None:
    """Return the CRC-32 of the first `length` bytes of a file. None if there is no file."""
    if path is None or length is None:
        return None
    with path.open("rb") as stream:
        return zlib.crc32(stream.read(length))
