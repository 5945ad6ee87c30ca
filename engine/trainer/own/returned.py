"""Checks the value that a user's function returned: model, data, arguments for Keras' fit. Errors say what to return
instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...units import counted
from ..data.batches import NO_ARGUMENTS, FitArguments
from .dataset_facts import SAMPLES
from .iterated import named, passes_of
from .streams import of_numpy
from .user_code import UserError, contains_none

OPTIONS = {  # arguments of fit that are options
    "batch_size": "input.batch_size",
    "epochs": "train.epochs",
    "steps_per_epoch": "train.steps_per_epoch",
    "validation_split": "train.validation_split",
    "shuffle": "input.shuffle",
}
FIT_KEYS = ("class_weight", "sample_weight", "initial_epoch", "validation_freq", "validation_steps")


def taken(given: dict[str, Any]) -> FitArguments:
    """Take them out of the dict `given`, to whose train sample_weight is added. Raises UserError."""
    for key in (key for key in given if key in OPTIONS):
        raise UserError(f"{key} is an option, and cannot be returned by build", f"set {OPTIONS[key]} in the preset")
    arguments = {key: given.pop(key, None) for key in FIT_KEYS}
    weights, weight, train = _class_weight(arguments["class_weight"]), arguments["sample_weight"], given.get("train")
    parts = len(train) if isinstance(train, tuple | list) else 0
    if weight is not None and parts == 3:
        raise UserError("sample_weight is given twice, in train and next to it", "remove one of them")
    if weight is not None and parts != 2:
        hint = "give it as the third element: (x, y, sample_weight)"
        raise UserError("sample_weight can be used only with arrays (x, y)", hint)
    if weight is not None:
        train = given["train"] = (*train, weight)  # type: ignore[misc]
    if weights and isinstance(train, tuple | list) and len(train) == 3 and train[2] is not None:
        raise UserError("class_weight and sample_weight are both given", "multiply them into one sample_weight")
    every = arguments["validation_freq"]
    several = isinstance(every, Sequence) and not isinstance(every, str)
    epochs = [_whole(each, "validation_freq", least=1) or 1 for each in (every if several else [every])]
    return FitArguments(
        weights,
        _whole(arguments["initial_epoch"], "initial_epoch", least=0) or 0,
        epochs if several else epochs[0],
        _whole(arguments["validation_steps"], "validation_steps", least=1),
    )


def weigh(batches: tf.data.Dataset, weights: Mapping[int, float]) -> tf.data.Dataset:
    """Add weights as Keras does: (x, y) becomes (x, y, weight of y's class), 1 for a class without one."""
    table = tf.constant([float(weights.get(c, 1.0)) for c in range(max(weights) + 1)])

    def weighed(x: Any, y: Any) -> Any:
        classes = _class_numbers(y)
        in_table = (classes >= 0) & (classes < len(table))
        return x, y, tf.where(in_table, tf.gather(table, tf.where(in_table, classes, 0)), 1.0)

    return batches.map(weighed)


def check_classes(spec: Any) -> None:
    if not isinstance(spec, tuple) or len(spec) != 2 or not isinstance(spec[1], tf.TensorSpec):
        what = "class_weight needs batches of (x, y) with one array of classes as y"
        raise UserError(what, "give a sample_weight as the third element instead")


def _class_numbers(y: Any) -> Any:
    if y.shape.rank is not None and y.shape.rank < 2:
        return tf.cast(tf.round(tf.cast(y, tf.float32)), tf.int32)
    if y.shape[-1] == 1:
        return tf.cast(tf.round(tf.cast(tf.squeeze(y, axis=-1), tf.float32)), tf.int32)
    return tf.argmax(y, axis=-1, output_type=tf.int32)


def _class_weight(value: Any) -> dict[int, float] | None:
    if value is None or value == {}:
        return None
    try:
        weights = {int(key): float(weight) for key, weight in value.items()}
    except (AttributeError, TypeError, ValueError):
        weights = {}
    if not weights or min(weights) < 0:
        hint = "give a dict of class numbers and weights, such as {0: 1.0, 1: 5.0}"
        raise UserError(f"class_weight is {value!r}"[:200], hint)
    return weights


def _whole(value: Any, key: str, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{key} is {value!r}", f"give a whole number from {least}")
    return int(value)


RETURN = "return (model, train), (model, train, validation), or a dict with model, train and what goes with them"
DATA = "(x, y) arrays, x alone, a tf.data.Dataset, a keras.utils.PyDataset, or a generator or loader of batches"
KERAS_3 = "build it from `import keras`, or from tf.keras without TF_USE_LEGACY_KERAS=1 in the environment"


@dataclass(frozen=True)
class Returned:
    """The parts that the user's function returned, named as in its dict (docs/own-code.md). None: not returned."""

    model: keras.Model
    train: Any
    validation: Any = None
    map: Callable[..., Any] | None = None
    test: Any = None
    validation_map: Callable[..., Any] | None = None
    augment: Callable[..., Any] | None = None
    loss: Any = None
    metrics: Any = None
    optimizer: Any = None
    callbacks: Sequence[keras.callbacks.Callback] = ()
    samples: int | None = None
    validation_samples: int | None = None
    test_samples: int | None = None
    preview: Callable[..., Any] | None = None
    mapped: bool = False
    fit: FitArguments = NO_ARGUMENTS


KEYS = tuple(field.name for field in fields(Returned) if field.name not in ("mapped", "fit"))


def checked(returned: Any, function: str) -> Returned:
    """Return the checked parts of the value that the user's function of this name returned. Raises UserError."""
    if isinstance(returned, dict):
        given = dict(returned)
    elif isinstance(returned, tuple | list):
        if not 2 <= len(returned) <= 3:
            raise UserError(f"{function} returned {counted(len(returned), 'values')}", RETURN)
        given = dict(zip(("model", "train", "validation"), returned, strict=False))
    else:
        raise UserError(f"{function} returned {_kind(returned)}", RETURN)
    arguments = taken(given)
    for key in given:
        if key not in KEYS:
            valid = (*KEYS, *FIT_KEYS)
            near = difflib.get_close_matches(str(key), valid, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the known keys are {', '.join(valid)}"
            raise UserError(f"{function} returned a dict with the unknown key {key!r}", hint)
    for key in ("model", "train"):
        if given.get(key) is None:
            raise UserError(f"{function} returned no {key}", RETURN)
    model = given["model"]
    # tf_keras replaces tf.keras with TF_USE_LEGACY_KERAS=1.
    if any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(model).__mro__):
        raise UserError(f"model is {_kind(model)} of Keras 2 (tf_keras); gputui trains Keras 3", KERAS_3)
    if not isinstance(model, keras.Model):
        raise UserError(f"model is {_kind(model)}, not a keras.Model", RETURN)
    for key in ("train", "validation", "test"):
        given[key] = of_numpy(given.get(key))
        _check_data(given[key], key)
    # Two arrays are probably x and y of the training data. x alone is allowed, as in fit(x).
    train, validation = given["train"], given["validation"]
    alone = all(isinstance(data, dict) or _is_array(data) for data in (train, validation))
    if alone and _sample_shapes(train) != _sample_shapes(validation):
        raise UserError(
            "train is one array or dict, and validation has another shape: targets must be returned with their inputs",
            f"return (model, (x, y), (x_validation, y_validation)); train is {DATA}",
        )
    for key in ("map", "validation_map", "augment"):
        if given.get(key) is not None and not callable(given[key]):
            raise UserError(f"{key} is {_kind(given[key])}, not a function", "it gets one sample, as in Dataset.map")
    if given.get("preview") is not None and not callable(given["preview"]):
        what = f"preview is {_kind(given['preview'])}, not a function"
        raise UserError(what, "it gets the model after each epoch, and returns a dict of what to show")
    both = [key for key in ("loss", "metrics", "optimizer") if given.get(key) is not None]
    if model.compiled and both:
        what = f"the model is already compiled, and {', '.join(both)} is also given"
        raise UserError(what, "pass it to model.compile, or return the model uncompiled")
    steps = ("compute_loss", "train_step")
    computes = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in steps)
    if not model.compiled and given.get("loss") is None and not computes:
        raise UserError("the model is not compiled and no loss is given", "compile it, or return a dict with a loss")
    callbacks = given.get("callbacks")
    callbacks = [callbacks] if isinstance(callbacks, keras.callbacks.Callback) else list(callbacks or ())
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise UserError(f"callbacks contains {_kind(callback)}", "give a list of keras.callbacks.Callback")
    return Returned(
        **given
        | {
            "validation_map": given.get("validation_map", given.get("map")),
            "callbacks": callbacks,
            **{key: _whole(given.get(key), key, least=1) for key in SAMPLES.values()},
            "mapped": "map" in given,
            "fit": arguments,
        }
    )


def _check_data(data: Any, key: str) -> None:
    if data is None or isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
        return
    if isinstance(data, tuple | list) and 1 <= len(data) <= 3:
        _check_arrays(tuple(data), key)
    elif isinstance(data, dict) or _is_array(data):
        _check_arrays((data,), key)
    elif _refused(data) or passes_of(data) is None:
        raise UserError(f"{key} is {_kind(data)}", _refused(data) or f"give {DATA}")


def _refused(data: Any) -> str:
    """Return what to give in place of data that Keras' fit takes but is not trained on here, else an empty text."""
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


def _sample_shapes(nest: Any) -> Any:
    return tf.nest.map_structure(lambda array: str(tuple(array.shape[1:])), nest)


def _check_arrays(data: tuple[Any, ...], key: str) -> None:
    """Raise UserError unless the data is (x, y, sample_weight), nests of arrays with the same number of samples."""
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
            of_objects = getattr(array.dtype, "kind", "") == "O"
            if of_objects and not all(isinstance(each, str | bytes) for each in np.ravel(array)):
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


def _kind(value: Any) -> str:
    return "nothing (None)" if value is None else named(value)
