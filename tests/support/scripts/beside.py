"""The data of the scripts next to it."""

import numpy as np


def data(count):
    x = np.random.default_rng(1).normal(size=(count, 6)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)
