"""A Keras training: `gputui --preset preset.yaml` runs build, `python train.py` runs main."""

import keras
import numpy as np
from keras import layers


def make_data(samples=2000):
    """Points in two rings, one ring for each class: put your own arrays here."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, samples)
    angle, radius = rng.uniform(0, 2 * np.pi, samples), 1.0 + y + rng.normal(0, 0.2, samples)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return x.astype("float32"), y.astype("float32")


def make_model(units):
    return keras.Sequential(
        [
            keras.Input((2,)),
            layers.Dense(units, activation="relu"),
            layers.Dense(units, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def build(context):
    """Called by gputui. The model is not compiled: the preset's options choose how it learns."""
    x, y = make_data()
    return {
        "model": make_model(context.args.get("units", 64)),
        "train": (x[400:], y[400:]),
        "validation": (x[:400], y[:400]),
        "loss": "binary_crossentropy",
        "metrics": ["accuracy"],
    }


def main():
    x, y = make_data()
    model = make_model(64)
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(x[400:], y[400:], batch_size=32, epochs=5, validation_data=(x[:400], y[:400]))


if __name__ == "__main__":
    main()
