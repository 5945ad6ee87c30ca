"""Early stopping, the best models, and a learning rate that falls on a plateau: by the figures of each epoch."""

from __future__ import annotations

import errno
import shutil
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine import presets
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import best_models
from gputui.engine.trainer.fit.built_training import save_as

from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened
from tests.support.own import Write
from tests.support.training import Build, Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

COSTS = (5.0, 3.0, 3.5, 2.0, 2.5, 2.1, 9.0, 1.0)
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
    parts = {{"model": model, "train": (x, y), "callbacks": [Cost()]}}
    if context.args.get("compiled"):
        model.compile("sgd", "mse")
        return parts
    return parts | {{"loss": "mse", "metrics": ["mae"]}}
"""
SHORT = ("epochs=8", "batch_size=20", "validation_split=0")


def resumed(own: Write, source: str, whole: Training, step: int, *settings: str) -> Training:
    """Another training of the same program, from the checkpoint of that step on."""
    again = own(source, *settings)
    name = f"step-{step:010d}"
    shutil.copytree(whole.run.file("checkpoints") / name, again.run.file("checkpoints") / name)
    again.loop.run(step)
    return again


def best(training: Training, option: str) -> dict[str, Any]:
    return training.loop.built.report.best[option]


def weights_of(training: Training) -> list[list[Any]]:
    """The weights at the end of each epoch, as the user's callback has seen them."""
    assert training.loop.built.own is not None
    (module,) = (module for module in training.loop.built.own.code.modules() if hasattr(module, "WEIGHTS"))
    return list(module.WEIGHTS)


@pytest.mark.parametrize("args", ["{}", "{fit: true}", "{compiled: true}"])
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
        (4, 2.0, files[0]), (6, 2.1, files[1]),
    ]  # fmt: skip
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


def test_the_learning_rate_falls_on_a_plateau_as_keras_does_it(own: Write) -> None:
    settings = ("schedule=reduce_on_plateau", "plateau_figure=cost:min", "plateau_patience=2", "decay_rate=0.5")
    training = own(SOURCE, *SHORT, *settings, "learning_rate=0.01", "plateau_min_rate=0.004").train()
    rates = [event["metrics"]["learning_rate"] for event in training.events("epoch")]
    assert rates == pytest.approx([0.01] * 6 + [0.005] * 2)  # 2.0 in epoch 4; falls at the end of epoch 6
    compiled = own(SOURCE, *SHORT, *settings, "workload.args={compiled: true}").train()
    assert all("learning_rate" not in event["metrics"] for event in compiled.events("epoch"))


def test_directions_are_those_of_keras_and_a_missing_figure_is_named(own: Write, build: Build) -> None:
    settings = ("model=mlp", "width=0.1", "epochs=3", "steps_per_epoch=2", "batch_size=16")
    training = build(*settings, "keep_best=val_accuracy", "early_stop=val_loss").train()
    by_epoch = {event["epoch"]: event["metrics"] for event in training.events("epoch")}
    kept = best(training, "run.keep_best")
    assert kept["value"] == max(metrics["val_accuracy"] for metrics in by_epoch.values())
    assert best(training, "train.early_stop")["value"] == min(metrics["val_loss"] for metrics in by_epoch.values())
    assert keras.models.load_model(training.run.file(kept["files"][0]["file"])).count_params() > 0
    for setting, message, hint in (
        ("early_stop=f1", "no figure f1; its figures are loss, mae, cost", "set train.early_stop to one of them"),
        ("keep_best=cost", "does not know if cost is to rise or to fall", "run.keep_best to cost:max or cost:min"),
        ("early_stop=val_loss", "has no validation data", "set train.early_stop to loss"),
    ):
        with pytest.raises(TrainerError) as raised:
            own(SOURCE, *SHORT, setting).train()
        assert message in str(raised.value)
        assert hint in raised.value.hint


