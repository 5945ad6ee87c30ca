"""How long is measured: the seconds asked for, and enough steps for a verdict, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.engine import duration, plan, presets
from tests.doors.engine import proof_request as request
from tests.support import recorded


def test_what_is_measured_is_enough_for_a_verdict() -> None:
    assert not plan.enough(4.9, 1000, 5.0)
    assert plan.enough(5.0, 20, 5.0)
    assert not plan.enough(5.0, 19, 5.0)
    assert plan.enough(60.0, 3, 5.0), "nobody waits for ever"


@pytest.mark.parametrize(
    ("samples", "share", "trained"),
    [(10, 0.25, 8), (1797, 0.1, 1617), (4, 0.9, 1), (1, 0.9, 1), (7, 0.0, 7)],
)
def test_a_split_leaves_at_least_one_sample_to_train(samples: int, share: float, trained: int) -> None:
    assert plan.trained_samples(samples, share) == trained


@pytest.mark.parametrize(("step", "seconds"), [(0.0, 5.0), (0.25, 5.0), (0.8, 16.0), (3.0, 60.0), (10.0, 60.0)])
def test_slow_steps_are_measured_for_longer(step: float, seconds: float) -> None:
    assert plan.expected_seconds(5.0, step) == pytest.approx(seconds)
    assert plan.MOST_TIMES * plan.seconds_to_ask(step) >= plan.LEAST_STEPS * step


def test_the_time_of_a_trial_is_estimated_from_the_steps_of_the_run(home: Path) -> None:
    fast = recorded.write(home, name="20260921-100000-fast", seconds=30, gpus=0)  # 12 s to start, 6.1 of them to import
    step = (fast.result or {})["step_ms"]["p50"] / 1000
    asked = request.of_run(fast)
    assert duration.of_request(asked) == pytest.approx(12 - 6.1 + 1.5 + 20 * step + plan.expected_seconds(5.0, step))
    assert duration.TrialTimes(13.5, 2.0, "").seconds(5.0) == pytest.approx(12 + 1.5 + 40 + 40)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (["schedule=cosine", "warmup_steps=10", "hold_steps=20"], 70),
        (["schedule=cosine", "warmup_steps=90", "hold_steps=20"], 1), (["schedule=step", "warmup_steps=10"], 30),
        (["schedule=step", "warmup_steps=98"], 1), (["schedule=cyclical", "warmup_steps=10"], 25),
        (["schedule=cyclical", "decay_steps=7"], 7), (["schedule=step", "decay_steps=200"], 200),
    ],
)  # fmt: skip
def test_a_schedule_without_a_length_ends_with_the_training(settings: list[str], steps: int) -> None:
    assert plan.decay_steps(presets.defaults(settings).options.train, 100, 25) == steps


def test_what_is_shared_out_and_left_over() -> None:
    assert [plan.batches_per_pass(*of) for of in ((100, 32), (100, 32, 4), (100, 32, 5), (96, 32))] == [4, 4, 3, 3]
    assert plan.batches_per_pass(100, 32, 1, True) == 3
    assert [plan.smaller_last_batch(*of) for of in ((100, 32, 4), (100, 32, 3), (96, 32, 3))] == [True, False, False]
    assert [plan.samples_seen(steps, 100, 32, 4) for steps in (0, 3, 4, 5, 8)] == [0, 96, 100, 132, 200]
    assert [plan.samples_seen(steps, 100, 32, 3) for steps in (3, 4)] == [96, 128]
    assert [plan.gpus_used(*of) for of in ((1, 1), (4, 2), (5, 2), (1, 2))] == [1, 2, 3, 1]
    assert [plan.whole_executions(*of) for of in ((10, 4), (8, 4), (3, 4))] == [8, 8, 0]
    assert [plan.steps_together(*of) for of in ((10, 4), (12, 4), (7, 4), (3, 4))] == [2, 4, 1, 3]
    assert [plan.warmup_steps(steps) for steps in (1, 9, 10, 99, 100, 1000)] == [1, 1, 2, 19, 20, 20]
    assert [plan.rate_factor(rule, 4.0) for rule in ("linear", "sqrt", "none")] == [4.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("settings", "gpus", "replicas"),
    [
        (["strategy.kind=single"], 4, 1), (["strategy.kind=mirrored"], 4, 4), (["strategy.kind=mirrored"], 0, 1),
        (["strategy.kind=mirrored", "device.logical_devices=3"], 2, 6),
        (["strategy.kind=mirrored", "strategy.devices=[0,1]"], 4, 2), (["strategy.kind=multi_worker"], 2, 6),
    ],
)  # fmt: skip
def test_replicas_are_those_of_the_strategy_on_all_workers(settings: list[str], gpus: int, replicas: int) -> None:
    options = presets.defaults(settings).options
    workers = 3
    assert plan.replicas(options.strategy, plan.devices(options, gpus), workers) == replicas


@pytest.mark.parametrize(
    ("settings", "samples"),
    [
        (["data=mnist", "validation_split=0.25"], 45_000), (["data=mnist", "validation=test"], 60_000),
        (["data=mnist", "samples=100", "validation=test"], 60_000),
        (["data=synthetic", "samples=100", "validation_split=0.1"], 90),
        (["data=synthetic", "validation_split=0.5"], 2048),
        (["data=tfrecord:*.rec", "samples=50", "validation_split=0.1"], 45), (["data=tfrecord:*.rec"], None),
        (["data=npz:a.npz"], None), (["workload.entry=train.py:build"], None),
    ],
)  # fmt: skip
def test_samples_that_are_known_before_the_data_is_opened(settings: list[str], samples: int | None) -> None:
    options = presets.defaults(settings).options
    assert plan.training_samples(options.workload, options.train) == samples


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (["data=synthetic", "samples=100", "validation_split=0", "batch_size=32", "epochs=3"], 12),
        (
            ["data=synthetic", "samples=100", "validation_split=0", "batch_size=32", "epochs=3", "drop_remainder=true"],
            9,
        ),
        (["data=synthetic", "samples=100", "batch_size=32", "epochs=3", "steps_per_epoch=5"], 15),
        (["data=npz:a.npz", "batch_size=32", "epochs=3", "steps_per_epoch=5"], 15),
        (["data=npz:a.npz", "batch_size=32", "epochs=3"], None),
    ],
)
def test_steps_that_are_known_before_the_data_is_opened(settings: list[str], steps: int | None) -> None:
    assert plan.training_steps(presets.defaults(settings).options) == steps
