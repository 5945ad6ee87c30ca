"""Keras is told to end each fit after one epoch."""

import keras
import numpy as np

REFUSED = "KERAS_MAX_EPOCHS or keras.config.set_max_epochs sets 1: Keras' fit would end before the run"


def build(context):
    keras.config.set_max_epochs(1)
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model, (x, x.sum(axis=1))
