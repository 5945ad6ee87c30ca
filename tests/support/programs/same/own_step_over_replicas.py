"""A step of its own over two replicas, with statistics of the whole batch; the last batch has an odd number of rows."""

import keras
import numpy as np
import tensorflow as tf

SETTINGS = ("strategy.kind=mirrored",)


class Averaged(keras.Model):
    def __init__(self):
        super().__init__()
        normalised = keras.layers.BatchNormalization(synchronized=True)
        self.network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), normalised, keras.layers.Dense(1)])
        self.mean = keras.metrics.Mean(name="loss")

    def call(self, x, training=False):
        return self.network(x, training=training)

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.square(self(x, training=True)[:, 0] - y)
            loss = tf.nn.compute_average_loss(errors)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.mean.update_state(errors)
        return {"loss": self.mean.result()}

    def test_step(self, data):
        x, y = data
        self.mean.update_state(tf.square(self(x)[:, 0] - y))
        return {"loss": self.mean.result()}


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = Averaged()
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    return model, (x, x.sum(axis=1)), (x[:50], x[:50].sum(axis=1))
