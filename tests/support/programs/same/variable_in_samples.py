"""Single samples whose map reads a variable that a callback sets: no cache may keep them."""

import keras
import numpy as np
import tensorflow as tf

SETTINGS = ("input.cache=memory",)
LEVEL = tf.Variable(1.0, trainable=False)


class Ramp(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        LEVEL.assign(1.0 + epoch)


def build(context):
    x = np.random.default_rng(1).normal(size=(65, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1)))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    scaled = {"map": lambda x, y: (x * LEVEL, y), "callbacks": [Ramp()]}
    return {"model": model, "train": data, "validation": data.take(15), **scaled}


def plain(made, context):
    train, held_out = (made[role].map(made["map"]).batch(10) for role in ("train", "validation"))
    more = {"callbacks": made["callbacks"], "validation_data": held_out}
    return made["model"].fit(train, epochs=context.epochs, **more, verbose=0)
