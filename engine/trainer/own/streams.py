"""Turns a Dataset that a user's code has batched into endless batches from any step on; arrays and types of batches."""

# mypy: disable-error-code="override"
# What some streams compute is a field of others.

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..data.batches import Nature, Stream
from ..data.finishing import through_an_iterator
from .dataset_facts import nature_of, reshuffles, stages_of
from .user_code import UserError, contains_none

AS_BATCHES = "give each batch as (x, y), (x, y, sample_weight) or x, arrays whose first axis is the samples"
TO_BATCH = "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it"
LOOKED_AT = 2  # the number of batches whose shapes show which axes differ, as in Keras
DIFFERS_AT_FIRST = (
    "as in Keras' fit, an axis whose size differs must differ between the first two batches; or give a tf.data.Dataset "
    "by from_generator, with None for this axis in output_signature"
)


@dataclass
class SharedShuffle:
    """A shuffle from which also the validation is drawn, or a script after its fit: each iterator draws its next order,
    so that all are begun in the sequence of Keras' fit.
    """

    trained: Callable[[int], int]  # iterators of train that fit has begun after so many epochs
    evaluations: Callable[[int], int]  # before an epoch
    each: int  # iterators that fit begins for an evaluation
    begun: int = 0  # here, up to now

    def before_epoch(self, epoch: int) -> int:
        return self.trained(epoch) + self.each * self.evaluations(epoch)

    def before_evaluation(self, before: int) -> int:
        trained = next(epoch for epoch in itertools.count(1) if self.evaluations(epoch) > before)
        return self.trained(trained) + self.each * before


