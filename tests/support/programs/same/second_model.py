"""A callback trains a second compiled model, whose weights and slots are created at its first batch."""

import keras
import numpy as np


class Critic(keras.callbacks.Callback):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.critic = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
        self.critic.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])

    def on_epoch_end(self, epoch, logs=None):
        error = (self.model.predict_on_batch(self.x)[:, 0] - self.y) ** 2
        loss, _ = [self.critic.train_on_batch(self.x, error) for _ in range(5)][-1]
        self.model.gate.assign(1 / (1 + float(loss)))


class Gated(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(8, "relu"), keras.layers.Dense(1)
        self.gate = self.add_weight(shape=(), initializer="ones", trainable=False, name="gate")

    def call(self, x):
        return self.out(self.hidden(x) * self.gate)


def build(context):
    x = np.random.default_rng(0).normal(size=(105, 4)).astype("float32")
    y = x.sum(axis=1)
    model = Gated()
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return {"model": model, "train": (x, y), "validation": (x[:40], y[:40]), "callbacks": [Critic(x[:20], y[:20])]}
