"""Programs of a user's for the recorded trainings: data of several kinds, callbacks, and one that ends itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

SIZE = 12


def _data() -> tuple[Any, Any]:
    drawn = np.random.default_rng(4)
    x = drawn.normal(size=(100, 6)).astype("float32")
    return x, (x[:, :2].sum(axis=1, keepdims=True) + 0.1 * x[:, 2:3] ** 2).astype("float32")


def _model(context: Any) -> Any:
    hidden = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)]
    model = keras.Sequential([keras.Input((6,)), *hidden, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 9

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        x, y = _data()
        return x[place * SIZE : (place + 1) * SIZE], y[place * SIZE : (place + 1) * SIZE]


def py_dataset(context: Any) -> dict[str, Any]:
    x, y = _data()
    return {"model": _model(context), "train": Batches(), "validation": (x[:20], y[:20])}


def generator(context: Any) -> dict[str, Any]:
    x, y = _data()

    def batches() -> Iterator[tuple[Any, Any]]:
        for place in range(0, 100, SIZE):
            yield x[place : place + SIZE], y[place : place + SIZE]

    return {"model": _model(context), "train": batches}


class Freezes(keras.callbacks.Callback):  # type: ignore[misc]
    """Changes what the training reads: a layer's trainable flag and the learning rate."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.01 / (1 + epoch)
        self.model.layers[0].trainable = epoch != 1


def callbacks(context: Any) -> dict[str, Any]:
    x, y = _data()
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1)
    return {"model": _model(context), "train": (x, y), "validation": (x, y), "callbacks": [Freezes(), plateau]}


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Sends this process the signal of a stop at the step that a file names, once."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.step = file, 0

    def get_state(self) -> dict[str, int]:
        return {"step": self.step}

    def set_state(self, state: dict[str, int]) -> None:
        self.step = state["step"]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step += 1
        if self.file.exists() and int(self.file.read_text()) == self.step:
            self.file.unlink()
            os.kill(os.getpid(), signal.SIGTERM)


def ends_itself(context: Any) -> dict[str, Any]:
    x, y = _data()
    return {"model": _model(context), "train": (x, y), "callbacks": [Ends(Path(context.args["at"]))]}
