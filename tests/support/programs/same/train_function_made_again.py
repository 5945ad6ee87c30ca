"""A callback that has the function of the training steps made again, after it has unfrozen a layer."""

import keras
import numpy as np

REFUSED = (
    "Unfreeze.on_epoch_begin calls make_train_function (train_function_made_again.py:16), which replaces the training "
    "step with its checkpoints, figures and stops"
)


class Unfreeze(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[0].trainable = True
            self.model.make_train_function(force=True)


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, trainable=False), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return {"model": model, "train": (x, x.sum(axis=1)), "callbacks": [Unfreeze()]}
