"""Images that a layer flips in Dataset.map, which changes the state of its random generator."""

import keras
import numpy as np
import tensorflow as tf

FLIP = keras.layers.RandomFlip(seed=3)


def build(context):
    x = np.random.default_rng(0).normal(size=(84, 6, 6, 3)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum((1, 2, 3)))).batch(12)
    model = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    return {"model": model, "train": data.map(lambda x, y: (FLIP(x, training=True), y))}
