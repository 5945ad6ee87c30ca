"""An optimizer that keeps an exponential moving average of the weights, and ends with it as the weights."""

import keras
import numpy as np


def build(context):
    x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.9), "mse")
    return model, (x, x.sum(axis=1)), (x, x.sum(axis=1))
