"""A Dataset that ends within an epoch of train.steps_per_epoch steps, where Keras' fit ends the training."""

import keras
import numpy as np
import tensorflow as tf

SETTINGS = ("train.steps_per_epoch=4",)
REFUSED = "train has 10 batches, which 4 steps per epoch do not divide: Keras' fit would end an epoch early"


def build(context):
    x = np.random.default_rng(1).normal(size=(100, 4)).astype("float32")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(10)
