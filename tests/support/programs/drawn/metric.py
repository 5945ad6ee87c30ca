"""Metric learning whose step draws noise from a tf.random.Generator of the module and from NumPy."""

import keras
import numpy as np
import tensorflow as tf

noise = tf.random.Generator.from_seed(5)


class Embedder(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
        self.seen = tf.Variable(0, trainable=False)
        self.loss_tracker = keras.metrics.Mean("loss")

    def call(self, inputs):
        return keras.ops.normalize(self.embed(inputs), axis=-1)

    def train_step(self, data):
        x, y = data
        self.seen.assign_add(1)
        swing = tf.numpy_function(lambda: np.float32(np.random.uniform(0.5, 1.5)), [], tf.float32)
        swing = tf.ensure_shape(swing, ())
        with tf.GradientTape() as tape:
            embedded = self(x + 0.3 * swing * noise.normal(tf.shape(x)) / tf.cast(self.seen, tf.float32), training=True)
            alike = tf.cast(y[:, None] == y[None, :], tf.float32)
            loss = tf.reduce_mean(tf.square(tf.matmul(embedded, embedded, transpose_b=True) - alike))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build(context):
    x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    model = Embedder()
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9))
    return model, (x, (x[:, 0] > 0).astype("int32"))
