"""A generative adversarial network of Keras' own random numbers: two optimizers, drawn by a generator of the model."""

import keras
import numpy as np
import tensorflow as tf


class GAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.discriminator = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        self.generator = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
        self.draws = keras.random.SeedGenerator(3)
        self.d_loss, self.g_loss = keras.metrics.Mean("d_loss"), keras.metrics.Mean("g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    def train_step(self, real):
        size = tf.shape(real)[0]
        made = self.generator(keras.random.normal((size, 3), seed=self.draws))
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
        labels += 0.05 * keras.random.uniform(tf.shape(labels))  # Keras' global generator
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(tf.concat([made, real], axis=0)))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            fake = self.discriminator(self.generator(keras.random.normal((size, 3), seed=self.draws)))
            g_loss = self.loss_fn(tf.zeros((size, 1)), fake)
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


def build(context):
    gan = GAN()
    gan.compile(
        keras.optimizers.SGD(0.02, momentum=0.9),
        keras.optimizers.SGD(0.05, momentum=0.9),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return gan, np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
