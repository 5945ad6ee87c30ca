"""A model that makes the function of its training steps itself."""

import keras
import numpy as np
import tensorflow as tf

REFUSED = (
    "Own has a make_train_function of its own, which replaces the training step with its checkpoints, figures and stops"
)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def make_train_function(self, force=False):
        @tf.function
        def steps(iterator):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True)[:, 0] - y))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

        self.train_function = steps


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = Own()
    model.compile("adam", "mse")
    return model, (x, x.sum(axis=1))
