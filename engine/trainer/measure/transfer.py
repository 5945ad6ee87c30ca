"""Measures how long the copy of one batch from the host to a GPU takes while the GPU is idle.

The copy has the size of the training's batches. It is complete when a byte of it has been read back; the time of the
reading is measured separately and subtracted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

TIMES = 5


def seconds(spec: Any, samples: int, devices: Sequence[str]) -> float | None:
    """Of a batch of these types to the GPU that gets it last; None where sizes differ, or where copying fails.

    `samples` are those of a batch for one device. A copy that finds no memory on the GPU raises InternalError
    (TensorFlow 2.21: "Dst tensor is not initialized"). Whatever fails here must not end the training.
    """
    sizes = [_bytes(part, samples) for part in tf.nest.flatten(spec)]
    if any(size is None for size in sizes):
        return None
    try:
        with tf.device("/CPU:0"):
            batch = [tf.zeros([size], tf.uint8) for size in sizes if size]
        return max((_to(device, batch) for device in devices), default=None)
    except tf.errors.OpError:
        return None


def _bytes(spec: Any, samples: int) -> int | None:
    """The size of a tensor with so many samples."""
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0) or None in spec.shape[1:]:
        return None
    return samples * math.prod(spec.shape[1:]) * spec.dtype.size


def _to(device: str, batch: list[Any]) -> float:
    _copy(device, batch)  # the first one also takes memory for the copies
    times = [_copy(device, batch) for _ in range(TIMES)]
    copying, reading = map(statistics.median, zip(*times, strict=True))
    return max(0.0, copying - reading)


def _copy(device: str, batch: list[Any]) -> tuple[float, float]:
    """Seconds of copying and reading back, and of reading back once more."""
    with tf.device("/CPU:0"):
        fresh = [tf.identity(part) for part in batch]  # a tensor keeps its first copy, and is not copied again
    with tf.device(device):
        begin = time.perf_counter()
        there = [tf.identity(part) for part in fresh]
        _read_back(there)
        copied = time.perf_counter()
        _read_back(there)
        return copied - begin, time.perf_counter() - copied


def _read_back(there: list[Any]) -> None:
    for part in there:
        part[-1:].numpy()
