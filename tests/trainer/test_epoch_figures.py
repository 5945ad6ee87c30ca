"""What the figures of an epoch decide, without a training: which models are kept, what is reported as the best."""

from __future__ import annotations

import errno
import functools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from gputui.engine.runs import Run
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import best_models
from gputui.engine.trainer.fit.best_models import BestModels
from gputui.engine.trainer.fit.epoch_rules import EpochRules
from gputui.engine.trainer.measure.run_report import RunReport

from tests.support.training import options

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # in Keras


class Parts:
    """A built training, of which only the parts that these rules look at are there."""

    def __init__(self, folder: Path, *settings: str, index: int | None = None, rows: Any = None) -> None:
        self.options = options(*settings)
        folder.mkdir(exist_ok=True)
        run = Run(folder)
        self.report = RunReport(run, EventWriter(run.file("events.jsonl"), run.id))
        self.own: Any = None
        self.pipeline: Any = SimpleNamespace(validation_batches=3)
        cluster = SimpleNamespace(is_chief=index == 0)
        exchange = SimpleNamespace(rows=rows)
        self.joined: Any = None if index is None else SimpleNamespace(cluster=cluster, exchange=exchange)

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.report.run.file("events.jsonl").read_text().splitlines())
        return [{name: value for name, value in event.items() if name not in ("type", "t", "v", "run")}
                for event in lines if event["type"] == kind]  # fmt: skip


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Models are saved as files with their epoch; what is put into this list is raised instead, once."""
    faults: list[Any] = []

    def save(built: Any, path: Path, named: Path, option: str) -> Path:
        assert (path.name, option) == (f".draft-{named.name[6:]}", "run.keep_best")
        path.write_text("half")
        if faults:
            fault = faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            path.unlink()
            path = path.with_suffix(fault)
        path.write_text(named.name)
        return path

    monkeypatch.setattr(best_models, "save_as", save)
    return faults


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "best").iterdir())


# ---- which models are kept ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "count", "kept"),
    [
        ("min", 1, [[1], [2], [2], [2], [2], [6], [6]]),
        ("min", 2, [[1], [2, 1], [2, 3], [2, 3], [2, 3], [6, 2], [6, 2]]),
        ("max", 2, [[1], [1, 2], [1, 2], [4, 1], [4, 1], [4, 1], [4, 1]]),
        ("max", 9, [[1], [1, 2], [1, 2, 3], [4, 1, 2, 3], [4, 1, 2, 3], [4, 1, 2, 3, 6], [4, 1, 7, 2, 3, 6]]),
    ],
)
def test_the_best_models_are_kept_and_of_equal_ones_the_earlier(
    mode: str, count: int, kept: list[list[int]], saves: list[Any], tmp_path: Path
) -> None:
    built: Any = Parts(tmp_path, "checkpoint=off")
    best = BestModels("cost", count, built)
    best.mode = mode
    for epoch, value in enumerate((5.0, 3.0, 3.0, 8.0, math.nan, 2.0, 4.0)):
        best.on_epoch_end(epoch, {"cost": value, "loss": -epoch})
        names = [f"epoch-{number:04}.keras" for number in kept[epoch]]
        assert [item["epoch"] for item in best.files] == kept[epoch]
        assert [item["file"] for item in best.files] == [f"best/{name}" for name in names]
        assert files(tmp_path) == sorted(names), "without checkpoints the others go at once"
    assert [item["value"] for item in best.files][:1] == [2.0 if mode == "min" else 8.0]


def test_with_checkpoints_a_superseded_model_stays_until_the_next_one(saves: list[Any], tmp_path: Path) -> None:
    built: Any = Parts(tmp_path, "checkpoint=epoch")
    best = BestModels("cost", 1, built)
    best.mode = "min"
    for epoch, value in enumerate((5.0, 3.0)):
        best.on_epoch_end(epoch, {"cost": value})
    state = json.loads(json.dumps(best.get_state()))
    best.on_epoch_end(2, {"cost": 1.0})
    assert files(tmp_path) == ["epoch-0001.keras", "epoch-0002.keras", "epoch-0003.keras"]
    again = BestModels("cost", 1, built)
    again.set_state(state)
    assert again.files == [{"epoch": 2, "value": 3.0, "file": "best/epoch-0002.keras"}]
    (tmp_path / "best" / ".draft-0009.keras").touch()
    again.remove_others()
    assert files(tmp_path) == ["epoch-0002.keras"]
    assert built.events("phase") == [
        {"phase": "saving", "detail": "best model"}, {"phase": "training", "detail": ""},
    ] * 3  # fmt: skip


OF_HDF5 = RuntimeError("Unable to write, errno = 28, no space")
FULL = OSError(errno.ENOSPC, "No space left on device", "/x")


@pytest.mark.parametrize(("fault", "why"), [(FULL, "No space left on device"), (OF_HDF5, str(OF_HDF5))])
def test_a_disk_that_refuses_costs_this_model_and_any_other_fault_is_raised(
    fault: Exception, why: str, saves: list[Any], tmp_path: Path
) -> None:
    built: Any = Parts(tmp_path, "checkpoint=epoch")
    best = BestModels("cost", 3, built)
    best.mode = "min"
    best.on_epoch_end(0, {"cost": 5.0})
    saves += [fault, FULL, ".weights.h5"]
    for epoch in (1, 2, 3):
        best.on_epoch_end(epoch, {"cost": 4.0})
    kept = ["epoch-0001.keras", "epoch-0004.weights.h5"]
    assert files(tmp_path) == kept, "no half of a file"
    assert [item["file"] for item in best.files] == [f"best/{name}" for name in reversed(kept)]
    message = f"{why}: the model of epoch 2 is not kept"  # and of the next ones nothing more
    hint = "the training goes on"
    assert built.events("warning") == [
        {"kind": "keep_best", "message": message, "option": "", "hint": hint, "variables": []}
    ]
    saves.append(ValueError("theirs"))
    with pytest.raises(ValueError, match="theirs"):
        best.on_epoch_end(4, {"cost": 3.0})
    assert files(tmp_path) == kept
    assert built.events("phase")[-1]["phase"] == "training"


def test_only_the_first_worker_writes_and_removes_files(saves: list[Any], tmp_path: Path) -> None:
    built: Any = Parts(tmp_path, "checkpoint=off", index=1)
    best = BestModels("cost", 1, built)
    best.mode = "min"
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "other.keras").touch()
    for epoch, value in enumerate((5.0, 3.0)):
        best.on_epoch_end(epoch, {"cost": value})
    assert best.files == [{"epoch": 2, "value": 3.0, "file": ""}]
    assert files(tmp_path) == ["other.keras"]
    chief: Any = Parts(tmp_path, "checkpoint=off", index=0)
    best = BestModels("cost", 1, chief)
    best.mode = "min"
    best.on_epoch_end(0, {"cost": 5.0})
    assert files(tmp_path) == ["epoch-0001.keras"]


# ---- the rules together ------------------------------------------------------------------------


@functools.cache
def model() -> keras.Model:
    """A model that Keras has trained, so that it knows its metrics."""
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.5), "mse", metrics=["accuracy"])
    made.fit(np.zeros((1, 1)), np.zeros((1, 1)), verbose=0)
    return made


def ruled(built: Any) -> EpochRules:
    rules = EpochRules(built)
    rules.set_params({"steps": 10})
    model().optimizer.learning_rate.assign(0.5)
    model().stop_training = False
    rules.set_model(model())
    rules.on_train_begin()
    return rules


RULES = (
    "early_stop=val_loss", "early_stop_patience=2", "early_stop_min_delta=0.1", "early_stop_restore=true",
    "keep_best=val_accuracy", "schedule=reduce_on_plateau", "plateau_figure=val_loss", "plateau_patience=1",
    "decay_rate=0.5", "plateau_min_rate=0.2", "checkpoint=off",
)  # fmt: skip


def test_each_rule_follows_its_own_figure_and_reports_its_best_epoch(saves: list[Any], tmp_path: Path) -> None:
    built: Any = Parts(tmp_path, *RULES)
    rules = ruled(built)
    assert list(rules.callbacks) == ["run.keep_best", "train.plateau_figure", "train.early_stop"]
    rates, weights, told = [], [], []
    epochs = ((1.0, 0.5), (0.95, 0.7), (0.93, 0.6), (0.91, 0.7))
    for epoch, (loss, accuracy) in enumerate(epochs):
        assert rules.stopped is (epoch > 2)
        rules.model.layers[0].kernel.assign([[float(epoch)]])
        logs = {"loss": 9.0, "val_loss": loss, "val_accuracy": accuracy}
        rules.on_epoch_end(epoch, logs)
        rates.append(logs.pop("learning_rate"))
        told.append([(best["option"], best["figure"], best["epoch"], best["step"], best["value"], best["restores"])
                     for best in built.events("best")])  # fmt: skip
        weights.append(rules.model.stop_training)
    early, kept = ("train.early_stop", "val_loss", 1, 10, 1.0, True), "run.keep_best"
    first, second = (kept, "val_accuracy", 1, 10, 0.5, False), (kept, "val_accuracy", 2, 20, 0.7, False)
    # By less than 0.1 it does not improve for early stopping; for the plateau by more than 0.0001 it does.
    assert told[0] == [first, early]
    assert told[1][2:] == [second]
    assert told[2] == told[1]
    assert told[3] == told[2]
    assert weights == [False, False, True, True]
    assert rules.stopped
    assert rates == [0.5] * 4
    rules.on_epoch_end(4, logs := {"val_loss": 2.0, "val_accuracy": 0.1})
    rules.on_epoch_end(5, after := {"val_loss": 2.0, "val_accuracy": 0.1})
    rules.on_epoch_end(6, last := {"val_loss": 2.0, "val_accuracy": 0.1})
    assert [each["learning_rate"] for each in (logs, after, last)] == pytest.approx([0.5, 0.25, 0.2])
    assert (rules.model.layers[0].kernel.numpy().item()) == 3.0
    (tmp_path / "best" / "old.keras").touch()
    rules.on_train_end()
    assert (rules.model.layers[0].kernel.numpy().item()) == 0.0, "the weights of its best epoch"
    assert files(tmp_path) == ["epoch-0002.keras"]
    assert built.report.best["run.keep_best"]["files"] == [
        {"epoch": 2, "value": 0.7, "file": "best/epoch-0002.keras"},
    ]  # fmt: skip


def test_a_state_of_the_rules_goes_on_and_is_reported_again(saves: list[Any], tmp_path: Path) -> None:
    first: Any = Parts(tmp_path / "first", *RULES, "checkpoint=epoch")
    rules = ruled(first)
    rules.on_epoch_end(0, {"val_loss": 1.0, "val_accuracy": 0.5})
    rules.on_epoch_end(1, {"val_loss": 1.0, "val_accuracy": 0.4})
    state = rules.get_state()
    built: Any = Parts(tmp_path / "again", *RULES, "checkpoint=epoch")
    again = ruled(built)
    again.set_state(state)
    reported = [(best["option"], best["epoch"]) for best in built.events("best")]
    assert reported == [("run.keep_best", 1), ("train.early_stop", 1)]
    again.on_epoch_end(2, {"val_loss": 1.0, "val_accuracy": 0.6})
    assert again.stopped, "the third epoch without a better one"
    assert [item["epoch"] for item in built.report.best["run.keep_best"]["files"]] == [3]
    new: Any = Parts(tmp_path / "new", *RULES)
    rules = ruled(new)
    rules.set_state(rules.get_state())
    assert new.report.best == {}, "there is none yet"


def test_figures_of_the_first_worker_decide_for_all(saves: list[Any], tmp_path: Path) -> None:
    sent: list[Any] = []

    def rows(mine: list[float]) -> Any:
        sent.append(mine)
        return np.array([[1.0, 0.25], mine])

    built: Any = Parts(tmp_path, "early_stop=cost:max", "early_stop_patience=5", index=1, rows=rows)
    rules = ruled(built)
    rules.on_epoch_end(0, {"loss": 3.0, "cost": 7.0})
    assert sent == [[3.0, 7.0]]
    (best,) = built.events("best")
    assert (best["figure"], best["value"]) == ("cost", 0.25)


@pytest.mark.parametrize(
    ("figure", "values", "best"),
    [
        ("cost:min", (2.0, 3.0, 1.0), [1, 3]), ("cost:max", (2.0, 3.0, 1.0), [1, 2]), ("loss", (2.0, 3.0, 1.0), [1, 3]),
        ("accuracy", (2.0, 3.0, 1.0), [1, 2]),
        ("loss", (math.inf, math.nan, 1.0), [1, 3]),
    ],
)  # fmt: skip
def test_the_direction_of_a_figure_is_the_given_one_or_that_of_keras(
    figure: str, values: tuple[float, ...], best: list[int], tmp_path: Path
) -> None:
    built: Any = Parts(tmp_path, f"early_stop={figure}", "early_stop_patience=9")
    rules = ruled(built)
    for epoch, value in enumerate(values):
        rules.on_epoch_end(epoch, {figure.partition(":")[0]: value})
    told = {event["epoch"]: event["value"] for event in built.events("best")}
    assert list(told) == best
    assert not any(event["restores"] for event in built.events("best")), "only with train.early_stop_restore"
    assert told[1] == (values[0] if math.isfinite(values[0]) else None)


def refused(built: Any, logs: dict[str, float] | None = None) -> tuple[str, str, str]:
    rules = ruled(built)
    with pytest.raises(TrainerError) as raised:
        rules.require_figures() if logs is None else rules.on_epoch_end(0, logs)
    return raised.value.kind, raised.value.message, raised.value.hint


def test_a_figure_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    seldom: Any = Parts(tmp_path, "early_stop=val_f1", "keep_best=loss")
    rules = ruled(seldom)
    rules.require_figures()
    rules.callbacks["run.keep_best"].on_epoch_end = lambda *_: None
    rules.on_epoch_end(0, {"loss": 1.0})  # an epoch without an evaluation
    assert refused(seldom, {"loss": 1.0, "val_loss": 2.0}) == (
        "options", "train.early_stop: the training has no figure val_f1; its figures are loss, val_loss",
        "set train.early_stop to one of them",
    )  # fmt: skip
    seldom.pipeline.validation_batches = 0
    assert refused(seldom) == (
        "options",
        "train.early_stop: val_f1 is a figure of the validation, and this training has no validation data",
        "return validation data, or set train.early_stop to f1",
    )
    odd: Any = Parts(tmp_path, "keep_best=cost")
    assert refused(odd, {"cost": 1.0}) == (
        "options", "run.keep_best: Keras does not know if cost is to rise or to fall",
        "set run.keep_best to cost:max or cost:min",
    )  # fmt: skip


def test_there_are_rules_only_for_the_options_that_ask_for_them(tmp_path: Path) -> None:
    nothing: Any = Parts(tmp_path)
    assert EpochRules(nothing).callbacks == {}
    assert not EpochRules(nothing).stopped
    plateau: Any = Parts(tmp_path, "schedule=reduce_on_plateau", "plateau_figure=loss")
    assert list(EpochRules(plateau).callbacks) == ["train.plateau_figure"]
    for inapplicable, rules in (({"train.schedule": "x"}, []), ({"train.optimizer": "x"}, ["train.plateau_figure"])):
        plateau.own = SimpleNamespace(inapplicable=inapplicable)
        assert list(EpochRules(plateau).callbacks) == rules, "the user's code has chosen the optimizer"
    reducing: Any = EpochRules(plateau).callbacks["train.plateau_figure"]
    given = plateau.options.train
    assert (reducing.monitor, reducing.factor, reducing.patience, reducing.min_lr) == (
        "loss", given.decay_rate, given.plateau_patience, given.plateau_min_rate,
    )  # fmt: skip
