"""Copies batches into the memory of a GPU ahead of their step, and converts bytes to floats there.

TensorFlow creates the iterator of such a stage on the device, where the state of the pipeline cannot be read; so the
pipeline has an iterator of its own on the host, from which the stage takes its batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...options import Input


def batches_ahead(wanted: Input, kind: str, spec: Any) -> int:
    """How many batches of this type wait in the memory of each device of this kind (`GPU` or `CPU`)."""
    return wanted.device_batches if kind == "GPU" and fits_devices(spec) else 0


def fits_devices(spec: Any) -> bool:
    """Whether batches of this type can be copied to a GPU ahead of their step: dense tensors of numbers."""
    parts = tf.nest.flatten(spec)
    return all(isinstance(part, tf.TensorSpec) and _is_numeric(part.dtype) for part in parts)


def first_cast(step: Callable[[Any], Any], scale: float | None) -> Callable[[Any], Any]:
    """A step on batches whose inputs are bytes, of which it makes floats first; without a scale, the step itself."""
    if scale is None:
        return step

    def cast_first(data: Any) -> Any:
        x, *labels = data
        return step((tf.cast(x, tf.float32) * scale, *labels))

    return cast_first


def _is_numeric(kind: tf.DType) -> bool:
    return bool(kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex)


def through_an_iterator(batches: tf.data.Dataset) -> tuple[tf.data.Dataset, Any]:
    """The same batches, one after the other on demand, and the iterator that they come from."""
    with tf.device("/CPU:0"):
        iterator = iter(batches)
        handed_on = tf.data.Dataset.counter().map(lambda _: iterator.get_next())
    # The pipeline behind the iterator is complete; TensorFlow must not add anything here.
    settings = tf.data.Options()
    settings.autotune.enabled = False
    settings.experimental_optimization.inject_prefetch = False
    settings.experimental_optimization.map_parallelization = False
    return handed_on.with_options(settings), iterator


def prefetched_to(device: str, batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """The batches, up to `count` of which wait in the device's memory; nothing may follow this stage."""
    return batches.apply(tf.data.experimental.prefetch_to_device(device, count))