def test_a_figure_that_comes_later_does_not_begin_the_others_again(own: Write) -> None:
    """Also in a training that is resumed before the validation."""
    settings = (
        *SHORT, "validation_split=0.5", "early_stop=cost:min", "early_stop_patience=2", "keep_best=val_loss",
        "checkpoint=1", "keep=9",
    )  # fmt: skip
    seldom = SOURCE.replace('"callbacks": [Cost()]', '"callbacks": [Cost()], "validation_freq": 7')
    whole = own(seldom, *settings).train()
    for training in (whole, resumed(own, seldom, whole, 5, *settings)):
        assert training.loop.built.report.ended_by == "early_stop"
        assert training.loop.step == 6  # 2.0 in epoch 4, and two epochs without a better one


RULES = (
    "early_stop=cost:min", "early_stop_patience=3", "early_stop_restore=true", "keep_best=cost:min",
    "keep_best_count=2", "schedule=reduce_on_plateau", "plateau_figure=cost:min", "plateau_patience=1",
    "decay_rate=0.5", "checkpoint=1", "keep=20", "save_model=true",
)  # fmt: skip


def test_a_resumed_training_ends_in_the_same_epoch_with_the_same_best_models(own: Write) -> None:
    whole = own(SOURCE, *SHORT, *RULES).train()
    for step in (9, 12, 14):  # in the middle of epoch 5, at the end of epoch 6, and when the training has ended
        again = resumed(own, SOURCE, whole, step, *SHORT, *RULES)
        reports = again.loop.built.report, whole.loop.built.report
        assert reports[0].ended_by == reports[1].ended_by == "early_stop"
        assert again.loop.step == whole.loop.step == 14
        assert reports[0].best == reports[1].best
        rates = [[event["metrics"]["learning_rate"] for event in each.events("epoch")] for each in (again, whole)]
        assert rates[0] == rates[1][step // 2 :]
        np.testing.assert_array_equal(*(training.loop.built.model.get_weights()[0] for training in (again, whole)))
        assert again.run.file("best/epoch-0006.keras").exists() == (step < 12)


KILLER = """
import os, signal

class Killer(keras.callbacks.Callback):
    batches = 0
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 10 and os.path.exists("kill me"):
            os.unlink("kill me")
            os.kill(os.getpid(), signal.SIGKILL)

plain = build
def build(context):
    parts = plain(context)
    return parts | {"callbacks": [*parts["callbacks"], Killer()]}
"""


def test_replicas_decide_together_and_go_on_after_a_kill(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE + KILLER)
    settings = ("seed=5", *SHORT, *RULES, "strategy.kind=mirrored", "logical_devices=2", "batch_size=10",
                f"entry={tmp_path / 'train.py'}:build", f"folder={tmp_path}")  # fmt: skip
    (whole, undisturbed), (killed, trainer) = (trainer_of(presets.defaults(settings)) for _ in range(2))
    forks.run(undisturbed)
    (tmp_path / "kill me").touch()
    assert forks.codes(trainer) == [-signal.SIGKILL]
    forks.run(trainer)
    assert [event["resumed_at_step"] for event in happened(killed, "started")] == [None, 9]
    results = [run.result or {} for run in (killed, whole)]
    assert results[0]["ended_by"] == results[1]["ended_by"] == "early_stop"
    assert results[0]["best"] == results[1]["best"]
    for file in ("best/epoch-0004.keras", "best/epoch-0006.keras", "model.keras"):
        pair = (keras.models.load_model(run.file(file)).get_weights()[0] for run in (killed, whole))
        np.testing.assert_array_equal(*pair)


def test_a_full_disk_costs_a_model_and_not_the_training(own: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_in_epoch_2(built: Any, path: Path, *more: Any) -> Path:
        if "0002" in path.name:
            path.write_text("half of it")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return save_as(built, path, *more)

    monkeypatch.setattr(best_models, "save_as", full_in_epoch_2)
    training = own(SOURCE, *SHORT, "epochs=5", "keep_best=cost:min", "keep_best_count=2").train()
    assert [item["epoch"] for item in best(training, "run.keep_best")["files"]] == [4, 5]
    assert sorted(path.name for path in training.run.file("best").iterdir()) == ["epoch-0004.keras", "epoch-0005.keras"]
    (warning,) = training.events("warning")
    assert warning["kind"] == "keep_best"
    assert "the model of epoch 2 is not kept" in warning["message"]
