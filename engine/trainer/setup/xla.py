"""Decides whether XLA compiles the training step, and says why. `compile.xla: auto` follows Keras' rule for
jit_compile="auto" (keras 3.15, Trainer._resolve_auto_jit_compile and model_supports_jit), but compiles nothing for
chips on which XLA would end the process.
"""

from __future__ import annotations

from dataclasses import dataclass

import keras
import tensorflow as tf

from ...interpreter import compatibility
from ...options import Options

ONE_GPU = "one GPU, without a strategy"


@dataclass(frozen=True)
class Xla:
    """The decision whether XLA compiles the training step (`compiles`), and the reason for it."""

    compiles: bool
    reason: str


def choose(options: Options, model: keras.Model) -> Xla:
    option = options.compile.xla
    if option != "auto":
        return Xla(option, f"compile.xla is {str(option).lower()}")
    against = reason_against_keras(options, model) or aborting_chip()
    return Xla(not against, against or ONE_GPU)


def of_compiled(options: Options, model: keras.Model) -> Xla:
    """Compiled by the user's code: `auto` keeps its jit_compile, unless XLA would crash."""
    if options.compile.xla != "auto":
        return choose(options, model)
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
