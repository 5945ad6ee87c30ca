"""A functional model with two inputs and two outputs, a loss for each, and weights for the samples."""

import keras
import numpy as np
from keras import layers

SETTINGS = ("batch_size=9",)  # without a smaller last batch, Keras rounds the losses of the outputs differently


def make_data(samples=400):
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(samples, 6))
    words = rng.integers(0, 50, size=(samples, 8))
    urgent = (numbers[:, 0] > 0).astype("float32")
    group = (words[:, 0] % 3).astype("int32")
    weights = np.where(urgent > 0, 2.0, 1.0).astype("float32")
    return {"numbers": numbers, "words": words}, {"urgent": urgent, "group": group}, weights


def make_model():
    numbers = keras.Input((6,), name="numbers")
    words = keras.Input((8,), name="words", dtype="int32")
    embedded = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(words))
    hidden = layers.Dropout(0.1)(layers.Dense(16, activation="relu")(layers.concatenate([numbers, embedded])))
    urgent = layers.Dense(1, activation="sigmoid", name="urgent")(hidden)
    group = layers.Dense(3, name="group")(hidden)
    return keras.Model([numbers, words], {"urgent": urgent, "group": group})


def build(context):
    x, y, weights = make_data()
    model = make_model()
    model.compile(
        optimizer="adam",
        loss={
            "urgent": "binary_crossentropy",
            "group": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        },
        metrics={"group": ["accuracy"]},
    )
    return model, (x, y, {"urgent": weights, "group": weights})
