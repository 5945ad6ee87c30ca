"""What a person tells a training while it goes on has the same effect in a run that is killed and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Run, presets
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened
from tests.support.own import Write

CODE = """
import os, signal
import keras
import numpy as np

class Killer(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        steps = open("steps").read().split() if os.path.exists("steps") else []
        if steps and int(self.model.optimizer.iterations.numpy()) == int(steps[0]):
            open("steps", "w").write(" ".join(steps[1:]))
            os.kill(os.getpid(), signal.SIGKILL)

def build(context):
    drawn = np.random.default_rng(1)
    x, y = drawn.normal(size=(64, 6)).astype("float32"), drawn.integers(0, 3, 64)
    model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dropout(0.4), keras.layers.Dense(3, "softmax")])
    model.compile(keras.optimizers.Adam(RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return {"model": model, "train": (x, y), "validation": (x[:30], y[:30]), "callbacks": [Killer()]}
"""
# 8 steps in an epoch, and a checkpoint after every fourth step.
TOLD: tuple[tuple[int, str, float | None], ...] = (
    (5, "rate", 0.5), (6, "evaluate", None), (8, "rate", 4.0), (11, "checkpoint", None), (12, "rate", 0.25),
    (13, "evaluate", None), (19, "end-epoch", None),
)  # fmt: skip


def answers(run: Run) -> list[tuple[Any, ...]]:
    fields = ("control", "step", "factor", "learning_rate", "metrics", "refused")
    return [tuple(str(event[name]) for name in fields) for event in happened(run, "control")]


SCHEDULE = "keras.optimizers.schedules.CosineDecay(0.02, 32)"


@pytest.mark.parametrize("rate", [SCHEDULE, pytest.param("0.02", marks=pytest.mark.nightly)])
def test_a_killed_run_goes_on_to_the_losses_of_an_undisturbed_one_that_was_told_the_same(
    rate: str, forks: Forks, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(CODE.replace("RATE", rate))
    entry = f"entry={tmp_path / 'train.py'}:build", f"folder={tmp_path}"
    preset = presets.defaults(["seed=5", "epochs=9", "batch_size=8", "checkpoint=4", *entry])
    (whole, undisturbed), (run, trainer) = (trainer_of(preset) for _ in range(2))
    lines = [{"id": str(at), "control": of, "factor": factor, "at_step": at} for at, of, factor in TOLD]
    for told in (whole, run):
        told.file("controls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*lines, {}, {"id": 3})))
    forks.run(undisturbed)
    (tmp_path / "steps").write_text("7 14 20")
    assert forks.codes(trainer) == forks.codes(trainer) == forks.codes(trainer) == [-signal.SIGKILL]
    forks.run(trainer)
    assert [event["resumed_at_step"] for event in happened(run, "started")] == [None, 4, 12, 16]
    epochs = [{event["epoch"]: event["metrics"] for event in happened(each, "epoch")} for each in (whole, run)]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 3, "it is told to end after this epoch"
    assert [each[:2] for each in answers(whole)] == [(of, str(at)) for at, of, _ in TOLD]
    assert answers(run) == answers(whole), "each has one event, at its step"
    assert (whole.result or {})["ended_by"] == (run.result or {})["ended_by"] == "control"


REFUSES = """
import keras, numpy as np, tensorflow as tf

class Own(keras.optimizers.schedules.CosineDecay):
    pass

def build(context):
    made = keras.Sequential([keras.layers.Dense(3, "softmax")])
    made.compile(keras.optimizers.SGD(Own(0.1, 9)), "sparse_categorical_crossentropy")
    x, y = np.zeros((16, 4), "float32"), np.zeros(16, "int32")
    drawn = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16).batch(8)
    return {"model": made, "train": (x, y), "validation": drawn}
"""


def test_what_only_the_trainer_knows_is_refused_with_the_reason(own: Write) -> None:
    training = own(REFUSES, "epochs=2", "batch_size=4")
    lines = [
        {"id": of, "control": of, "factor": 0.5 if of == "rate" else None, "at_step": 2} for of in ("rate", "evaluate")
    ]
    training.run.file("controls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(event["refused"], event["message"]) for event in training.train().events("control")] == [
        (True, "the learning rate stays as it is: Own cannot be scaled"),
        (True, "nothing is evaluated: the validation data may be other samples each time it is read"),
    ]
    assert len(training.losses()) == 2
