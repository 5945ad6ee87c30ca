"""Checks the value that a user's function returned: model, data and more. Errors say what to return instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...units import counted
from . import fit_arguments
from .fit_arguments import NO_ARGUMENTS, FitArguments
from .iterables.recognised import passes_of
from .streams import of_numpy
from .user_code import UserError, contains_none

RETURN = "return (model, train), (model, train, validation), or a dict with model, train and what goes with them"
DATA = "(x, y) arrays, x alone, a tf.data.Dataset, a keras.utils.PyDataset, or a generator or loader of batches"
KERAS_3 = "build it from `import keras`, or from tf.keras without TF_USE_LEGACY_KERAS=1 in the environment"


@dataclass(frozen=True)
class Returned:
    """The parts that the user's function returned, named as in the dict that it returns (docs/own-code.md). None: not
    returned.

    `mapped` says that a map was given, even if the map is None. The data sets are then not batched yet. `fit` has the
    arguments for Keras' fit.
    """

    model: keras.Model
    train: Any
    validation: Any = None
    map: Callable[..., Any] | None = None
    validation_map: Callable[..., Any] | None = None
    augment: Callable[..., Any] | None = None
    loss: Any = None
    metrics: Any = None
    optimizer: Any = None
    callbacks: Sequence[keras.callbacks.Callback] = ()
    samples: int | None = None
    validation_samples: int | None = None
    mapped: bool = False
    fit: FitArguments = NO_ARGUMENTS


KEYS = tuple(field.name for field in fields(Returned) if field.name not in ("mapped", "fit"))


def checked(returned: Any, function: str) -> Returned:
    """Return the parts of `returned`, the value of the user's function named `function`, after checking them. Raises
    UserError.
    """
    given = _as_dict(returned, function)
    arguments = fit_arguments.taken(given)
    for key in given:
        if key not in KEYS:
            valid = (*KEYS, *fit_arguments.KEYS)
            near = difflib.get_close_matches(str(key), valid, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the known keys are {', '.join(valid)}"
            raise UserError(f"{function} returned a dict with the unknown key {key!r}", hint)
    for key in ("model", "train"):
        if given.get(key) is None:
            raise UserError(f"{function} returned no {key}", RETURN)
    if _is_of_keras_2(given["model"]):
        raise UserError(f"model is {_kind(given['model'])} of Keras 2 (tf_keras); gputui trains Keras 3", KERAS_3)
    if not isinstance(given["model"], keras.Model):
        raise UserError(f"model is {_kind(given['model'])}, not a keras.Model", RETURN)
    for key in ("train", "validation"):
        given[key] = of_numpy(given.get(key))
        _check_data(given[key], key)
    _check_targets(given["train"], given.get("validation"))
    for key in ("map", "validation_map", "augment"):
        if given.get(key) is not None and not callable(given[key]):
            raise UserError(f"{key} is {_kind(given[key])}, not a function", "it gets one sample, as in Dataset.map")
    _check_compile(given)
    return Returned(
        **given
        | {
            "validation_map": given.get("validation_map", given.get("map")),
            "callbacks": _callbacks(given.get("callbacks")),
            "samples": _count(given, "samples"),
            "validation_samples": _count(given, "validation_samples"),
            "mapped": "map" in given,
            "fit": arguments,
        }
    )


def _as_dict(returned: Any, function: str) -> dict[str, Any]:
    if isinstance(returned, dict):
        return dict(returned)
    if isinstance(returned, tuple | list) and 2 <= len(returned) <= 3:
        return dict(zip(("model", "train", "validation"), returned, strict=False))
    if isinstance(returned, tuple | list):
        raise UserError(f"{function} returned {counted(len(returned), 'values')}", RETURN)
    raise UserError(f"{function} returned {_kind(returned)}", RETURN)


def _check_data(data: Any, key: str) -> None:
    if data is None or isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
        return
    if isinstance(data, tuple | list) and 1 <= len(data) <= 3:
        _check_arrays(tuple(data), key)
        return
    if isinstance(data, dict) or _is_array(data):
        _check_arrays((data,), key)
        return
    if _refused(data) or passes_of(data) is None:
        raise UserError(f"{key} is {_kind(data)}", _refused(data) or f"give {DATA}")


def _refused(data: Any) -> str:
    """Return what to give in place of data that Keras' fit takes, or that looks like a generator, but is not trained
    on. Empty for other data.
    """
    if isinstance(data, keras.layers.Layer):
        return f"give {DATA}"
    names = {kind.__name__ for kind in type(data).__mro__}
    if "DistributedDataset" in names or "DistributedDatasetsFromFunction" in names:
        return "return the tf.data.Dataset itself: strategy.kind distributes it"
    if "DataAdapter" in names:
        return f"an adapter of Keras' own is an internal part of it: give {DATA}"
    return ""


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _check_targets(train: Any, validation: Any) -> None:
    """Raise UserError if train and validation are each a single array or dict, but with different shapes.

    They are then probably x and y of the training data. x alone is allowed, as in fit(x).
    """
    alone = [isinstance(data, dict) or _is_array(data) for data in (train, validation)]
    if all(alone) and _sample_shapes(train) != _sample_shapes(validation):
        raise UserError(
            "train is one array or dict, and validation has another shape: targets must be returned with their inputs",
            f"return (model, (x, y), (x_validation, y_validation)); train is {DATA}",
        )


def _sample_shapes(nest: Any) -> Any:
    return tf.nest.map_structure(lambda array: str(tuple(array.shape[1:])), nest)


def _check_arrays(data: tuple[Any, ...], key: str) -> None:
    """Raise UserError unless the data is (x, y, sample_weight), each an array or a nest of arrays with the same number
    of samples.

    y and sample_weight may be absent or None. `key` is the name of the data in the dict that the user's function
    returned.
    """
    lengths: dict[int, str] = {}
    for name, part in zip(("x", "y", "sample_weight"), data, strict=False):
        for array in tf.nest.flatten(part):
            if array is None and name != "x":
                continue
            if array is None and part is not None:
                raise contains_none(f"x of {key}")
            if hasattr(array, "tocoo"):
                message = f"{name} of {key} is a sparse matrix of SciPy, which cannot be read by sample"
                raise UserError(message, "give .toarray(), or a function that yields batches of its rows")
            if not _is_array(array):
                raise UserError(f"{name} of {key} contains {_kind(array)}, not an array", f"give {DATA}")
            if len(array.shape) == 0:
                raise UserError(f"{name} of {key} contains a single number", "its first axis must be the samples")
            if getattr(array.dtype, "kind", "") == "O":
                raise UserError(
                    f"{name} of {key} is an array of objects", "convert it to numbers or texts of equal shape"
                )
            lengths.setdefault(int(array.shape[0]), name)
    if len(lengths) > 1:
        (a, first), (b, second) = list(lengths.items())[:2]
        has = f"{key} has {counted(a, 'samples')} in {first} and {b} in {second}"
        raise UserError(has, "each sample needs its target")
    if not lengths or 0 in lengths:
        raise UserError(f"{key} has no samples", f"give {DATA}")


def _check_compile(given: dict[str, Any]) -> None:
    model = given["model"]
    both = [key for key in ("loss", "metrics", "optimizer") if given.get(key) is not None]
    if model.compiled and both:
        raise UserError(
            f"the model is already compiled, and {', '.join(both)} is also given",
            "pass it to model.compile, or return the model uncompiled",
        )
    computes = any(_overridden(model, name) for name in ("compute_loss", "train_step"))
    if not model.compiled and given.get("loss") is None and not computes:
        raise UserError("the model is not compiled and no loss is given", "compile it, or return a dict with a loss")


def _overridden(model: keras.Model, name: str) -> bool:
    return getattr(type(model), name) is not getattr(keras.Model, name)


def _callbacks(value: Any) -> list[keras.callbacks.Callback]:
    callbacks = [value] if isinstance(value, keras.callbacks.Callback) else list(value or ())
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise UserError(f"callbacks contains {_kind(callback)}", "give a list of keras.callbacks.Callback")
    return callbacks


def _count(given: dict[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UserError(f"{key} is {value!r}", "give a whole number from 1")
    return int(value)


def _is_of_keras_2(value: Any) -> bool:
    """Return True if the value is an object of tf_keras, which replaces tf.keras with TF_USE_LEGACY_KERAS=1."""
    return any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(value).__mro__)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing (None)"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
