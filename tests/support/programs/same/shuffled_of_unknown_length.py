"""A Dataset that shuffles, and whose length TensorFlow does not know: Keras' fit begins one iterator for each epoch."""

import keras
import numpy as np
import tensorflow as tf


def build(context):
    x = np.random.default_rng(1).normal(size=(65, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).filter(lambda x, y: x[0] < 1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model, data.shuffle(40, seed=3).batch(10)
