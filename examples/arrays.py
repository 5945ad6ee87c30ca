"""Arrays in memory: gputui batches, shuffles, caches and splits them; the model is compiled by the options.

gputui --preset arrays.yaml
"""

import keras
import numpy as np
from keras import layers


def make_waves(samples, length=64, classes=4, seed=0):
    """Noisy waves, the class is their frequency."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, samples)
    time = np.linspace(0, 1, length)
    phase = rng.uniform(0, 2 * np.pi, (samples, 1))
    x = np.sin(2 * np.pi * (y[:, None] + 1) * time + phase) + rng.normal(0, 0.3, (samples, length))
    return x.astype("float32")[..., None], y.astype("int32")


def build(context):
    units = context.args["units"]
    model = keras.Sequential(
        [
            keras.Input((64, 1)),
            layers.Conv1D(units, 5, activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(2 * units, 5, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4, dtype="float32"),
        ]
    )
    return {
        "model": model,
        "train": make_waves(context.args["samples"]),  # input.* and train.validation_split apply
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }
