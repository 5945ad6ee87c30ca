"""Keras' floatx is float64: weights, data and figures have 64 bits."""

import keras
import numpy as np

keras.config.set_floatx("float64")


def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert context.precision in ("float32", "float64")
    assert model.weights[0].dtype == "float64"
    x = np.random.default_rng(1).normal(size=(65, 4))
    return model, (x, np.sin(x.sum(1, keepdims=True)))
