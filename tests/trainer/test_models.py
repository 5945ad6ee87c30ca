"""The models, optimizers and schedules that ship, and their counted operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.doors.trainer import TrainerError, compiling, models
from tests.support.training import Build, options

pytestmark = pytest.mark.usefixtures("cpus")


SMALL_IMAGE, IMAGE = (8, 8, 1), (32, 32, 3)
LONGEST = (32, 32, 2)  # as many tokens as the transformer takes
MODELS = ("mlp", "cnn", "separable_cnn", "resnet50", "transformer")


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    """Keras' precision policy is global: back to its default."""
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights whose values do not matter are not drawn, which takes most of the time of a large model."""
    for drawn in (keras.initializers.VarianceScaling, keras.initializers.RandomUniform):
        monkeypatch.setattr(drawn, "__call__", lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype))


def model(name: str, shape: tuple[int, ...] = SMALL_IMAGE, classes: int = 10, width: float = 1.0) -> keras.Model:
    return models.build(options(f"model={name}", f"width={width}"), shape, classes)


def of(kind: Any, built: keras.Model) -> list[Any]:
    return [layer for layer in built.layers if isinstance(layer, kind)]


@pytest.mark.parametrize(
    ("shape", "width"), [pytest.param(SMALL_IMAGE, 0.25, marks=pytest.mark.nightly), (IMAGE, 0.05)]
)
@pytest.mark.parametrize("name", MODELS)
def test_each_model_gives_one_finite_score_for_each_class(name: str, shape: tuple[int, ...], width: float) -> None:
    shape = LONGEST if name == "transformer" and shape == IMAGE else shape
    built = model(name, shape, classes=7, width=width)
    assert built.output_shape == (None, 7)
    x = np.random.default_rng(0).random((2, *built.input_shape[1:]), dtype="float32")
    x = (x * 255).astype("int32") if name == "transformer" else x
    assert np.isfinite(built(x).numpy()).all()


@pytest.mark.parametrize("name", MODELS)
def test_under_mixed_precision_layers_compute_in_it_and_the_last_one_in_float32(name: str) -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    built = model(name, width=0.1)
    assert built.layers[-1].compute_dtype == "float32"
    assert built.outputs[0].dtype == "float32"
    computing = of((layers.Dense, layers.Conv2D, layers.SeparableConv2D, layers.MultiHeadAttention), built)[:-1]
    assert {layer.compute_dtype for layer in computing} == {"float16"}
    assert {variable.dtype for variable in built.trainable_variables} == {"float32"}


@pytest.mark.usefixtures("zeros")
def test_resnet50_is_the_published_network() -> None:
    built = model("resnet50", (224, 224, 3), classes=1000)
    published = keras.applications.ResNet50(weights=None)
    assert len(of(layers.Conv2D, built)) == len(of(layers.Conv2D, published)) == 53
    assert len(of(layers.BatchNormalization, built)) == 53
    assert len(of(layers.Dense, built)) == 1
    biases = sum(layer.bias.shape[0] for layer in of(layers.Conv2D, published))
    assert built.count_params() == published.count_params() - biases
    trainable = sum(int(np.prod(variable.shape)) for variable in built.trainable_variables)
    assert trainable == pytest.approx(25.5e6, rel=0.01)
    strides = [layer.strides for layer in of(layers.Conv2D, built) if layer.strides != (1, 1)]
    assert len(strides) == 7  # the first, and two in each of three stages


def test_the_transformer_tells_places_apart() -> None:
    built = model("transformer")
    tokens = np.arange(64, dtype="int32")[None]
    assert np.abs(built(tokens).numpy() - built(tokens[:, ::-1].copy()).numpy()).max() > 1e-4


@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "resnet50"])
def test_data_that_are_no_images_are_refused_by_image_models(name: str) -> None:
    with pytest.raises(TrainerError, match=f"{name} needs images") as raised:
        model(name, (12,))
    assert "workload.model=mlp" in raised.value.hint


def test_samples_too_large_for_the_transformer_are_refused() -> None:
    with pytest.raises(TrainerError, match="150528 tokens; the transformer takes at most 2048"):
        model("transformer", (224, 224, 3))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "separable_cnn", "transformer"])
def test_each_model_learns_digits(name: str, build: Build) -> None:
    # What the mlp learns is in the matrix; resnet50 has 53 layers of the same kind as separable_cnn.
    settings = ("width=0.1", "epochs=2", "steps_per_epoch=12", "batch_size=32", "learning_rate=0.01")
    first, last = build(f"model={name}", *settings, "validation_split=0").train().losses()
    assert last < 0.95 * first


NORMS = {"batch": layers.BatchNormalization, "layer": layers.LayerNormalization}


@pytest.mark.usefixtures("zeros")
@pytest.mark.parametrize("name", MODELS)
def test_normalization_is_a_switch_of_every_model(name: str) -> None:
    def switched(norm: str) -> keras.Model:
        return models.build(options(f"model={name}", "width=0.1", f"normalization={norm}"), SMALL_IMAGE, 10)

    norms = ("layer", "none") if name == "resnet50" else ("batch", "layer", "none")  # batch is what is published
    built = {norm: switched(norm) for norm in norms}
    counts = {norm: {kind: len(of(layer, made)) for kind, layer in NORMS.items()} for norm, made in built.items()}
    assert counts["none"] == {"batch": 0, "layer": 0}
    assert counts["layer"]["layer"] == (counts["batch"]["batch"] if "batch" in counts else 53)
    assert all(counts[one][other] == 0 for one, other in (("batch", "layer"), ("layer", "batch")) if one in counts)
    assert counts["layer"]["layer"] > 0
    if name in ("mlp", "cnn"):  # that the others have one of their own is tested above
        assert not of(tuple(NORMS.values()), model(name, width=0.1))
    convolutions = of((layers.Conv2D, layers.SeparableConv2D), built["none"])
    assert all(layer.use_bias for layer in convolutions), "without normalization a layer needs its bias"


STEPS, PER_EPOCH = 120, 30


def made(*settings: str, replicas: int = 1) -> keras.optimizers.Optimizer:
    return compiling.optimizer_of(options(*settings), STEPS, PER_EPOCH, replicas)


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD"), ("rmsprop", "RMSprop")]
)
def test_each_optimizer_is_kerass_own_and_goes_downhill(name: str, kind: str) -> None:
    found = made(f"optimizer={name}", "learning_rate=0.1")
    assert type(found) is getattr(keras.optimizers, kind)
    x = keras.Variable(2.0)
    found.build([x])
    for _ in range(60):
        found.apply([2 * x.value], [x])
    assert abs(float(x.value)) < 0.5


def test_the_rate_follows_the_number_of_replicas_where_that_is_asked_for_and_so_does_its_schedule() -> None:
    scaled = {"none": 0.2, "linear": 0.8, "sqrt": 0.4}
    for scaling, rate in scaled.items():
        asked = ("learning_rate=0.2", f"learning_rate_scaling={scaling}")
        assert compiling.highest_rate(made(*asked, replicas=4)) == rate, scaling
        assert compiling.highest_rate(made(*asked)) == 0.2, scaling
        planned = made(*asked, "schedule=cosine", "warmup_steps=4", replicas=4)
        assert compiling.highest_rate(keras.mixed_precision.LossScaleOptimizer(planned)) == rate, scaling
        schedule = planned._learning_rate
        assert [float(schedule(step)) for step in (0, 4)] == pytest.approx([rate / 4, rate]), scaling
    assert compiling.highest_rate(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 5))) is None


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
    for step in range(0, STEPS, 7):
        assert 0 < float(first(step)) <= 0.4 + 1e-6
        assert float(again(step)) == float(first(step))
        if step >= 7 and kind in ("cosine", "cyclical"):
            assert float(first(step)) >= 0.08 - 1e-6


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


def test_products_are_counted_three_times_for_each_sample(build: Build) -> None:
    import keras

    from tests.doors.trainer import step_costs

    build("workload.model=mlp")
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(50, use_bias=False)])
    assert step_costs.flops_per_step(model, 8) == 3 * 8 * 2 * 100 * 50
    image = keras.Sequential([keras.Input((8, 8, 4)), keras.layers.Conv2D(16, 3, padding="same", use_bias=False)])
    assert step_costs.flops_per_step(image, 1) == 3 * 2 * (8 * 8 * 16) * (3 * 3 * 4)
