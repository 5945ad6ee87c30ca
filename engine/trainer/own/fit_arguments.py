"""Checks what a user's code returns besides data and would pass to Keras' fit: weights, validation schedule, first
epoch.

A wrong argument is refused with an explanation. Weights become part of the batches, and the training loop uses the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .user_code import UserError

OPTIONS = {  # arguments of fit that are options
    "batch_size": "input.batch_size",
    "epochs": "train.epochs",
    "steps_per_epoch": "train.steps_per_epoch",
    "validation_split": "train.validation_split",
    "shuffle": "input.shuffle",
}
KEYS = ("class_weight", "sample_weight", "initial_epoch", "validation_freq", "validation_steps")


@dataclass(frozen=True)
class FitArguments:
    """The arguments for Keras' fit, named and meant as in Keras. There is no `sample_weight`, because it is a part of
    the data.
    """

    class_weight: Mapping[int, float] | None = None
    initial_epoch: int = 0
    validation_freq: int | list[int] = 1
    validation_steps: int | None = None

    def evaluates_after(self, epoch: int) -> bool:
        """Return True if the model is evaluated after that epoch, counted from 0."""
        every = self.validation_freq
        return (epoch + 1) % every == 0 if isinstance(every, int) else epoch + 1 in every


NO_ARGUMENTS = FitArguments()


def taken(given: dict[str, Any]) -> FitArguments:
    """Take the arguments for fit out of the dict `given` that build returned, and return them. Raises UserError.

    sample_weight is added to `train` in `given`.
    """
    for key in (key for key in given if key in OPTIONS):
        raise UserError(f"{key} is an option, and cannot be returned by build", f"set {OPTIONS[key]} in the preset")
    arguments = {key: given.pop(key, None) for key in KEYS}
    weights = _class_weight(arguments["class_weight"])
    if arguments["sample_weight"] is not None:
        given["train"] = _weighted(given.get("train"), arguments["sample_weight"])
    _check_one_kind(given.get("train"), weights)
    return FitArguments(
        weights,
        _whole(arguments["initial_epoch"], "initial_epoch", least=0) or 0,
        _frequency(arguments["validation_freq"]),
        _whole(arguments["validation_steps"], "validation_steps", least=1),
    )


def weigh(batches: tf.data.Dataset, weights: Mapping[int, float]) -> tf.data.Dataset:
    """Return the batches with a weight for each sample, as Keras makes it: (x, y) becomes (x, y, weight of y's class).

    A class without a weight has weight 1.
    """
    table = tf.constant([float(weights.get(c, 1.0)) for c in range(max(weights) + 1)])

    def weighed(x: Any, y: Any) -> Any:
        classes = _class_numbers(y)
        in_table = (classes >= 0) & (classes < len(table))
        return x, y, tf.where(in_table, tf.gather(table, tf.where(in_table, classes, 0)), 1.0)

    return batches.map(weighed)


def check_classes(spec: Any) -> None:
    """Raise UserError unless `weigh` can weigh batches of the type `spec`."""
    if not isinstance(spec, tuple) or len(spec) != 2 or not isinstance(spec[1], tf.TensorSpec):
        raise UserError(
            "class_weight needs batches of (x, y) with one array of classes as y",
            "give a sample_weight as the third element instead",
        )


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


def _weighted(train: Any, weight: Any) -> Any:
    """Return the arrays `train`, (x, y), with `weight` as the third part. Raises UserError for other data."""
    hint = "give it as the third element: (x, y, sample_weight)"
    if isinstance(train, tuple | list) and len(train) == 2:
        return (*train, weight)
    if isinstance(train, tuple | list) and len(train) == 3:
        raise UserError("sample_weight is given twice, in train and next to it", "remove one of them")
    raise UserError("sample_weight can be used only with arrays (x, y)", hint)


def _check_one_kind(train: Any, weights: Mapping[int, float] | None) -> None:
    third = isinstance(train, tuple | list) and len(train) == 3 and train[2] is not None
    if weights and third:
        raise UserError("class_weight and sample_weight are both given", "multiply them into one sample_weight")


def _frequency(value: Any) -> int | list[int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_whole(item, "validation_freq", least=1) or 1 for item in value]
    return _whole(value, "validation_freq", least=1) or 1


def _whole(value: Any, key: str, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{key} is {value!r}", f"give a whole number from {least}")
    return int(value)
