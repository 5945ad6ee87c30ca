"""A user's data as endless batches: arrays and single samples through our own pipeline, batched data as it is.

Each stream makes global batches from any step on; splitting and preparing ahead (data/finishing.py) is one for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from ...options import Options
from ...options.own import Data
from ..data.pipeline import Pipeline
from ..data.source import Part, Source
from ..data.stage_names import Stage
from .user_code import UserError

ENDLESS = 2**62  # samples in a pass that nobody has counted


class Stream(Protocol):
    """`samples` and `batches` are those of one pass, None where nobody knows; `spec` is that of a batch."""

    @property
    def kind(self) -> Data: ...

    @property
    def samples(self) -> int | None: ...

    @property
    def batches(self) -> int | None: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def spec(self) -> Any: ...

    @property
    def smaller_last_batch(self) -> bool: ...

    def global_batches(self, first_step: int) -> tf.data.Dataset: ...

    def stages(self) -> tuple[Stage, ...]: ...


@dataclass(frozen=True)
class Samples(Pipeline):
    """Arrays, or a data set of single samples: every option of the pipeline applies."""

    kind: Data = "arrays"

    @property
    def samples(self) -> int | None:
        return None if self.source.train.samples == ENDLESS else self.source.train.samples

    @property
    def batches(self) -> int | None:
        return None if self.samples is None else self.batches_per_pass

    @property
    def batch_size(self) -> int:
        return self.global_batch_size

    @property
    def spec(self) -> Any:
        return self.global_batches(0).element_spec

    @property
    def images(self) -> bool:
        """Whether input.augment can change x."""
        spec = self._loaded(self.source.train.elements).element_spec
        x = spec[0] if isinstance(spec, tuple) else spec
        return isinstance(x, tf.TensorSpec) and x.dtype == tf.float32 and x.shape.rank == 3 and None not in x.shape

    @functools.cached_property
    def _ready(self) -> bool:
        return True

    def _prepare_augmented(self, position: Any, batch: Any) -> Any:
        x, *rest = batch if isinstance(batch, tuple) else (batch,)
        return (self._augmented(position, x), *rest)


@dataclass(frozen=True)
class Batched:
    """A data set that the user's code has batched; a resumed pass leaves out the batches that were seen."""

    data: tf.data.Dataset
    samples: int | None
    batches: int | None
    batch_size: int
    replicas: int
    kind: Data = "batched"
    smaller_last_batch: bool = True  # nobody knows

    @property
    def spec(self) -> Any:
        return self.data.element_spec

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        data = self.data
        if self.replicas > 1:
            data = data.filter(lambda *batch: tf.shape(tf.nest.flatten(batch)[0])[0] >= self.replicas)
        if self.batches is None:
            return data.repeat().skip(first_step)
        skipped = first_step % self.batches
        return data.skip(skipped).concatenate(data.repeat()) if skipped else data.repeat()

    def stages(self) -> tuple[Stage, ...]:
        return ()


