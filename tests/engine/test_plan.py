"""How long is measured: the seconds asked for, and enough steps for a verdict, within bounds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import plan
from gputui.engine.proof import estimate, request

from tests.support import recorded
from tests.support.training import Build, Training

DATA = ("model=mlp", "width=0.05", "data=digits", "validation_split=0", "cache=memory", "one_batch=true")
ENDLESS = (*DATA, "batch_size=8", "epochs=1", "steps_per_epoch=1000000")


def test_what_is_measured_is_enough_for_a_verdict() -> None:
    assert not plan.enough(4.9, 1000, 5.0)
    assert plan.enough(5.0, 20, 5.0)
    assert not plan.enough(5.0, 19, 5.0)
    assert plan.enough(60.0, 3, 5.0), "nobody waits for ever"


@pytest.mark.parametrize(("step", "seconds"), [(0.0, 5.0), (0.25, 5.0), (0.8, 16.0), (3.0, 60.0), (10.0, 60.0)])
def test_slow_steps_are_measured_for_longer(step: float, seconds: float) -> None:
    assert plan.expected_seconds(5.0, step) == pytest.approx(seconds)
    assert plan.MOST_TIMES * plan.seconds_to_ask(step) >= plan.LEAST_STEPS * step


def slowed(training: Training, seconds: float) -> dict[str, Any]:
    """The result of a training each of whose executions takes so long at least."""
    after = training.loop.timing.parts.after

    def slow(count: int, logs: Any) -> None:
        after(count, logs)
        time.sleep(seconds)

    training.loop.timing.parts.after = slow  # type: ignore[method-assign]
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


def test_the_time_of_a_trial_is_estimated_from_the_steps_of_the_run(home: Path) -> None:
    fast = recorded.write(home, name="20260921-100000-fast", seconds=30, gpus=0)  # took 12 s to start
    step = (fast.result or {})["step_ms"]["p50"] / 1000
    asked = request.of_run(fast)
    assert estimate.of_request(asked) == pytest.approx(12 + 1.5 + 20 * step + plan.expected_seconds(5.0, step))
    assert estimate.trial_seconds(5.0, 2.0) == pytest.approx(12 + 1.5 + 40 + 40)
