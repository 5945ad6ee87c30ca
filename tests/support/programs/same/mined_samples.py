"""A PyDataset that orders its samples by the model's losses at the end of each epoch, in an array and a generator."""

import keras
import numpy as np


class Mined(keras.utils.PyDataset):
    def __init__(self, model, x, y):
        super().__init__()
        self.model, self.x, self.y = model, x, y
        self.order, self.rng = np.arange(len(x)), np.random.default_rng(2)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        at = self.order[index * 16 : (index + 1) * 16]
        return self.x[at], self.y[at]

    def on_epoch_end(self):
        loss = (self.model.predict(self.x, verbose=0) - self.y) ** 2
        self.order[:] = np.argsort(-loss[:, 0])
        self.rng.shuffle(self.order[:70])


def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    x = np.random.default_rng(1).normal(size=(128, 4)).astype("float32")
    return model, Mined(model, x, x.sum(1, keepdims=True))


def plain(made, context):
    model, train = made["model"], made["train"]
    return model.fit(train, epochs=context.epochs, shuffle=False, verbose=0)
