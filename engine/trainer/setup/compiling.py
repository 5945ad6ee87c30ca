"""How a model is compiled: with the optimizer and its learning-rate schedule of `train`, and by XLA or not. For
`compile.xla: auto` Keras' rule for jit_compile="auto" decides (keras 3.15, Trainer._resolve_auto_jit_compile and
model_supports_jit), but nothing is compiled for chips on which XLA would end the process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ... import plan
from ...interpreter import compatibility
from ...options import Options, Train
from ...options.training import BY_NO_STEPS, OPTIMIZERS


def optimizer_of(options: Options, steps: int, steps_per_epoch: int, replicas: int = 1) -> keras.optimizers.Optimizer:
    """Return the optimizer for a run of `steps` steps. The learning rate is scaled by `replicas`."""
    train = options.train
    rate: Any = train.learning_rate * plan.rate_factor(train.learning_rate_scaling, replicas)
    if scheduled(train):
        rate = Schedule(
            kind=train.schedule,
            learning_rate=rate,
            warmup_steps=train.warmup_steps,
            hold_steps=train.hold_steps,
            decay_steps=plan.decay_steps(train, steps, steps_per_epoch),
            decay_rate=train.decay_rate,
        )
    optimizer: keras.optimizers.Optimizer = getattr(keras.optimizers, OPTIMIZERS[train.optimizer])(
        learning_rate=rate,
        **{argument: value for argument, (_, value) in train.optimizer_arguments.items()},
    )
    return optimizer


def highest_rate(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the highest learning rate that the optimizer will use: a fixed rate, or that of `Schedule`. Else None."""
    rate = getattr(getattr(optimizer, "inner_optimizer", optimizer), "_learning_rate", None)
    if isinstance(rate, Schedule):
        return rate.rate
    return float(f"{float(rate.numpy()):.7g}") if isinstance(rate, keras.Variable) else None


def scheduled(train: Train) -> bool:
    return train.schedule not in BY_NO_STEPS or bool(train.warmup_steps)


@keras.saving.register_keras_serializable("gputui")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises to `rate` in warmup_steps, stays there for hold_steps, and then follows its kind.

    In step n (from 0) of the warm-up it is rate * (n + 1) / warmup_steps. s is the number of steps after warm-up and
    hold_steps, D is decay_steps:
    constant: rate
    cosine: falls along half a cosine to rate * decay_rate at s = D, and stays there
    exponential: rate * decay_rate^(s/D)
    step: rate * decay_rate^floor(s/D)
    cyclical: rises from rate * decay_rate to rate in D/2 steps, and falls back in D/2 steps, again and again (Smith,
        arXiv:1506.01186, "triangular")
    ramp: rises from rate * decay_rate to rate at s = D, by the same factor in each step, and stays there
    """

    def __init__(
        self,
        kind: str,
        learning_rate: float,
        warmup_steps: int,
        decay_steps: int,
        decay_rate: float,
        hold_steps: int = 0,
    ) -> None:
        self.config = {
            "kind": kind,
            "learning_rate": learning_rate,
            "warmup_steps": warmup_steps,
            "decay_steps": decay_steps,
            "decay_rate": decay_rate,
            "hold_steps": hold_steps,
        }
        self.kind, self.rate, self.warmup = kind, learning_rate, warmup_steps
        self.decay_steps, self.decay_rate, self.begin = decay_steps, decay_rate, warmup_steps + hold_steps

    def __call__(self, step: Any) -> Any:
        step = tf.cast(step, tf.float32)
        after = self.rate * self._factor(tf.maximum(step - self.begin, 0.0) / self.decay_steps)
        if not self.warmup:
            return after
        return tf.where(step < self.warmup, self.rate * (step + 1.0) / self.warmup, after)

    def _factor(self, progress: Any) -> Any:
        """Return the factor of the full learning rate, `progress` times decay_steps after warm-up and hold_steps."""
        low = self.decay_rate
        if self.kind == "cosine":
            return low + (1 - low) * 0.5 * (1 + tf.cos(math.pi * tf.minimum(progress, 1.0)))
        if self.kind == "exponential":
            return tf.pow(low, progress)
        if self.kind == "ramp":
            return tf.pow(low, 1 - tf.minimum(progress, 1.0))
        if self.kind == "step":
            return tf.pow(low, tf.floor(progress))
        if self.kind == "cyclical":
            return low + (1 - low) * (1 - tf.abs(2 * (progress - tf.floor(progress)) - 1))
        return tf.ones_like(progress)

    def get_config(self) -> dict[str, Any]:
        return dict(self.config)


# ---- XLA ----------------------------------------------------------------------------------------------


ONE_GPU = "one GPU, without a strategy"


@dataclass(frozen=True)
class Xla:
    """The decision whether XLA compiles the training step (`compiles`), and the reason for it."""

    compiles: bool
    reason: str


def xla_of(options: Options, model: keras.Model) -> Xla:
    option = options.compile.xla
    if option != "auto":
        return Xla(option, f"compile.xla is {str(option).lower()}")
    against = reason_against_keras(options, model) or aborting_chip()
    return Xla(not against, against or ONE_GPU)


def xla_of_compiled(options: Options, model: keras.Model) -> Xla:
    """Compiled by the user's code: `auto` keeps its jit_compile, unless XLA would crash."""
    if options.compile.xla != "auto":
        return xla_of(options, model)
    compiles = bool(model.jit_compile)
    if compiles and (chip := aborting_chip()):
        return Xla(False, chip)
    chosen = reason_against_keras(options, model)
    if compiles == (not chosen):  # in the compiled model "auto", Keras' default, is no longer to be seen
        return Xla(compiles, f"jit_compile={compiles} of your compiled model is Keras' choice: {chosen or ONE_GPU}")
    return Xla(compiles, f"your code has compiled the model with jit_compile={compiles}")


def reason_against_keras(options: Options, model: keras.Model) -> str:
    """Return the reason why Keras' own rule does not compile this model. Empty if it does."""
    if options.train.deterministic:
        return "train.deterministic is true: Keras then compiles nothing"
    if not tf.config.get_visible_devices("GPU"):
        return "no GPU trains"
    if options.strategy.kind != "single":
        return f"strategy.kind is {options.strategy.kind}: under a strategy Keras compiles nothing"
    fixed = sorted({type(layer).__name__ for layer in model._flatten_layers() if not layer.supports_jit})
    return f"XLA cannot compile {', '.join(fixed)}" if fixed else ""


def aborting_chip() -> str:
    """Return why XLA must not compile for a GPU that trains, as it would crash the process."""
    for gpu in tf.config.get_visible_devices("GPU"):
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        if compatibility.xla_aborts(capability):
            return f"XLA of this TensorFlow crashes on compute capability {'.'.join(map(str, capability))}"
    return ""
