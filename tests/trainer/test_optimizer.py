"""The optimizers, the schedules against their formulas, and clipping by what it does to a step."""

from __future__ import annotations

import math
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.options.training import OPTIMIZERS
from gputui.engine.trainer.setup import optimizer

from tests.support.training import Build, options

pytestmark = pytest.mark.usefixtures("cpus")

STEPS, PER_EPOCH = 120, 30


def made(*settings: str, replicas: int = 1) -> keras.optimizers.Optimizer:
    return optimizer.build(options(*settings), STEPS, PER_EPOCH, replicas)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD"), ("rmsprop", "RMSprop")],
)
def test_each_optimizer_is_kerass_own_and_goes_downhill(name: str, kind: str) -> None:
    found = made(f"optimizer={name}", "learning_rate=0.1")
    assert type(found) is getattr(keras.optimizers, kind)
    x = keras.Variable(2.0)
    found.build([x])
    for _ in range(60):
        found.apply([2 * x.value], [x])
    assert abs(float(x.value)) < 0.5


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_without_options_the_optimizer_has_keras_own_defaults(name: str) -> None:
    found, plain = made(f"optimizer={name}"), getattr(keras.optimizers, OPTIMIZERS[name])(0.001)
    assert {**found.get_config(), "name": ""} == {**plain.get_config(), "name": ""}


def test_an_argument_that_an_option_declares_as_its_call_is_given_to_the_optimizer() -> None:
    values = {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1, "gradient_accumulation": 3, "clip_norm": 2.0}
    settings = [f"{name}={value}" for name, value in values.items()]
    arguments = options("optimizer=sgd", *settings).train.optimizer_arguments
    assert dict(arguments.values()) == values
    assert "gradient_accumulation_steps" in arguments
    found = made("optimizer=sgd", *settings)
    assert {name: getattr(found, name) for name in arguments} == {name: value for name, (_, value) in arguments.items()}


def test_without_schedule_and_warm_up_the_rate_is_the_plain_number() -> None:
    assert float(made("learning_rate=0.25").learning_rate) == 0.25


def test_the_rate_follows_the_number_of_replicas_where_that_is_asked_for_and_so_does_its_schedule() -> None:
    scaled = {"none": 0.2, "linear": 0.8, "sqrt": 0.4}
    for scaling, rate in scaled.items():
        asked = ("learning_rate=0.2", f"learning_rate_scaling={scaling}")
        assert optimizer.highest_rate(made(*asked, replicas=4)) == rate, scaling
        assert optimizer.highest_rate(made(*asked)) == 0.2, scaling
        planned = made(*asked, "schedule=cosine", "warmup_steps=4", replicas=4)
        assert optimizer.highest_rate(keras.mixed_precision.LossScaleOptimizer(planned)) == rate, scaling
        schedule = planned._learning_rate
        assert [float(schedule(step)) for step in (0, 4)] == pytest.approx([rate / 4, rate]), scaling
    assert optimizer.highest_rate(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 5))) is None


def rates(*settings: str) -> Callable[[int], float]:
    schedule = made("learning_rate=0.4", *settings)._learning_rate
    return lambda step: float(schedule(step))


def test_constant_after_a_warm_up_that_rises_in_equal_steps_and_never_is_zero() -> None:
    rate = rates("warmup_steps=4")
    assert [rate(step) for step in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


@pytest.mark.parametrize("warmup", [0, 20])
def test_cosine_falls_along_half_a_cosine_to_the_end_of_the_run(warmup: int) -> None:
    rate = rates("schedule=cosine", "decay_rate=0.1", f"warmup_steps={warmup}")
    length = STEPS - warmup
    for step in (warmup, warmup + 1, warmup + length // 3, STEPS - 1):
        progress = (step - warmup) / length
        assert rate(step) == pytest.approx(0.4 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))), rel=1e-4)
    assert rate(warmup) == pytest.approx(0.4)
    assert rate(STEPS) == rate(10 * STEPS) == pytest.approx(0.04)


def test_exponential_reaches_the_decay_rate_after_decay_steps_and_goes_on() -> None:
    rate = rates("schedule=exponential", "decay_rate=0.5", "decay_steps=10", "warmup_steps=5")
    assert [rate(step) for step in (5, 10, 15, 25)] == pytest.approx([0.4, 0.4 * 0.5**0.5, 0.2, 0.1], rel=1e-4)


