"""A keras.utils.PyDataset that reads its batches from files, in an order that it shuffles itself."""

import tempfile
from pathlib import Path

import keras
import numpy as np
from keras import layers


class Files(keras.utils.PyDataset):
    def __init__(self, folder, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.paths = sorted(folder.glob("*.npz"))
        self.batch_size = batch_size
        self.rng = np.random.default_rng(3)
        self.passes = 0

    def __len__(self):
        return -(-len(self.paths) // self.batch_size)

    def __getitem__(self, index):
        chosen = self.paths[index * self.batch_size : (index + 1) * self.batch_size]
        loaded = [np.load(path) for path in chosen]
        return np.stack([one["x"] for one in loaded]), np.stack([one["y"] for one in loaded])

    def on_epoch_end(self):
        self.passes += 1
        self.rng.shuffle(self.paths)


def make_files(folder, samples=60):
    rng = np.random.default_rng(2)
    for number in range(samples):
        x = rng.normal(size=(5,)).astype("float32")
        np.savez(folder / f"{number:03}.npz", x=x, y=np.float32(x.sum()))
    return folder


def make_model():
    model = keras.Sequential([keras.Input((5,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    return model


def main():
    batch_size, epochs = 16, 3
    folder = make_files(Path(tempfile.mkdtemp()))
    train = Files(folder, batch_size)
    model = make_model()
    model.fit(train, epochs=epochs, verbose=0)
    print(model.evaluate(train, verbose=0))


if __name__ == "__main__":
    main()
