"""The course of a training: early stopping, the best models, and the end of data.

The stories of trainings, with the rules that end them, are in tests/contract/test_stories.py.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import TrainerError, epoch_rules, save_as
from tests.support.own import Write
from tests.support.training import Build, Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


COSTS = (5.0, 3.0, 3.5, 2.0, 2.5, 2.0, 9.0, 1.0)
SOURCE = f"""
import keras, numpy as np

rng = np.random.default_rng(0)
x, y = rng.normal(size=(40, 4)).astype("float32"), rng.normal(size=(40, 1)).astype("float32")

class Cost(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["cost"] = {COSTS}[epoch]
        WEIGHTS.append(self.model.get_weights())

WEIGHTS = []

def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    if context.args.get("fit"):
        @keras.saving.register_keras_serializable()
        class Fitting(keras.Sequential):
            def fit(self, *args, **named):
                return super().fit(*args, **named)
        model = Fitting(model.layers)
    parts = {{"model": model, "train": (x, y), "test": (x[:7], y[:7]), "callbacks": [Cost()]}}
    if context.args.get("compiled"):
        model.compile("sgd", "mse")
        return parts
    return parts | {{"loss": "mse", "metrics": ["mae"]}}
"""
SHORT = ("epochs=8", "batch_size=20", "validation_split=0")


def best(training: Training, option: str) -> Any:
    return training.loop.built.report.best[option]


def weights_of(training: Training) -> list[list[Any]]:
    """The weights at the end of each epoch, as the user's callback has seen them."""
    assert training.loop.built.own is not None
    (module,) = (module for module in training.loop.built.own.code.modules() if hasattr(module, "WEIGHTS"))
    return list(module.WEIGHTS)


@pytest.mark.parametrize("args", ["{}", pytest.param("{fit: true}", marks=pytest.mark.nightly)])
def test_a_training_ends_by_a_figure_of_its_own_and_keeps_the_best_models(args: str, own: Write) -> None:
    training = own(
        SOURCE, *SHORT, f"workload.args={args}", "early_stop=cost:min", "early_stop_patience=3",
        "early_stop_restore=true", "keep_best=cost:min", "keep_best_count=2",
    ).train()  # fmt: skip
    model, weights = training.loop.built.model, weights_of(training)
    assert training.loop.built.report.ended_by == "early_stop"
    assert len(weights) == 7  # 2.0 in epoch 4, and three epochs without a better one
    early, kept = best(training, "train.early_stop"), best(training, "run.keep_best")
    assert (early["epoch"], early["value"], early["restores"]) == (4, 2.0, True)
    np.testing.assert_array_equal(model.get_weights()[0], weights[3][0])
    files = [f"best/epoch-{epoch:04d}.keras" for epoch in (4, 6)]
    assert [(item["epoch"], item["value"], item["file"]) for item in kept["files"]] == [
        (4, 2.0, files[0]), (6, 2.0, files[1]),
    ], "of equal ones the earlier first"  # fmt: skip
    assert sorted(path.name for path in training.run.file("best").iterdir()) == [file[5:] for file in files]
    for epoch, file in ((3, files[0]), (5, files[1])):
        np.testing.assert_array_equal(
            keras.models.load_model(training.run.file(file)).get_weights()[0], weights[epoch][0]
        )
    events = [(event["option"], event["epoch"]) for event in training.events("best")]
    assert events == [
        ("run.keep_best", 1), ("train.early_stop", 1), ("run.keep_best", 2), ("train.early_stop", 2),
        ("run.keep_best", 2), ("run.keep_best", 4), ("train.early_stop", 4), ("run.keep_best", 4),
        ("run.keep_best", 4),
    ]  # fmt: skip


def test_directions_are_those_of_keras(build: Build) -> None:
    settings = ("model=mlp", "width=0.1", "epochs=3", "steps_per_epoch=2", "batch_size=16")
    training = build(*settings, "keep_best=val_accuracy", "early_stop=val_loss").train()
    by_epoch = {event["epoch"]: event["metrics"] for event in training.events("epoch")}
    kept = best(training, "run.keep_best")
    assert kept["value"] == max(metrics["val_accuracy"] for metrics in by_epoch.values())
    assert best(training, "train.early_stop")["value"] == min(metrics["val_loss"] for metrics in by_epoch.values())
    assert keras.models.load_model(training.run.file(kept["files"][0]["file"])).count_params() > 0


def test_a_full_disk_costs_a_model_and_not_the_training(own: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_in_epoch_2(built: Any, path: Path, *more: Any) -> Path:
        if "0002" in path.name:
            path.write_text("half of it")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return save_as(built, path, *more)

    monkeypatch.setattr(epoch_rules, "save_as", full_in_epoch_2)
    source = SOURCE.replace("(5.0,", "(float('nan'),")  # which no other epoch would be better than
    training = own(source, *SHORT, "epochs=6", "keep_best=cost:min", "keep_best_count=2").train()
    assert [item["epoch"] for item in best(training, "run.keep_best")["files"]] == [4, 6]
    assert sorted(path.name for path in training.run.file("best").iterdir()) == ["epoch-0004.keras", "epoch-0006.keras"]
    (warning,) = training.events("warning")
    assert warning["kind"] == "keep_best"
    assert "the model of epoch 2 is not kept" in warning["message"]

    training.loop.test()  # with the model of the best epoch, not the last one
    (tested,) = training.events("test")
    (kernel, bias), own_training = weights_of(training)[3], training.loop.built.own
    assert own_training is not None
    data = own_training.returned.test
    errors = (data[0] @ kernel + bias - data[1]) ** 2
    assert (tested["epoch"], tested["samples"]) == (4, 7)
    assert tested["metrics"]["test_loss"] == pytest.approx(errors.mean(), rel=1e-5)


DATA = ("model=mlp", "width=0.05", "optimizer=sgd", "data=digits", "validation_split=0", "cache=memory",
        "one_batch=true")  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_an_operation_that_reports_the_end_of_its_data_does_not_begin_the_same_epoch_for_ever(build: Build) -> None:
    training = build(*DATA, "batch_size=8", "epochs=2", "steps_per_epoch=3")

    def damaged(*execution: Any) -> Any:
        raise tf.errors.OutOfRangeError(None, None, "Read less bytes than requested")

    training.loop._run = damaged  # type: ignore[method-assign, assignment]
    with pytest.raises(TrainerError, match="before its first step"):
        training.train()
