"""Quantisation after the training: the kernels of the trained model are stored as int8, a quarter of their size.

gputui --preset quantisation.yaml      # writes trained.keras
python quantisation.py                 # writes float32.keras and int8.keras; prints size and accuracy of each
"""

from pathlib import Path

import keras
import numpy as np
from keras import layers

FEATURES, CLASSES = 64, 8


def make_points(samples, seed):
    """Points of a random mixture: the class is the nearest of two centres for each class."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(2, CLASSES, FEATURES))
    y = rng.integers(0, CLASSES, samples)
    x = centres[rng.integers(0, 2, samples), y] + rng.normal(0, 2.0, (samples, FEATURES))
    return x.astype("float32"), y.astype("int32")


def build(context):
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(256, activation="relu"),
            layers.Dense(CLASSES, dtype="float32"),
        ]
    )
    return {
        "model": model,
        "train": make_points(context.args["samples"], seed=1),
        "validation": make_points(1000, seed=2),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
        "callbacks": [keras.callbacks.ModelCheckpoint("trained.keras")],
    }


def saved(model, name):
    """Saves the model without an optimizer, and evaluates what another program then loads."""
    model.save(name)
    model = keras.models.load_model(name)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    figures = model.evaluate(*make_points(1000, seed=2), verbose=0, return_dict=True)
    print(f"{name:13} {Path(name).stat().st_size / 1000:4.0f} kB  accuracy {figures['accuracy']:.3f}")


if __name__ == "__main__":
    model = keras.models.load_model("trained.keras", compile=False)
    saved(model, "float32.keras")
    model.quantize("int8")  # Dense, EinsumDense and Embedding; other layers stay as they are
    saved(model, "int8.keras")
