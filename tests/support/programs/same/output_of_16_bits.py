"""A subclassed model in mixed precision, whose last layer has 16 bits, too."""

import keras
import numpy as np

SETTINGS = ("precision.policy=mixed_bfloat16",)
WARNS = ("narrow_output",)


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.classes = keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")

    def call(self, x):
        return self.classes(self.hidden(x))


def build(context):
    x = np.random.default_rng(1).normal(size=(105, 4)).astype("float32")
    model = Classifier()
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, (x, x[:, :3].argmax(axis=1))
