"""Recognises data that is read by iterating over it, by the names of its classes, as Keras does it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .kinds import Anew, Once, Passes, named
from .torch_loader import TorchPasses

_NOT_DATA = (str, bytes, dict, list, tuple, set, frozenset, tf.data.Dataset, keras.utils.PyDataset)


def passes_of(data: Any, role: str = "train") -> Passes | None:
    """Return the passes over `data` for `role`, which is `train` or `validation`.

    None if it is not read by iterating over it: arrays, dicts, data sets, models.
    """
    if isinstance(data, _NOT_DATA) or _is_array(data):
        return None
    if is_torch(data):
        return TorchPasses(data, same_each_time=role == "validation")
    if is_grain(data):
        return Anew(lambda: iter(data), f"a Grain {type(data).__name__}", _length(data), stateful=True)
    if hasattr(data, "__next__"):
        return Once(data)
    if hasattr(data, "__iter__"):
        return Anew(lambda: iter(data), named(data), _length(data))
    return Anew(data, f"the function {getattr(data, '__name__', type(data).__name__)}") if callable(data) else None


def _is_array(data: Any) -> bool:
    return hasattr(data, "shape") or hasattr(data, "__array__")


def is_grain(data: Any) -> bool:
    return _is_of(data, ("MapDataset", "IterDataset", "DataLoader"), "grain")


def is_torch(data: Any) -> bool:
    return _is_of(data, ("DataLoader",), "torch")


def _is_of(data: Any, names: tuple[str, ...], package: str) -> bool:
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] == package for kind in type(data).__mro__)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, AttributeError, NotImplementedError, OverflowError):
        return None