@dataclass(eq=False)
class Batched(Stream):
    """A data set that the user's code has batched, in the orders of Keras' fit, also in a resumed run. That begins
    each pass with a new iterator, which draws the order of a shuffle. If an epoch is one pass (`epoch_is_pass`) of
    known length, it makes one more at the end of each epoch, and under a strategy one before the first.
    """

    data: tf.data.Dataset
    samples: int | None
    batches: int | None
    batch_size: int
    replicas: int
    epoch_is_pass: bool = False
    ends: bool = False  # Keras' fit knows that an evaluation draws all batches of the user's Dataset
    shared: SharedShuffle | None = None

    def __post_init__(self) -> None:
        self.spec = self.data.element_spec
        # Keras' fit has one iterator of it for all epochs.
        self.endless = self.batches is None or int(self.data.cardinality()) == tf.data.INFINITE_CARDINALITY
        self.begins_anew = not self.endless and self.epoch_is_pass
        self.ends_with_begun_epoch = self.endless or self.epoch_is_pass
        self.at_their_step = True
        self._begun = 0  # iterators of the data that were begun
        self._at_begin: list[Any] = []  # values at the begin of the epoch of what its functions change
        self._evaluations: list[Any] = []  # variables: evaluations before the next, iterators begun
        self._going_on: dict[int, Any] = {}  # the iterator of data without an end, by its next step

    @functools.cached_property
    def nature(self) -> Nature:
        return nature_of(self.data)

    @property
    def draws(self) -> bool:
        return self.nature.draws or self.shared is not None

    def iterators(self, passes: int) -> int:
        # that Keras' fit begins before it draws from that of the next pass
        if not self.epoch_is_pass or int(self.data.cardinality()) < 0:
            return passes
        return 2 * passes + int(self.replicas > 1)

    def _from(self, skipped: int, unused: int) -> tf.data.Dataset:
        data = self.data.skip(skipped) if skipped else self.data
        if not reshuffles(self.data):
            return data
        # It begins its inputs, and ends before it draws from one.
        none = tf.data.Dataset.choose_from_datasets([self.data], tf.data.Dataset.range(0))
        return tf.data.Dataset.range(unused).flat_map(lambda _: none).concatenate(data)

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        if self.endless:
            return self._going_on.get(first_step) or self.data.repeat().skip(first_step)
        assert self.batches is not None
        passes, skipped = divmod(first_step, self.batches)
        first = self._from(skipped, self.iterators(passes) - self._begun)
        return first.concatenate(self._from(0, self.iterators(1) - self.iterators(0) - 1).repeat())

    def of_epoch(self, first_step: int, steps: int) -> tf.data.Dataset:
        if self.endless:
            batches, _ = through_an_iterator(self.global_batches(first_step))
            self._going_on[first_step + steps] = batches
            return batches.take(steps)
        assert self.batches is not None
        passes, skipped = divmod(first_step, self.batches)
        before, begun = self.iterators(passes), self._begun
        if self.shared is not None:
            before, begun = self.shared.before_epoch(passes), self.shared.begun
        data = self._from(skipped, before - begun)
        return data if self.samples is None else data.take(steps)  # else a pass ends by itself

    def fit_begins(self, first_step: int) -> None:
        if self.batches is not None and self.shared is not None:
            self.shared.begun = self.shared.before_epoch(first_step // self.batches) + 1
        if self.batches is not None:
            self._begun = self.iterators(first_step // self.batches) + 1
        self._at_begin = self._values()

    def fit_ended(self, step: int) -> None:
        if self.shared is not None and self.batches:
            for _ in range(self.shared.before_epoch(step // self.batches) - self.shared.begun):
                iter(self.data)

    def of_evaluation(self, count: int, depends: bool) -> tf.data.Dataset:
        """Of a Dataset that reshuffles, without a known length: Keras begins an iterator for each, one more after all,
        and under a strategy one before the first, and one more each without validation_steps (Keras 3.15).
        """
        if not reshuffles(self.data):
            return super().of_evaluation(count, depends or self.draws)
        several = self.replicas > 1
        before, begun = self._counters()
        none = tf.data.Dataset.choose_from_datasets([self.data], tf.data.Dataset.range(0))

        def batches(_: Any) -> tf.data.Dataset:
            unused = tf.maximum(self.each * before + several - begun, 0)
            if self.shared is not None:
                unused = tf.identity(before)
            else:
                begun.assign_add(unused + 1)
            return tf.data.Dataset.range(unused).flat_map(lambda _: none).concatenate(self.data)

        return tf.data.Dataset.range(1).flat_map(batches).take(count)

    @property
    def each(self) -> int:
        """The iterators that Keras' fit begins for an evaluation."""
        return 1 + self.ends + (self.replicas > 1 and self.epoch_is_pass)

    def evaluation_begins(self, before: int) -> None:
        if self.shared is not None:  # those that fit has begun and that were not begun here
            due = self.shared.before_evaluation(before)
            before, self.shared.begun = due - self.shared.begun, due + 1
        self._counters()[0].assign(before)

    def _counters(self) -> list[Any]:
        if not self._evaluations:
            with tf.device("CPU:0"):
                self._evaluations = [tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(2)]
        return self._evaluations

    def _values(self) -> list[Any]:
        return [variable.numpy().tolist() for variable in self.nature.writes]

    def place(self, step: int) -> Any:
        # The values from which the functions of the data make the batches of the epoch of this step again.
        return (self._values() if step % (self.batches or 1) == 0 else self._at_begin) or None

    def go_to(self, place: Any) -> None:
        for variable, value in zip(self.nature.writes, place, strict=True):
            variable.assign(value)


def prefetches(data: Any) -> bool:
    return isinstance(data, tf.data.Dataset) and any("Prefetch" in type(stage).__name__ for stage in stages_of(data))


def of_numpy(data: Any) -> Any:
    """Arrays of pandas and torch as arrays of NumPy, as Keras' fit takes them."""

    def converted(value: Any) -> Any:
        if hasattr(value, "to_numpy") and hasattr(value, "iloc"):  # of pandas: a Series has one column
            array = value.to_numpy()
            return array[:, None] if array.ndim == 1 else array
        return np.asarray(value.cpu()) if hasattr(value, "cpu") and hasattr(value, "requires_grad") else value

    return tf.nest.map_structure(converted, data)


def as_array(value: Any) -> np.ndarray:
    """Return `value`, an array of any library, as an array of NumPy."""
    return value.numpy() if isinstance(value, tf.Tensor) else np.asarray(value)


def as_tuples(nest: Any) -> Any:
    """Return the nest as Keras takes it: no lists, no None at the end, 64-bit floats as keras.config.floatx()."""
    if isinstance(nest, dict):
        return {key: as_tuples(item) for key, item in nest.items()}
    if isinstance(nest, list | tuple) and not hasattr(nest, "_fields"):
        items = tuple(as_tuples(item) for item in nest)
        while items and items[-1] is None:
            items = items[:-1]
        return items
    if isinstance(nest, np.ndarray) and nest.dtype == np.float64:
        return nest.astype(tf.as_dtype(keras.config.floatx()).as_numpy_dtype, copy=False)  # as Keras converts arrays
    return nest


def as_fitted(data: Any) -> Any:
    """Return what a step of `fit(x)`, `fit(x, y)` or `fit(x, y, sample_weight)` gets: x alone is not in a tuple."""
    nest = as_tuples(data)
    alone = isinstance(nest, tuple) and len(nest) == 1 and not isinstance(nest[0], tuple)
    return nest[0] if alone else nest


def as_tensors(nest: Any) -> Any:
    """Copy to host memory, as the originals may be on a GPU. Ragged and sparse tensors are returned unchanged."""
    kept = (tf.RaggedTensor, tf.SparseTensor)
    with tf.device("/CPU:0"):
        return tf.nest.map_structure(lambda leaf: leaf if isinstance(leaf, kept) else tf.identity(leaf), nest)


# ---- types of batches ----------------------------------------------------------------------------


def spec_of(batches: list[Any], role: str, batched: bool = True) -> Any:
    """Return the type of these batches (of samples, if not `batched`). Raises UserError if they have none in common."""
    try:
        return tf.nest.map_structure(lambda *leaves: _leaf_spec(leaves, role, batched), *batches)
    except (TypeError, ValueError):
        raise UserError(f"the first two batches of {role} have different structures", AS_BATCHES) from None


def _leaf_spec(leaves: tuple[Any, ...], role: str, batched: bool) -> Any:
    if any(leaf is None for leaf in leaves):
        raise contains_none(f"a batch of {role}")
    shapes = [tuple(leaf.shape) for leaf in leaves]
    if batched and not shapes[0]:
        raise UserError(f"the elements of {role} are single values, not batches", AS_BATCHES)
    if len({len(shape) for shape in shapes}) > 1:
        raise UserError(
            f"batches of {role} have the shapes {shapes[0]} and {shapes[1]}", "give all the same number of axes"
        )
    first, sizes = leaves[0], [axis[0] if len(set(axis)) == 1 else None for axis in zip(*shapes, strict=True)]
    shape = [None, *sizes[1:]] if batched else sizes  # axes of different sizes, and the samples, may have any size
    if isinstance(first, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, first.dtype, first.ragged_rank, first.row_splits.dtype)
    if isinstance(first, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, first.dtype)
    if getattr(first.dtype, "kind", "") != "O" or all(isinstance(each, str | bytes) for each in first.flat):
        with contextlib.suppress(TypeError):
            return tf.TensorSpec(shape, dtype_of(first))
    hint = "convert it to numbers or texts of equal shape"
    raise UserError(f"a batch of {role} contains an array of the type {first.dtype}", hint)


def dtype_of(array: Any) -> tf.DType:
    return tf.string if getattr(array.dtype, "kind", "") in ("U", "S") else tf.as_dtype(array.dtype)
