"""TensorFlow's profile of a range of steps, with the step markers that Keras 3 does not set itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf


class Profiler:
    """Starts before the execution that holds the first step, stops after the one that holds the last."""

    def __init__(self, folder: Path, steps: tuple[int, int] | None) -> None:
        self._folder, self._steps = folder, steps
        self._running = False

    @contextlib.contextmanager
    def step(self, number: int, count: int) -> Iterator[None]:
        """Around an execution of steps `number` to `number + count - 1`."""
        if self._steps is None:
            yield
            return
        first, last = self._steps
        if not self._running and number <= last and number + count > first:
            tf.profiler.experimental.start(str(self._folder))
            self._running = True
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            yield
        if self._running and number + count > last:
            self.close()

    def close(self) -> None:
        """Write the profile if one is being taken."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running, self._steps = False, None
