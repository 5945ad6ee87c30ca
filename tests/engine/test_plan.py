"""How long is measured: the seconds asked for, and enough steps for a verdict, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine import plan
from gputui.engine.proof import estimate, request

from tests.support import recorded


def test_what_is_measured_is_enough_for_a_verdict() -> None:
    assert not plan.enough(4.9, 1000, 5.0)
    assert plan.enough(5.0, 20, 5.0)
    assert not plan.enough(5.0, 19, 5.0)
    assert plan.enough(60.0, 3, 5.0), "nobody waits for ever"


@pytest.mark.parametrize(
    ("samples", "share", "counts"), [(10, 0.25, (8, 2)), (4, 0.9, (1, 3)), (1, 0.9, (1, 0)), (7, 0.0, (7, 0))]
)
def test_a_split_leaves_at_least_one_sample_to_train(samples: int, share: float, counts: tuple[int, int]) -> None:
    assert plan.split_counts(samples, share) == counts


@pytest.mark.parametrize(("step", "seconds"), [(0.0, 5.0), (0.25, 5.0), (0.8, 16.0), (3.0, 60.0), (10.0, 60.0)])
def test_slow_steps_are_measured_for_longer(step: float, seconds: float) -> None:
    assert plan.expected_seconds(5.0, step) == pytest.approx(seconds)
    assert plan.MOST_TIMES * plan.seconds_to_ask(step) >= plan.LEAST_STEPS * step


def test_the_time_of_a_trial_is_estimated_from_the_steps_of_the_run(home: Path) -> None:
    fast = recorded.write(home, name="20260921-100000-fast", seconds=30, gpus=0)  # took 12 s to start
    step = (fast.result or {})["step_ms"]["p50"] / 1000
    asked = request.of_run(fast)
    assert estimate.of_request(asked) == pytest.approx(12 + 1.5 + 20 * step + plan.expected_seconds(5.0, step))
    assert estimate.trial_seconds(5.0, 2.0) == pytest.approx(12 + 1.5 + 40 + 40)
