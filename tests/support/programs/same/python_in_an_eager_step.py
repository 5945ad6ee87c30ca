"""A loss whose weight is a Python number that each step changes: it needs steps that run eagerly."""

import keras
import numpy as np

REFUSED = (
    "Annealed is compiled with run_eagerly=True: here its steps run as a graph, in which Python code runs only once"
)


class Annealed(keras.Model):
    share = 0.0

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.share = min(1.0, self.share + 0.01)
        return self.share * super().compute_loss(x, y, y_pred, sample_weight, training)


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = Annealed()
    model.compile("adam", "mse", run_eagerly=True)
    return model, (x, x.sum(axis=1))
