"""A Dataset that shuffles by a seed, of which nothing can follow the training: it is read ahead of the epochs."""

import keras
import numpy as np
import tensorflow as tf


def build(context):
    x = np.random.default_rng(1).normal(size=(65, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).shuffle(40, seed=3).map(lambda x, y: (x * 2, y))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model, data.batch(10)
