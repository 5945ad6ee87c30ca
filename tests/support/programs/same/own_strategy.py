"""A model that is made and compiled in a strategy of the program's own."""

import keras
import numpy as np
import tensorflow as tf

REFUSED = "Sequential is made or compiled in the scope of your own OneDeviceStrategy"


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    return model, (x, x.sum(axis=1))