def test_step_drops_at_each_multiple_of_decay_steps() -> None:
    rate = rates("schedule=step", "decay_rate=0.5", "decay_steps=10", "warmup_steps=5")
    assert [rate(step) for step in (5, 14, 15, 24, 25)] == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.1])


def test_step_drops_twice_in_a_run_if_nothing_else_is_said() -> None:
    rate = rates("schedule=step", "decay_rate=0.1")
    assert sorted({round(rate(step), 6) for step in range(STEPS)}) == [0.004, 0.04, 0.4]


def test_cyclical_is_a_triangle_over_each_epoch() -> None:
    rate = rates("schedule=cyclical", "decay_rate=0.1")
    low, high = 0.04, 0.4
    assert [rate(step) for step in (0, 15, 30, 45, 60)] == pytest.approx([low, high, low, high, low])
    assert rate(5) == pytest.approx(low + (high - low) / 3)
    assert rate(25) == pytest.approx(low + (high - low) / 3)


def test_a_ramp_rises_by_the_same_factor_in_each_step_and_stays_at_the_rate() -> None:
    rate = rates("schedule=ramp", "decay_rate=0.01", "decay_steps=20")
    assert [rate(step) for step in (0, 10, 20, 30)] == pytest.approx([0.004, 0.04, 0.4, 0.4])
    assert rate(5) / rate(4) == pytest.approx(100 ** (1 / 20), rel=1e-4)


@pytest.mark.parametrize("kind", ["constant", "cosine", "exponential", "step", "cyclical", "ramp"])
def test_each_schedule_stays_between_its_bounds_and_survives_being_saved(kind: str) -> None:
    first = made(f"schedule={kind}", "warmup_steps=7", "learning_rate=0.4", "decay_rate=0.2")._learning_rate
    again = type(first).from_config(first.get_config())
    for step in range(STEPS):
        assert 0 < float(first(step)) <= 0.4 + 1e-6
        assert float(again(step)) == float(first(step))
        if step >= 7 and kind in ("cosine", "cyclical"):
            assert float(first(step)) >= 0.08 - 1e-6


def test_the_rate_follows_the_schedule_in_a_real_run(build: Build) -> None:
    settings = ("model=mlp", "width=0.05", "steps_per_epoch=6", "epochs=1", "validation_split=0")
    loop = build(*settings, "schedule=exponential", "decay_rate=0.5", "learning_rate=0.4").train().loop
    assert float(loop.built.model.optimizer.learning_rate) == pytest.approx(0.2)


HUGE = [np.array([3e6, -4e6], "float32"), np.array([1e3, 0.0], "float32")]


def updates(*settings: str) -> list[np.ndarray]:
    """What one step with huge gradients changes, at learning rate 1."""
    found = made("optimizer=sgd", "learning_rate=1", *settings)
    weights = [keras.Variable(np.zeros(2, "float32")) for _ in HUGE]
    found.build(weights)
    found.apply([tf.constant(gradient) for gradient in HUGE], weights)
    return [-np.asarray(weight) for weight in weights]


def test_clip_norm_bounds_each_gradient_and_keeps_its_direction() -> None:
    first, second = updates("clip_norm=0.5")
    np.testing.assert_allclose(first, [0.3, -0.4], rtol=1e-5)
    np.testing.assert_allclose(second, [0.5, 0.0], rtol=1e-5)


def test_clip_value_bounds_each_element() -> None:
    first, second = updates("clip_value=0.5")
    np.testing.assert_allclose(first, [0.5, -0.5])
    np.testing.assert_allclose(second, [0.5, 0.0])


def test_global_clip_norm_bounds_all_together_and_keeps_their_proportions() -> None:
    first, second = updates("global_clip_norm=0.5")
    together = np.linalg.norm(np.concatenate([first, second]))
    assert together == pytest.approx(0.5, rel=1e-5)
    assert second[0] / first[0] == pytest.approx(1e3 / 3e6, rel=1e-4)


