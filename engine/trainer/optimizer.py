"""The optimizer and its learning-rate schedule, from `train` and the number of steps."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from ..options import Options, Train

_OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "sgd": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop,
}


def build(options: Options, steps: int, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """An optimizer for a run of `steps` steps."""
    train = options.train
    rate: Any = train.learning_rate
    if scheduled(train):
        rate = Schedule(
            kind=train.schedule,
            learning_rate=train.learning_rate,
            warmup_steps=train.warmup_steps,
            decay_steps=_decay_steps(train, steps, steps_per_epoch),
            decay_rate=train.decay_rate,
        )
    return _OPTIMIZERS[train.optimizer](
        learning_rate=rate,
        clipnorm=train.clip_norm,
        clipvalue=train.clip_value,
        global_clipnorm=train.global_clip_norm,
    )


def scheduled(train: Train) -> bool:
    """Whether the learning rate changes by `Schedule`, a class that plain Keras does not know."""
    return train.schedule != "constant" or bool(train.warmup_steps)


def _decay_steps(train: Train, steps: int, steps_per_epoch: int) -> int:
    if train.decay_steps is not None:
        return train.decay_steps
    after_warmup = max(1, steps - train.warmup_steps)
    return {"step": max(1, after_warmup // 3), "cyclical": steps_per_epoch}.get(train.schedule, after_warmup)


@keras.saving.register_keras_serializable("gputui")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then one of the kinds, counted from the end of the warm-up (s, D = decay_steps).

    constant; cosine: falls to rate * decay_rate along half a cosine over D; exponential: rate * decay_rate^(s/D);
    step: rate * decay_rate^floor(s/D); cyclical: a triangle between rate * decay_rate and rate, each D steps
    (Smith, arXiv:1506.01186, "triangular").
    """

    def __init__(
        self, kind: str, learning_rate: float, warmup_steps: int, decay_steps: int, decay_rate: float
    ) -> None:
        self.config = {
            "kind": kind,
            "learning_rate": learning_rate,
            "warmup_steps": warmup_steps,
            "decay_steps": decay_steps,
            "decay_rate": decay_rate,
        }
        self.kind, self.rate, self.warmup = kind, learning_rate, warmup_steps
        self.decay_steps, self.decay_rate = decay_steps, decay_rate

    def __call__(self, step: Any) -> Any:
        step = tf.cast(step, tf.float32)
        after = self.rate * self._factor(tf.maximum(step - self.warmup, 0.0) / self.decay_steps)
        if not self.warmup:
            return after
        return tf.where(step < self.warmup, self.rate * (step + 1.0) / self.warmup, after)

    def _factor(self, progress: Any) -> Any:
        """progress: steps since the warm-up in units of decay_steps -> what the rate is multiplied by."""
        low = self.decay_rate
        if self.kind == "cosine":
            return low + (1 - low) * 0.5 * (1 + tf.cos(math.pi * tf.minimum(progress, 1.0)))
        if self.kind == "exponential":
            return tf.pow(low, progress)
        if self.kind == "step":
            return tf.pow(low, tf.floor(progress))
        if self.kind == "cyclical":
            return low + (1 - low) * (1 - tf.abs(2 * (progress - tf.floor(progress)) - 1))
        return tf.ones_like(progress)

    def get_config(self) -> dict[str, Any]:
        return dict(self.config)
