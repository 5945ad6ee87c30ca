"""Data that is slow in one place, because it sleeps or waits there."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.doors.trainer import Part, Source

SLEEP = 0.002  # seconds a sample


def slow_load(source: Source) -> Source:
    """Each sample takes SLEEP longer to load."""
    return _waiting(source, lambda: time.sleep(SLEEP))


def gated(source: Source, permits: threading.Semaphore) -> Source:
    """Each sample is loaded once there is a permit for it."""
    return _waiting(source, permits.acquire)


def _waiting(source: Source, wait: Callable[[], object]) -> Source:
    load = source.load
    assert load is not None

    def sleep(index: np.int64) -> np.int64:
        wait()
        return index

    def slow(index: Any) -> Any:
        number = tf.py_function(sleep, [index], tf.int64)
        number.set_shape([])
        return load(number)

    return dataclasses.replace(source, load=slow)


def slow_read(source: Source) -> Source:
    """Each sample takes SLEEP longer to come."""

    def numbers() -> Iterator[int]:
        for number in range(source.train.samples):
            time.sleep(SLEEP)
            yield number

    elements = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int64))
    return dataclasses.replace(source, train=Part(elements, source.train.samples))
