"""A training that only measures goes on until it has enough steps, within bounds."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine import plan
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.measure import progress_reports

from tests.support.training import Build, Training

DATA = (
    "model=mlp",
    "width=0.05",
    "optimizer=sgd",
    "data=digits",
    "validation_split=0",
    "cache=memory",
    "one_batch=true",
)
ENDLESS = (*DATA, "batch_size=8", "epochs=1", "steps_per_epoch=1000000")


def slowed(training: Training, seconds: float) -> dict[str, Any]:
    """The result of a training each of whose executions takes so long at least."""
    after = training.loop.parts.after

    def slow(count: int, logs: Any, samples: Any) -> None:
        after(count, logs, samples)
        time.sleep(seconds)

    training.loop.parts.after = slow  # type: ignore[method-assign,assignment]
    training.train().loop.built.report.finish("ok", 0)
    return dict(training.run.result or {})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is far away, however busy this machine is."""
    monkeypatch.setattr(plan, "MOST_TIMES", 100)


@pytest.mark.usefixtures("patient")
def test_a_training_of_slow_steps_is_measured_until_a_verdict_can_be_given(build: Build) -> None:
    told = slowed(build(*ENDLESS, "measure_seconds=0.1"), 0.02)
    assert plan.LEAST_STEPS <= told["measured_steps"] <= plan.LEAST_STEPS + 2
    assert told["measured_seconds"] >= 20 * 0.02
    assert told["outcome"] == "ok"


def test_a_training_of_very_slow_steps_ends_after_twelve_times_the_seconds(build: Build) -> None:
    told = slowed(build(*ENDLESS, "measure_seconds=0.01"), 0.03)
    assert 1 <= told["measured_steps"] < plan.LEAST_STEPS
    assert told["measured_seconds"] >= 0.12
    assert told["outcome"] == "ok"


def test_where_no_step_was_done_since_the_last_look_no_shares_of_the_time_are_told(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end looks again at once: that moment is all Python, and a diagnosis takes the mean of the last moments."""
    monkeypatch.setattr(progress_reports, "PULSE_SECONDS", 0.0)
    training = build(*ENDLESS, "measure_seconds=0.4")
    slowed(training, 0.02)
    told = training.events("progress")
    again = [later for one, later in itertools.pairwise(told) if one["step"] == later["step"]]
    assert again
    assert {(event["input_wait"], event["python_share"]) for event in again} == {(None, None)}
    assert any(event["python_share"] for event in told)


def test_the_loss_of_the_last_steps_is_told_beside_the_mean_of_the_epoch(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_reports, "PULSE_SECONDS", 0.0)
    held = build(*DATA, "batch_size=32", "validation_split=0.2", "steps_per_epoch=3", "epochs=2").train()
    told = {event["step"]: loss for event in held.events("progress") if (loss := event["window_loss"]) is not None}
    assert list(told) == [1, 2, 3, 4, 5, 6]
    means = [statistics.mean([told[step] for step in steps]) for steps in ((1, 2, 3), (4, 5, 6))]
    assert held.losses() == pytest.approx(means, rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_an_operation_that_reports_the_end_of_its_data_does_not_begin_the_same_epoch_for_ever(build: Build) -> None:
    training = build(*DATA, "batch_size=8", "epochs=2", "steps_per_epoch=3")

    def damaged(*execution: Any) -> Any:
        raise tf.errors.OutOfRangeError(None, None, "Read less bytes than requested")

    training.loop._run = damaged  # type: ignore[method-assign, assignment]
    with pytest.raises(TrainerError, match="before its first step"):
        training.train()