def test_without_clipping_the_whole_gradient_is_taken() -> None:
    np.testing.assert_allclose(updates(), HUGE)


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
def test_clipping_holds_in_a_training_also_behind_the_loss_scale(policy: str, build: Build) -> None:
    settings = ("model=mlp", "width=0.05", "steps_per_epoch=1", "epochs=1", "validation_split=0", "optimizer=sgd")
    training = build(*settings, "learning_rate=1", "global_clip_norm=0.001", f"policy={policy}")
    before = [variable.numpy() for variable in training.loop.built.model.trainable_variables]
    training.train()
    after = [variable.numpy() for variable in training.loop.built.model.trainable_variables]
    step = np.sqrt(sum(((x - y) ** 2).sum() for x, y in zip(before, after, strict=True)))
    assert step == pytest.approx(0.001, rel=0.02)


def test_a_held_rate_stays_at_its_highest_and_the_decay_is_counted_from_there() -> None:
    rate = rates("schedule=exponential", "decay_rate=0.5", "decay_steps=10", "warmup_steps=4", "hold_steps=20")
    assert [rate(step) for step in (3, 4, 14, 24)] == pytest.approx([0.4] * 4)
    assert [rate(step) for step in (34, 44)] == pytest.approx([0.2, 0.1], rel=1e-4)
    to_the_end = rates("schedule=cosine", "decay_rate=0.1", "hold_steps=80")
    assert to_the_end(79) == pytest.approx(0.4)
    assert to_the_end(100) == pytest.approx(0.22, rel=1e-4)  # half of what is left has gone
    assert to_the_end(STEPS) == pytest.approx(0.04)


def _path(*settings: str) -> list[float]:
    """Where a weight of 1 goes in four steps whose gradient is 1."""
    found = made("learning_rate=0.1", *settings)
    x = keras.Variable(1.0)
    found.build([x])
    way = []
    for _ in range(4):
        found.apply([tf.ones(())], [x])
        way.append(float(x.value))
    return way


def test_momentum_nesterov_and_weight_decay_take_the_steps_of_their_formulas() -> None:
    velocity, plain, nesterov = 0.0, [1.0], [1.0]
    for _ in range(4):
        velocity = 0.9 * velocity - 0.1
        plain.append(plain[-1] + velocity)
        nesterov.append(nesterov[-1] + 0.9 * velocity - 0.1)
    assert _path("optimizer=sgd") == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert _path("optimizer=sgd", "momentum=0.9") == pytest.approx(plain[1:])
    assert _path("optimizer=sgd", "momentum=0.9", "nesterov=true") == pytest.approx(nesterov[1:])
    assert _path("optimizer=sgd", "weight_decay=0.5")[0] == pytest.approx(1.0 - 0.1 * 0.5 - 0.1)
    assert made("optimizer=adamw").weight_decay == 0.004
    assert made("optimizer=adamw", "weight_decay=0.0").weight_decay == 0.0
    assert made("optimizer=rmsprop", "momentum=0.7").momentum == 0.7


def test_accumulated_gradients_change_the_weights_once_by_their_mean_and_the_rate_counts_each_step() -> None:
    found = made("optimizer=sgd", "learning_rate=1", "gradient_accumulation=3", "schedule=step", "decay_rate=0.5",
                 "decay_steps=3")  # fmt: skip
    x = keras.Variable(0.0)
    found.build([x])
    way = []
    for gradient in (1.0, 2.0, 6.0, 3.0, 3.0, 3.0):
        found.apply([tf.constant(gradient)], [x])
        way.append(float(x.value))
    assert way == pytest.approx([0, 0, -3, -3, -3, -3 - 0.5 * 3])


def test_accumulated_batches_learn_as_one_batch_and_skip_no_step(build: Build) -> None:
    shared = ("model=mlp", "width=0.05", "epochs=1", "validation_split=0", "drop_remainder=true", "optimizer=sgd",
              "learning_rate=0.1", "normalization=none")  # fmt: skip
    small = build(*shared, "batch_size=16", "gradient_accumulation=4", "steps_per_epoch=24")
    large = build(*shared, "batch_size=64", "steps_per_epoch=6")
    for training in (small, large):
        next(layer for layer in training.loop.built.model.layers if isinstance(layer, keras.layers.Dropout)).rate = 0.0
        training.train()
    for one, other in zip(*(t.loop.built.model.trainable_variables for t in (small, large)), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-5)
    scaled = build(*shared, "batch_size=16", "gradient_accumulation=4", "steps_per_epoch=8", "policy=mixed_float16")
    assert scaled.train().events("progress")[-1]["skipped_steps"] == 0
