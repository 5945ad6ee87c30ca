"""Arrays with a part kept back, arguments, a second module, a callback that predicts, and work after the fit."""

import argparse
import json
import sys

import keras
import numpy as np
from beside import data

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=1)


class Predicts(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("RESULT", epoch, self.model.predict(data(3)[0], verbose=0).sum())


def main():
    asked = parser.parse_args()
    keras.utils.set_random_seed(7)
    x, y = data(170)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(asked.rate), "mse", metrics=["mae"])
    weights = np.linspace(0.5, 1.5, 170)
    stop = keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)
    history = model.fit(x, y, batch_size=16, epochs=asked.epochs, validation_split=0.2, sample_weight=weights,
                        callbacks=[stop, Predicts()], verbose=0)  # fmt: skip
    print("RESULT", json.dumps(history.history), history.epoch, history.params)
    print("RESULT", model.evaluate(x, y, verbose=0))
    model.optimizer.learning_rate = 0.001
    print("RESULT", json.dumps(model.fit(x, y, epochs=1, verbose=0).history))
    return 0


if __name__ == "__main__":
    sys.exit(main())
