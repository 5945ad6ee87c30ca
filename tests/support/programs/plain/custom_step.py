"""A variational autoencoder: a subclassed model with a training step and loss trackers of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, log_variance = inputs
        epsilon = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * epsilon


class VAE(keras.Model):
    def __init__(self, size, latent=2):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(16, activation="relu")])
        self.mean, self.log_variance = layers.Dense(latent), layers.Dense(latent)
        self.sampling = Sampling()
        self.decoder = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(size)])
        self.reconstruction_tracker = keras.metrics.Mean(name="reconstruction")
        self.kl_tracker = keras.metrics.Mean(name="kl")

    @property
    def metrics(self):
        return [self.reconstruction_tracker, self.kl_tracker]

    def call(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return self.decoder(self.sampling([mean, log_variance])), mean, log_variance

    def train_step(self, x):
        with tf.GradientTape() as tape:
            decoded, mean, log_variance = self(x, training=True)
            reconstruction = ops.mean(ops.square(x - decoded))
            kl = -0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance))
            loss = reconstruction + 0.01 * kl
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.reconstruction_tracker.update_state(reconstruction)
        self.kl_tracker.update_state(kl)
        return {"loss": reconstruction, "kl": self.kl_tracker.result()}


def main():
    keras.utils.set_random_seed(7)
    batch_size, epochs = 32, 2
    x = np.random.default_rng(0).normal(size=(320, 12)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(x).batch(batch_size)
    model = VAE(size=12)
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    history = model.fit(data, epochs=epochs, verbose=0)
    print(history.history["loss"][-1])


if __name__ == "__main__":
    main()
