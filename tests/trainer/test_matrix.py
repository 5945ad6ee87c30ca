"""Combinations of strategy, precision, XLA and steps per execution, on two logical CPUs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import keras
import numpy as np
import pytest

from tests.doors.engine import BY_KEY, Machine, checks, recalled
from tests.doors.engine import presets_PresetError as PresetError
from tests.doors.tui import scaled_learning_rate as scaled_rate
from tests.support.combinations import any_two
from tests.support.training import Build, Training, options

STRATEGIES = ("single", "one_device", "mirrored")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")
XLA = ("false", "true")
TOGETHER = (1, 3)
TWO_CPUS = Machine(gpus=(), no_gpu_reason="no NVIDIA driver", cpus=2, memory_bytes=8 * 1024**3)
# SGD is traced and compiled in half of Adam's time.
SMALL = ("model=mlp", "width=0.1", "batch_size=32", "optimizer=sgd", "learning_rate=0.5", "validation_split=0",
         "logical_devices=2")  # fmt: skip


def refused(*settings: str) -> str:
    """Why a combination is refused before anything is launched, or nothing."""
    findings = checks.check(options(*settings), TWO_CPUS)
    return next((str(finding) for finding in findings if finding.level == "error"), "")


# Any two options meet in every way, over replicas and without them; by day only in these.
BY_DAY = [("one_device", "mixed_bfloat16", "true", 3), ("mirrored", "mixed_float16", "true", 3)]
TRAINED = [
    *any_two(("single", "one_device"), PRECISIONS, XLA, TOGETHER),
    *(("mirrored", *others) for others in any_two(PRECISIONS, XLA, TOGETHER)),
]


def settings_of(combination: tuple[object, ...]) -> tuple[str, ...]:
    strategy, precision, xla, together = combination
    return (f"strategy.kind={strategy}", f"policy={precision}", f"xla={xla}", f"steps_per_execution={together}")


def test_no_combination_is_refused() -> None:
    every = map(settings_of, itertools.product(STRATEGIES, PRECISIONS, XLA, TOGETHER))
    assert [found for settings in every if (found := refused(*SMALL, *settings))] == []


@pytest.mark.parametrize("settings", [
    *map(settings_of, BY_DAY),
    *(pytest.param(settings_of(each), marks=pytest.mark.nightly) for each in TRAINED if each not in BY_DAY),
])  # fmt: skip
def test_each_combination_learns(settings: tuple[str, ...], build: Build) -> None:
    # 13 steps are not divisible by 3: the last execution of the epoch is a smaller one.
    training = build(*SMALL, *settings, "epochs=2", "steps_per_epoch=13").train()
    first, last = training.losses()
    assert math.isfinite(first)
    assert last < 0.9 * first
    assert training.loop.step == 26
    assert training.events("progress")[-1]["skipped_steps"] in (None, 0)
    replicas = 2 if "strategy.kind=mirrored" in settings else 1
    assert training.loop.built.model.distribute_strategy.num_replicas_in_sync == replicas


@pytest.mark.parametrize(("kind", "why"), [("central_storage", "wrong metrics"), ("parameter_server", "cannot fit")])
def test_a_strategy_that_keras_cannot_fit_with_is_not_offered_and_refused_with_the_reason(kind: str, why: str) -> None:
    assert kind not in BY_KEY["strategy.kind"].accepts
    with pytest.raises(PresetError) as refusal:
        options(f"strategy.kind={kind}")
    told = str(refusal.value)
    assert f"strategy.kind={kind}: {kind} is not available: " in told
    assert why in told
    assert "use mirrored" in told


# ---- mirrored computes what single computes ---------------------------------------------------

SAME = ("learning_rate=0.05", "optimizer=sgd", "epochs=2", "logical_devices=2", "width=0.1", "prefetch=off")


def without_dropout(training: Training) -> Training:
    """Dropout draws other units on each replica; without it the replicas compute what one device would."""
    for layer in training.loop.built.model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return training.train()


def weights(training: Training) -> list[np.ndarray]:
    return [np.asarray(variable) for variable in training.loop.built.model.weights]


def largest_difference(a: Training, b: Training) -> float:
    return max(float(np.abs(x - y).max()) for x, y in zip(weights(a), weights(b), strict=True))


def communication(training: Training) -> str:
    return type(training.loop.built.model.distribute_strategy.extended._cross_device_ops).__name__


def metrics(training: Training) -> list[dict[str, float]]:
    return [event["metrics"] for event in training.events("epoch")]


WAYS: dict[tuple[str, ...], str] = {
    (): "CollectiveAllReduce",
    ("communication=hierarchical_copy",): "HierarchicalCopyAllReduce",
}


def test_mirrored_over_two_devices_equals_single_with_the_same_global_batch(build: Build) -> None:
    """With each communication."""
    steps = (*SAME, "model=mlp", "steps_per_epoch=10", "drop_remainder=true")
    single = without_dropout(build(*steps, "batch_size=64"))
    scaled = ("learning_rate=0.025", "learning_rate_scaling=linear")
    trained: dict[tuple[str, ...], Training] = {}
    for way, operation in WAYS.items():
        mirrored = without_dropout(build(*steps, *scaled, "batch_size=32", "strategy.kind=mirrored", *way))
        (started,) = mirrored.announce().events("started")
        assert started["actual"]["learning_rate"] == 0.05
        own: Any = recalled(started | {"inapplicable": {"train.learning_rate_scaling": "own optimizer"}})
        usual: Any = recalled(started)
        assert (scaled_rate(usual), scaled_rate(own)) == ("learning rate 0.05 (linear over 2 replicas)", "")
        assert communication(mirrored) == operation, way
        # The same sums in another order: float32's rounding, over 20 steps.
        assert largest_difference(single, mirrored) < 1e-5, way
        for one, other in zip(metrics(single), metrics(mirrored), strict=True):
            assert other == pytest.approx(one, rel=1e-4), way
        trained[way] = mirrored
    assert max(largest_difference(trained[()], trained[way]) for way in list(WAYS)[1:]) < 1e-6, "one sum of two"


@pytest.mark.nightly
def test_mirrored_equals_single_but_for_the_uneven_last_batch(build: Build) -> None:
    # 1617 samples: the last batch has 17, 8 and 9 for the replicas, whose means count alike.
    steps = (*SAME, "model=mlp", "epochs=1")
    single = without_dropout(build(*steps, "batch_size=64"))
    mirrored = without_dropout(build(*steps, "batch_size=32", "strategy.kind=mirrored"))
    assert single.loop.step == mirrored.loop.step == 26
    assert communication(mirrored) == "CollectiveAllReduce"
    assert largest_difference(single, mirrored) < 0.01
    assert mirrored.losses() == pytest.approx(single.losses(), rel=0.01)


@pytest.mark.nightly
def test_xla_under_mirrored_updates_batch_norm_and_scales_float16_gradients_as_without_xla(build: Build) -> None:
    steps = (*SAME, "model=mlp", "normalization=batch", "steps_per_epoch=10", "epochs=1", "policy=mixed_float16",
             "validation_split=0.02")  # fmt: skip
    plain, compiled = (
        without_dropout(build(*steps, "strategy.kind=mirrored", f"xla={xla}")) for xla in ("false", "true")
    )
    # float16 rounds at 1e-3, and XLA keeps float32 between fused operations.
    assert largest_difference(plain, compiled) < 1e-3
    norm = next(x for x in compiled.loop.built.model.layers if isinstance(x, keras.layers.BatchNormalization))
    assert np.abs(np.asarray(norm.moving_mean)).max() > 0.01
    assert metrics(compiled)[0] == pytest.approx(metrics(plain)[0], rel=1e-2)


def test_mirrored_over_chosen_devices_uses_these_only(build: Build) -> None:
    loop = build(*SMALL, "strategy.kind=mirrored", "strategy.devices=1").loop
    worker_devices = loop.built.model.distribute_strategy.extended.worker_devices
    assert worker_devices == ("/job:localhost/replica:0/task:0/device:CPU:1",)
    assert all("CPU:1" in variable.value.device for variable in loop.built.model.trainable_variables)
    one = build(*SMALL, "strategy.kind=one_device", "strategy.devices=1").loop
    assert all("CPU:1" in variable.value.device for variable in one.built.model.trainable_variables)
