"""A user's own steps, callbacks and optimizers in the loop: as in Keras' fit, and none of their files lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.own import Write
from tests.support.training import Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own callbacks


HEAD = """
import keras, numpy as np, tensorflow as tf
seen = []
rng = np.random.default_rng(0)
x, y = rng.normal(size=(100, 4)).astype("float32"), rng.normal(size=(100, 1)).astype("float32")
def model(compiled=True, **more):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    if compiled:
        made.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"], **more)
    return made
"""
SHORT = ("epochs=2", "batch_size=10", "validation_split=0")


def warnings(training: Training) -> list[str]:
    return [event["message"] for event in training.announce().events("warning")]


def seen() -> list[Any]:
    """What the user's module has collected."""
    found: list[Any] = sys.modules["train"].seen
    return found


# ---- figures that are no plain numbers ----------------------------------------------------------------

F1 = (
    HEAD
    + """
class See(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        assert logs == {}
    def on_train_batch_end(self, batch, logs=None):
        seen.append(logs["f1_score"])
    def on_epoch_end(self, epoch, logs=None):
        seen.append(logs["f1_score"])
        logs["note"], logs["rate"] = "hello", 0.5
        logs[7], logs[("a", 1)], logs["huge"], logs["odd"] = 0.25, 1, 10**400, Odd()
class Odd:
    def __float__(self):
        raise RuntimeError("no number")
def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    made.compile("sgd", "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    classes = keras.utils.to_categorical(rng.integers(0, 3, 100), 3)
    return {"model": made, "train": (x, classes), "validation": (x, classes), "callbacks": [See()]}
"""
)


def test_a_metric_that_is_a_vector_and_words_in_the_logs(own: Write) -> None:
    training = own(F1, *SHORT, "epochs=1", "steps_per_execution=3", "xla=true").train()
    metrics = training.events("epoch")[-1]["metrics"]
    names = {"loss", *(f"f1_score_{index}" for index in range(3))}
    assert set(metrics) == names | {f"val_{name}" for name in names} | {"rate", "7", "('a', 1)"}
    assert all(array.shape == (3,) for array in seen())


# ---- their callbacks -------------------------------------------------------------------------------------

EVALUATES = (
    HEAD
    + """
class Test(keras.callbacks.Callback):
    def test(self):
        told = self.model.evaluate(x[:90], y[:90], batch_size=18, verbose=0, return_dict=True)
        predicted = self.model.predict(x[:90], batch_size=18, verbose=0)
        seen.append((told["loss"], float(np.mean((predicted - y[:90]) ** 2))))
    def on_epoch_end(self, epoch, logs=None):
        self.test()
    def on_test_end(self, logs=None):
        if len(seen) < 2:
            seen.append(None)
            self.test()
def build(context):
    return {"model": model(), "train": (x, y), "validation": (x[:30], y[:30]), "callbacks": [Test()]}
"""
)


def test_evaluate_in_a_callback_tells_the_truth(own: Write) -> None:
    own(EVALUATES, *SHORT, "epochs=1", "steps_per_execution=2").train()
    pairs = [pair for pair in seen() if pair]
    assert len(pairs) == 2, "while Keras validates, and after the epoch"
    for told, true in pairs:
        assert told == pytest.approx(true, rel=1e-4)


FILES = (
    HEAD
    + """
class Best(keras.callbacks.ModelCheckpoint):
    pass
def build(context):
    kept = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    return {"model": model(), "train": (x, y),
            "callbacks": [keras.callbacks.CSVLogger("log.csv"), Best("best.keras"), kept]}
"""
)


def test_a_run_that_only_measures_leaves_their_files_alone(own: Write, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("theirs")
    training = own(FILES, *SHORT, "run.measure_seconds=1000").train()
    assert (tmp_path / "log.csv").read_text() == "theirs"
    assert not (tmp_path / "best.keras").exists()
    assert seen() == [0, 1]
    told = [message for message in warnings(training) if "does not touch your files" in message]
    assert [message.split()[0] for message in told] == ["CSVLogger", "Best"]
    own(FILES, *SHORT).train()
    assert (tmp_path / "log.csv").read_text().startswith("epoch,")
    assert (tmp_path / "best.keras").exists()
