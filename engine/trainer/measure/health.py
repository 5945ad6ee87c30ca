"""Whether the model is alive: its weights, looked at on the device, and what float16's loss scaling skipped.

The loss does not tell: one skipped float16 step makes the running loss NaN over healthy weights, and NaN passes relu
as 0 on a CPU, so that the loss stays finite over dead ones.
"""

from __future__ import annotations

import time
from typing import Any

import keras
import tensorflow as tf

COST_SHARE = 1 / 200  # of the time; what "auto" allows the looks to cost


class Health:
    """Looks at all float weights; `due` says whether it is time for the next look."""

    def __init__(self, model: keras.Model, every: int | str) -> None:
        self._model = model
        self.every = every if isinstance(every, int) else None  # steps between two looks; None: by their cost
        self._next_time = 0.0
        self._next_step = 0
        self.last_good_step = 0
        self._all_finite = tf.function(self._graph)

    def begin(self, step: int) -> None:
        """Training begins at `step` (over 0 when resumed)."""
        self.last_good_step = step

    def due(self, step: int) -> bool:
        if self.every is None:
            return time.perf_counter() >= self._next_time
        return step >= self._next_step

    def alive(self, step: int) -> bool:
        """One look, a few kernels on the device and one boolean back."""
        begin = time.perf_counter()
        alive = bool(self._all_finite())
        end = time.perf_counter()
        self._next_time = end + (end - begin) / COST_SHARE
        self._next_step = step + (self.every or 0)
        if alive:
            self.last_good_step = step
        return alive

    def loss_scale(self) -> float | None:
        """The present scale of mixed_float16, else None."""
        scale = getattr(self._model.optimizer, "dynamic_scale", None)
        return float(scale.numpy()) if scale is not None else None

    def skipped_steps(self, step: int) -> int | None:
        """Steps that float16 overflow left without an update, since the start of the training; else None."""
        if getattr(self._model.optimizer, "dynamic_scale", None) is None:
            return None
        return step - self._applied()

    def _applied(self) -> int:
        optimizer = self._model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        return int(inner.iterations.numpy())

    def _graph(self) -> Any:
        floats = [v.value for v in self._model.weights if "float" in keras.backend.standardize_dtype(v.dtype)]
        return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(v))) for v in floats])
