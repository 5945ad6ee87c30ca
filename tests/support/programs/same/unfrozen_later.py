"""A schedule that unfreezes the base, and freezes the head: Keras trains on as it has traced its step."""

import keras
import numpy as np


class Unfreeze(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch >= 1:
            self.model.get_layer("base").trainable = True
            self.model.get_layer("head").trainable = False


def build(context):
    x = np.random.default_rng(0).normal(size=(105, 4)).astype("float32")
    layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization()]
    base = keras.Sequential(layers, name="base")
    base.trainable = False
    model = keras.Sequential([
        keras.Input((4,)), base, keras.layers.Dense(6, "relu", name="head"), keras.layers.Dropout(0.2),
        keras.layers.Dense(1),
    ])  # fmt: skip
    model.compile(keras.optimizers.Adam(0.02), "mse")
    y = x.sum(axis=1)
    return {"model": model, "train": (x, y), "validation": (x[:40], y[:40]), "callbacks": [Unfreeze()]}
