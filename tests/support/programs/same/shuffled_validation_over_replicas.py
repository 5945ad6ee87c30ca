"""The validation over replicas has other samples in each evaluation."""

import keras
import tensorflow as tf

SETTINGS = ("strategy.kind=mirrored",)


def build(context):
    x = tf.random.stateless_normal((80, 6), (1, 2))
    y = tf.reduce_sum(x, axis=1)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    held_out = data.shuffle(84, seed=6).take(12).batch(4)
    return {"model": model, "train": data.batch(10), "validation": held_out}
