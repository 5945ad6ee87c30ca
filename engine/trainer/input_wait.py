"""How long steps wait for their input, all of them on a CPU, by samples on a GPU.

Separates the graph's clock (train_function.WaitMeter) from what its readings mean. A GPU computes while the host
already waits for the next batch; only a step that begins with the device idle shows what the device waits. On a GPU,
therefore, the device is waited for now and then, and the wait of the step that follows stands for all until the next.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .train_function import WaitMeter

SAMPLE_AFTER = 3  # executions after a pulse, in which the input pipeline has had time to get ahead again


class InputWait:
    """The seconds that all steps so far waited; None where TensorFlow refuses to tell (deterministic)."""

    def __init__(self, deterministic: bool, on_gpu: bool) -> None:
        self.meter = WaitMeter(deterministic, first_only=on_gpu)
        self._sampled = on_gpu and not deterministic
        self._until_sample = 0
        self._sample_seconds = self._total_seconds = 0.0
        self._last_logs: Any = {}

    def pulse(self) -> None:
        """The device has been waited for and looked after: take a sample soon."""
        self._until_sample = SAMPLE_AFTER

    def before(self) -> None:
        """An execution is about to begin."""
        if self._sampled and self._until_sample == 0:
            tf.nest.map_structure(float, self._last_logs)  # waits for the device

    def after(self, count: int, logs: Any) -> None:
        """An execution of `count` steps has been handed to the device."""
        if not self._sampled:
            return
        if self._until_sample == 0:
            self._sample_seconds = self.meter.read() or 0.0
        self._until_sample, self._last_logs = self._until_sample - 1, logs
        self._total_seconds += count * self._sample_seconds

    def total(self) -> float | None:
        return self._total_seconds if self._sampled else self.meter.read()
