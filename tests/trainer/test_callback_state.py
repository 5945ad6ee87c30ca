"""Callbacks go on in a resumed training as if it had not been interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine.trainer.checkpoint import callback_state
from gputui.engine.trainer.checkpoint.packed import Arrays
from gputui.engine.trainer.common.training_errors import TrainerError

from tests.support.own import Write
from tests.support.training import Training

PROGRAM = """
import keras, numpy as np

class Counts(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = {"batches": 0, "losses": [], "pair": (0, None), "last": np.zeros(2, "float32")}
    def get_state(self):
        return self.seen
    def set_state(self, state):
        self.seen = state
    def on_train_batch_end(self, batch, logs=None):
        self.seen["batches"] += 1
    def on_epoch_end(self, epoch, logs=None):
        self.seen["losses"].append(logs["loss"])
        self.seen["pair"] = (epoch, "text")
        self.seen["last"][epoch % 2] = logs["val_loss"]

def build(context):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=120) * 2).astype("float32")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.03), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1),
        keras.callbacks.ModelCheckpoint("best.keras", "val_loss", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        Counts(),
    ]
    data = {"train": (x[:100], y[:100]), "validation": (x[100:], y[100:])}
    return {"model": model, **data, "callbacks": callbacks}
"""
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own callbacks

SETTINGS = ("epochs=30", "batch_size=20", "checkpoint=3", "keep=99")  # 5 steps per epoch


def resumed(own: Write, whole: Training, step: int, *settings: str, source: str = PROGRAM) -> Training:
    """Another training of the program, from a checkpoint of `whole`."""
    again = own(source, *settings)
    name = f"step-{step:010d}"
    shutil.copytree(whole.run.file("checkpoints") / name, again.run.file("checkpoints") / name)
    again.loop.run(step)
    return again


def kept(training: Training) -> list[dict[str, Any]]:
    """What the callbacks have counted, without objects of Keras."""
    own = training.loop.built.own
    assert own is not None
    left_out = ("_model", "_params", "model", "params", "monitor_op", "csv_file", "writer", "append_header")
    return [{name: value for name, value in vars(each).items() if name not in left_out} for each in own.callbacks]


def test_callbacks_of_keras_and_those_with_a_state_go_on(own: Write) -> None:
    whole = own(PROGRAM, *SETTINGS).train()
    csv = Path("log.csv").read_text()
    assert whole.loop.step < 150, "EarlyStopping has ended it"
    step = whole.loop.step - whole.loop.step % 3 - 6
    again = resumed(own, whole, step, *SETTINGS)
    assert again.loop.step == whole.loop.step
    assert Path("log.csv").read_text() == csv
    np.testing.assert_equal(kept(again), kept(whole))
    pairs = zip(again.loop.built.model.get_weights(), whole.loop.built.model.get_weights(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
    assert again.events("warning") == []


class Gives(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = state


UNSAVED = {
    "set": ({"pair": [1, {2}]}, r"get_state of the callback Gives returns a value of type set in state\['pair'\]\[1\]"),
    "key": ({"pair": {1: 2}}, r"returns the key 1 in state\['pair'\]"),
    "objects": ({"last": np.array([None])}, r"returns an array of object in state\['last'\]"),
    "whole": ([1], "returns list, not a dict"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_a_state_that_cannot_be_saved_is_refused(name: str) -> None:
    state, message = UNSAVED[name]
    with pytest.raises(TrainerError, match=message):
        callback_state.state_of([Gives(state)], Arrays())


def test_one_method_without_the_other_is_refused(own: Write) -> None:
    with pytest.raises(TrainerError, match="the callback Counts has get_state, but no set_state"):
        own(PROGRAM.replace("set_state", "put_state"), *SETTINGS)
