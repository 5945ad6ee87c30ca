"""Code for exported scripts only: callbacks for Keras' own fit, and functions that open a user's data.

The trainer does not run it. The exporter reads it as text (export/engine_source.py).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..plan import batches_per_pass
from .data.batching import Elements
from .data.finishing import fits_devices, split
from .own.dataset_facts import inspected
from .own.streams import as_fitted, as_tensors, as_tuples


class Profile(keras.callbacks.Callback):
    """Writes TensorFlow's profile of the steps from `first` to `last`, counted from 1."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last, self.step = first, last, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.step += 1
        if self.step == self.first:
            tf.profiler.experimental.start("profile")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.step == self.last:
            tf.profiler.experimental.stop()


class TimeLimit(keras.callbacks.Callback):
    """Ends the training when `minutes` minutes have passed since this object was made."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self.end = time.monotonic() + 60 * minutes

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if time.monotonic() > self.end:
            self.model.stop_training = True


class EqualParts(tf.distribute.MirroredStrategy):
    """A mirrored strategy that splits each batch as the trainer does: the samples of a batch are shared out where
    TensorFlow would leave a replica without one. The parts wait in the memory of each device.
    """

    ahead = 0  # batches that wait in the memory of each device

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        count = self.ahead if fits_devices(dataset.element_spec) else 0
        settings = tf.distribute.InputOptions(
            experimental_fetch_to_device=count > 0, experimental_per_replica_buffer_size=count
        )
        parts = split(dataset, self.num_replicas_in_sync)
        return self.distribute_datasets_from_function(lambda _: parts, settings)


def build_from_a_part(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Make Keras' fit build the model from the first replica's part of a batch. Keras itself takes the mean of all
    parts, which needs parts of equal size.
    """

    def build(iterator: Any = None, data_batch: Any = None) -> None:
        if iterator is not None:
            batch = next(next(iter(iterator))[-1])
            data_batch = tf.nest.map_structure(lambda part: strategy.experimental_local_results(part)[0], batch)
        with strategy.scope():
            model._symbolic_build(data_batch=data_batch)

    model._maybe_symbolic_build = build


class OfBytes(keras.Model):
    """A model that takes inputs as bytes and converts them to floats, multiplied by `scale`, at the start of each
    step.
    """

    scale = 1.0

    def train_step(self, data: Any) -> Any:
        return super().train_step(self.cast(*data))

    def test_step(self, data: Any) -> Any:
        return super().test_step(self.cast(*data))

    def cast(self, x: Any, y: Any) -> Any:
        return tf.cast(x, tf.float32) * self.scale if x.dtype == tf.uint8 else x, y


def first_again(data: Any, count: int) -> Any:
    """Return a function that iterates each time over the same first `count` elements of an iterator, kept in memory."""
    left: Any = itertools.islice(data, count)

    def again() -> Any:
        nonlocal left
        left, elements = itertools.tee(left)  # `left` stays at its begin
        return elements

    return again


def length(data: tf.data.Dataset, needed: bool) -> int:
    """Return the number of elements of a Dataset; below 0 if it is unknown, and not counted as not `needed`."""
    cardinality = int(data.cardinality())
    counts = needed and cardinality == tf.data.UNKNOWN_CARDINALITY
    return int(inspected(data, lambda seen: sum(1 for _ in seen))) if counts else cardinality


def samples_of(data: Any, load: Callable[..., Any] | None, vary: Callable[..., Any] | None) -> Elements:
    """Return single samples of arrays."""
    arrays = as_tensors(as_fitted(data))
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    dense = all(isinstance(leaf, tf.Tensor) for leaf in tf.nest.flatten(arrays))
    drawn = arrays if dense else None
    return Elements(dataset, int(dataset.cardinality()), load=load, vary=vary, arrays=drawn, whole=True)


def counted(data: tf.data.Dataset) -> int:
    """Return the number of batches of a Dataset that reads from Python, without a trace in its random states."""
    states = random.getstate(), np.random.get_state()
    count = sum(1 for _ in data)
    random.setstate(states[0])
    np.random.set_state(states[1])
    return count


def batches_in(data: tf.data.Dataset, count: int | None, needed: bool) -> int:
    """Return the batches of your batched Dataset; below 0: unknown. If it has no cardinality, they are computed from
    `count`, the samples if your code gives them, else counted by a pass over the data if `needed`."""
    batches = length(data, needed and not count)
    if batches < 0 and count:
        fixed = tf.nest.flatten(data.element_spec)[0].shape[0]  # a smaller rest is left out then
        size = fixed or len(tf.nest.flatten(inspected(data, lambda seen: next(iter(seen))))[0])
        batches = batches_per_pass(count, size, drop_remainder=bool(fixed))
    return batches


class Copied(keras.utils.PyDataset):
    """The batches of a PyDataset, copied to memory of their own: over several replicas TensorFlow may write into the
    arrays that it is given.
    """

    def __init__(self, data: keras.utils.PyDataset) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        self.on_epoch_begin, self.on_epoch_end = data.on_epoch_begin, data.on_epoch_end

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return tf.nest.map_structure(np.array, as_tuples(self.data[index]))
