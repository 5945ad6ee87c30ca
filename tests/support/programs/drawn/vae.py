"""A variational autoencoder: a sampling layer with a SeedGenerator, a model that is built in its first step."""

import keras
import numpy as np
import tensorflow as tf


class Sampling(keras.layers.Layer):
    def __init__(self, **more):
        super().__init__(**more)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        noise = keras.random.normal(keras.ops.shape(mean), seed=self.seed_generator)
        return mean + keras.ops.exp(0.5 * log_var) * noise


class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.total = keras.metrics.Mean("loss")
        self.divergence = keras.metrics.Mean("kl_loss")

    @property
    def metrics(self):
        return [self.total, self.divergence]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            rebuilt = tf.reduce_mean(tf.square(data - self.decoder(z)))
            divergence = -0.5 * tf.reduce_mean(1 + log_var - tf.square(mean) - tf.exp(log_var))
            loss = rebuilt + divergence
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total.update_state(loss)
        self.divergence.update_state(divergence)
        return {metric.name: metric.result() for metric in self.metrics}


def build(context):
    x = np.random.default_rng(0).random((120, 8)).astype("float32")
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(8, "relu")(inputs)
    mean, log_var = keras.layers.Dense(2)(hidden), keras.layers.Dense(2)(hidden)
    encoder = keras.Model(inputs, [mean, log_var, Sampling()([mean, log_var])])
    decoder = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(8)])
    vae = VAE(encoder, decoder)
    vae.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9))
    return vae, x
