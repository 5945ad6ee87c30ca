"""Checks that the model is healthy: finite weights, tested on the device, and steps that float16's loss scaling
skipped. The loss does not show this: one skipped float16 step makes the running loss NaN although the weights are
fine, and NaN becomes 0 in relu on a CPU, so that the loss stays finite although the weights are NaN.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras

from ..common.training_errors import TrainerError
from ..common.versions import tensorflow as tf
from .run_report import RunReport

COST_SHARE = 1 / 200  # share of the time that checks may take with "auto"
FEW_WEIGHTS = 32  # so few weights are checked one by one within a millisecond; tracing a graph takes 50 ms


class Health:
    """Checks all float weights of the model for NaN and infinity from time to time."""

    def __init__(
        self,
        model: keras.Model,
        every: int | str,
        stop_on_nan: bool,
        report: RunReport,
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._model, self._stop_on_nan, self._report, self._waiting = model, stop_on_nan, report, waiting
        self._every = every if isinstance(every, int) else None  # steps between two checks; None: by their cost
        self.own_optimizer = False  # the user's code has chosen it, so that the options do not change it
        self.together = False  # several machines check together, at a step that they agree on
        self.wants_check = False
        self._test: Callable[[], Any] | None = None
        self._next_time = 0.0
        self._next_step = 0
        self._last_good_step = 0
        self._begun_without: dict[int, Any] = {}  # weights that held NaN or infinity at the start, by id
        self._seen: dict[int, Any] = {}  # the weights whose first values are known

    def begin(self, step: int) -> None:
        self._last_good_step = step
        self.note_start()

    def note_start(self) -> None:
        """Note the weights with NaN or infinity, which are not checked: a mask of -inf, the best value so far. To be
        called before a checkpoint is restored, and again when more weights exist.
        """
        new = [weight for weight in self._weights() if id(weight) not in self._seen]
        self._seen |= {id(weight): weight for weight in new}
        finite = [bool(value) for value in _finite(new)]
        self._begun_without |= {id(w): w for w, is_finite in zip(new, finite, strict=True) if not is_finite}

    def _weights(self) -> list[Any]:
        return [v for v in self._model.weights if "float" in keras.backend.standardize_dtype(v.dtype)]

    def check_by_steps(self, step: int) -> None:
        """Check if so many steps have passed since the last check. Raises TrainerError."""
        if self._every is not None and step >= self._next_step:
            self.check(step)

    def check_by_cost(self, step: int, metrics: Mapping[str, float]) -> None:
        """Check the weights if the last check was long enough ago for its cost, or the loss in `metrics` is NaN.
        With several workers only `wants_check` is set, so that all check at the same step. Raises TrainerError.
        """
        if _is_lost(metrics) or (self._every is None and time.perf_counter() >= self._next_time):
            if self.together:
                self.wants_check = True
            else:
                self.check(step, metrics)

    def check(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Check the weights after `step` steps now. If one is not finite, raise TrainerError, or warn with
        train.stop_on_nan off. If only the loss in `metrics` is NaN, the metrics are reset with a warning.
        """
        with self._waiting():  # a few kernels on the device, and one boolean copied back
            begin = time.perf_counter()
            if self._test is None:  # at the first check the model has all of its weights
                few = len(self._model.weights) <= FEW_WEIGHTS
                self._test = self._all_finite if few else tf.function(self._all_finite, autograph=False)
            alive = bool(self._test())
            end = time.perf_counter()
        self._next_time = end + (end - begin) / COST_SHARE
        self._next_step = step + (self._every or 0)
        if alive:
            self._last_good_step = step
        else:
            message = (
                f"weights are not finite (NaN or infinity), first seen at step {step}; "
                f"they were still finite at step {self._last_good_step}"
            )
            slower = (
                "in your code lower the optimizer's learning rate, give it global_clipnorm=1"
                if self.own_optimizer
                else "lower train.learning_rate, set train.global_clip_norm=1"
            )
            hint = f"{slower}, or look for NaN in the data"
            if self._stop_on_nan:
                raise TrainerError("nan", message, hint)
            self._report.warn("nan", message, hint, "train.stop_on_nan")
        if alive and _is_lost(metrics or {}):
            skipped = " (loss scaling skipped a step)" if self.loss_scale() is not None else ""
            self._report.warn(
                "loss_restarted",
                f"the running loss was NaN at step {step} with finite weights{skipped}; "
                "its mean starts again from here",
            )
            self._model.reset_metrics()

    def loss_scale(self) -> float | None:
        """Return the present factor by which mixed_float16 scales the loss. None if the loss is not scaled."""
        scale = getattr(self._model.optimizer, "dynamic_scale", None)
        return float(scale.numpy()) if scale is not None else None

    def skipped_steps(self, step: int) -> int | None:
        """Return how many of the first `step` steps a float16 overflow has skipped. None if the loss is not scaled."""
        optimizer = self._model.optimizer
        if getattr(optimizer, "dynamic_scale", None) is None:
            return None
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        return step - int(inner._iterations.numpy())  # `iterations` counts the changes of accumulated gradients

    def _all_finite(self) -> Any:
        return tf.reduce_all(_finite([weight for weight in self._weights() if id(weight) not in self._begun_without]))


def _finite(weights: Sequence[Any]) -> list[Any]:
    finite = []
    for weight in weights:
        # Not as an aggregate, as one of parts (replicas) that differ would need all machines; a trainable weight's are
        # equal.
        parts = list(getattr(weight.value, "values", [weight.value]))[: 1 if weight.trainable else None]
        finite.append(tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(part))) for part in parts]))
    return finite


def _is_lost(metrics: Mapping[str, float]) -> bool:
    return math.isnan(metrics.get("loss", 0.0))