@dataclass(frozen=True)
class Indexed:
    """A PyDataset: its batches by number, several at once, in an order that input.shuffle draws anew for each pass."""

    data: keras.utils.PyDataset
    options: Options
    batches: int
    samples: int | None
    batch_size: int
    spec: Any
    kind: Data = "pydataset"
    smaller_last_batch: bool = True  # nobody knows

    def global_batches(self, first_step: int) -> tf.data.Dataset:
        first_pass, skipped = divmod(first_step, self.batches)
        for _ in range(first_pass):
            self.data.on_epoch_end()  # as often as the run that is resumed has called it

        def one_pass(number: Any) -> tf.data.Dataset:
            begun = tf.py_function(self._begin_pass, [number, first_pass], tf.int64)
            order = tf.data.Dataset.range(tf.ensure_shape(begun, ()))
            if self.options.input.shuffle != "off":
                order = order.shuffle(self.batches, seed=tf.constant(self.options.train.seed, tf.int64) + number)
            return self._loaded(order.skip(tf.where(number == first_pass, tf.constant(skipped, tf.int64), 0)))

        return tf.data.Dataset.counter(first_pass).flat_map(one_pass)

    def _loaded(self, numbers: tf.data.Dataset) -> tf.data.Dataset:
        """Loaded inside the pass: the next one begins when all of this one's batches are there."""
        calls = self.options.input.parallel_calls
        if calls == "off":
            return numbers.map(self._load)
        parallel = tf.data.AUTOTUNE if calls == "auto" else calls
        ordered = self.options.input.deterministic_order
        return numbers.map(self._load, num_parallel_calls=parallel, deterministic=ordered)

    def _begin_pass(self, number: Any, first_pass: Any) -> int:
        """Runs when the batches of the pass before have all been loaded."""
        if int(number) > int(first_pass):
            self.data.on_epoch_end()
        return self.batches

    def _load(self, number: Any) -> Any:
        flat = tf.nest.flatten(self.spec)
        types = [spec.dtype for spec in flat]
        loaded = tf.py_function(lambda i: _flat(self.data[int(i)]), [number], types)
        shaped = [tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(loaded, flat, strict=True)]
        return tf.nest.pack_sequence_as(self.spec, shaped)

    def stages(self) -> tuple[Stage, ...]:
        return ()


def _flat(batch: Any) -> list[Any]:
    return [as_array(array) for array in tf.nest.flatten(as_tuples(batch))]


def as_array(value: Any) -> np.ndarray:
    """NumPy's view of an array of whatever library."""
    return value.numpy() if isinstance(value, tf.Tensor) else np.asarray(value)


def as_tuples(nest: Any) -> Any:
    """Lists as tuples, as Keras takes them, and without what is None at the end."""
    if isinstance(nest, dict):
        return {key: as_tuples(item) for key, item in nest.items()}
    if isinstance(nest, list | tuple) and not hasattr(nest, "_fields"):
        items = tuple(as_tuples(item) for item in nest)
        while items and items[-1] is None:
            items = items[:-1]
        return items
    if isinstance(nest, np.ndarray) and nest.dtype == np.float64:
        return nest.astype("float32")  # what Keras does with arrays
    return nest


def samples_of(
    data: tf.data.Dataset,
    counted: int | None,
    options: Options,
    replicas: int,
    kind: Data,
    load: Callable[..., Any] | None,
    vary: Callable[..., Any] | None,
    stamp: str,
) -> Samples:
    """Single samples as a stream."""
    if counted is None and options.input.cache != "off":
        raise UserError(
            "input.cache needs to know when a pass over train is over", "return samples, or set input.cache=off"
        )
    elements = data if counted is not None else data.repeat()
    part = Part(elements, ENDLESS if counted is None else counted)
    source = Source(part, Part(elements, 0), (), 0, load=load, vary=vary, stamp=stamp)
    assert options.train.seed is not None
    return Samples(options, source, replicas, options.train.seed, kind)


def indexed(data: keras.utils.PyDataset, options: Options, samples: int | None) -> Indexed:
    """A PyDataset as a stream; its first batch tells what they look like."""
    batches = data.num_batches
    if not batches:
        raise UserError("the PyDataset has no batch, or no end", "its __len__ must tell how many batches a pass has")
    first = as_tuples(data[0])
    first = first if isinstance(first, tuple) else (first,)
    spec = tf.nest.map_structure(lambda array: _open_spec(as_array(array)), first)
    size = int(as_array(tf.nest.flatten(first)[0]).shape[0])
    return Indexed(data, options, int(batches), samples, size, spec)


def _open_spec(array: np.ndarray) -> tf.TensorSpec:
    """Any number of samples."""
    return tf.TensorSpec((None, *array.shape[1:]), tf.as_dtype(array.dtype) if array.dtype.kind != "U" else tf.string)
