"""A diffusion model: noise and times drawn in each step, and a second network that follows the first as an average."""

import keras
import numpy as np
import tensorflow as tf


def network():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])


class Diffusion(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = keras.layers.Normalization()
        self.network = network()
        self.ema_network = keras.models.clone_model(self.network)
        self.noise_loss = keras.metrics.Mean("loss")

    @property
    def metrics(self):
        return [self.noise_loss]

    def noised(self, x):
        noise = keras.random.normal(tf.shape(x))
        times = keras.random.uniform((tf.shape(x)[0], 1))
        return noise, tf.concat([x * tf.cos(times) + noise * tf.sin(times), times], axis=1)

    def train_step(self, x):
        noise, noisy = self.noised(self.normalizer(x, training=True))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(noise - self.network(noisy, training=True)))
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.noise_loss.update_state(loss)
        for weight, average in zip(self.network.weights, self.ema_network.weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return {"loss": self.noise_loss.result()}

    def test_step(self, x):
        noise, noisy = self.noised(self.normalizer(x, training=False))
        self.noise_loss.update_state(tf.reduce_mean(tf.square(noise - self.ema_network(noisy, training=False))))
        return {"loss": self.noise_loss.result()}


def build(context):
    x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    model = Diffusion()
    model.normalizer.adapt(x)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9, weight_decay=1e-4))
    return model, x, x[:40]
