"""Data that a callback changes at the begin and at the end of each epoch, through variables in Dataset.map, which the
validation has, too.
"""

import keras
import numpy as np
import tensorflow as tf

LEVEL = tf.Variable(1.0, trainable=False)
SHIFT = tf.Variable(0.0, trainable=False)


class Ramp(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        LEVEL.assign(1.0 + epoch)

    def on_epoch_end(self, epoch, logs=None):
        SHIFT.assign(logs["loss"])


def build(context):
    x = np.random.default_rng(1).normal(size=(65, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).map(lambda x, y: (x * LEVEL + SHIFT, y))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    validation = data.take(15).batch(5)
    return {"model": model, "train": data.batch(10), "validation": validation, "callbacks": [Ramp()]}
