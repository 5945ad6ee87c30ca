"""A small network of a user's own that runs out of memory after some steps, as often as a file in its folder says.

Without normalization and dropout it learns the same in parts, to the last digits.
"""

import itertools
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers


class RunsOut(keras.callbacks.Callback):
    """Raises what TensorFlow raises, after so many steps of this process."""

    def __init__(self, times_left, steps):
        super().__init__()
        self.times_left, self.steps, self.count = times_left, steps, itertools.count(1)

    def on_train_batch_end(self, batch, logs=None):
        step = next(self.count)  # an iterator is in no checkpoint
        left = int(self.times_left.read_text()) if self.times_left.exists() else 0
        if step == self.steps and left:
            self.times_left.write_text(str(left - 1))
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[20,6]")


def build(context):
    """180 samples are nine batches of 19, and one of 9; `units` and `depth` make activations, but hardly weights."""
    drawn, samples = np.random.default_rng(0), context.args.get("samples", 180)
    x = drawn.normal(size=(samples, 6)).astype("float32")
    y = (x[:, :1] * x[:, 1:2]).astype("float32")
    weights = drawn.uniform(0, 2, samples).astype("float32")
    inputs = keras.Input((6,))
    hidden = layers.Dense(context.args.get("units", 8), activation="tanh")(inputs)
    for _ in range(context.args.get("depth", 0)):
        hidden = layers.Activation("tanh")(hidden)
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.01), "mse", weighted_metrics=["mae"])
    callbacks = [RunsOut(Path(context.args["times_left"]), 13)] if "times_left" in context.args else []
    return {"model": model, "train": (x, y, weights), "callbacks": callbacks}
