"""Batches that are computed in parts: the result is that of the whole batch, and refused where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.doors.trainer import Devices, TrainerError, micro_batches
from tests.support.own import Write, resumed
from tests.support.training import Build, Training
from tests.trainer.test_own_resume import SHORT

# 24 batches of 74 and one of 21: parts of 19, 19, 19 and 17, and of 6, 6, 6 and 3.
SHARED = ("model=mlp", "width=0.05", "epochs=2", "normalization=none", "batch_size=74",
          "validation_split=0", "optimizer=sgd", "learning_rate=0.1", "global_clip_norm=0.5", "schedule=cosine",
          "warmup_steps=4")  # fmt: skip
WAYS = {
    "single": (),
    "bytes to replicas": ("data=npz:{bytes}", "cast=device", "strategy.kind=mirrored", "batch_size=37"),
    "accumulated besides": ("gradient_accumulation=2", "optimizer=adam", "learning_rate=0.01", "steps_per_execution=5",
                            "validation_split=0.05"),
}  # fmt: skip


def _without_dropout(training: Training) -> Training:
    for layer in training.loop.built.model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return training


def _figures(training: Training) -> list[float]:
    """Everything that was told of the epochs, in one order; the losses of single outputs Keras averages over what it
    computes at once, whatever its size.
    """
    told = [sorted(epoch["metrics"].items()) for epoch in training.events("epoch")]
    return [value for epoch in told for name, value in epoch if not name.endswith(("a_loss", "b_loss"))]


def _agree(whole: Training, parts: Training, tolerance: float = 1e-5) -> None:
    told, other = _figures(whole), _figures(parts)
    assert len(told) >= 2
    assert other == pytest.approx(told, rel=tolerance, abs=tolerance)
    pairs = zip(whole.loop.built.model.weights, parts.loop.built.model.weights, strict=True)
    for one, two in pairs:
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=tolerance, atol=tolerance, err_msg=one.path)
    before, after = (one.loop.built.model.optimizer for one in (whole, parts))
    assert int(before.iterations.numpy()) == int(after.iterations.numpy())


@pytest.mark.parametrize("name", ["accumulated besides", *(pytest.param(name, marks=pytest.mark.nightly)
                                  for name in ("single", "bytes to replicas"))])  # fmt: skip
def test_parts_of_a_batch_learn_as_the_whole_batch(name: str, build: Build, tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    images, bytes_ = drawn.integers(0, 256, (300, 6, 6, 1), "uint8"), tmp_path / "bytes.npz"
    np.savez(bytes_, x=images, y=images[:, 0, 0, 0] // 64)
    settings = [word.format(bytes=bytes_) for word in WAYS[name]]
    whole, parts = (_without_dropout(build(*SHARED, *settings, f"micro_batches={count}")).train() for count in (1, 4))
    _agree(whole, parts)
    (first, second) = (one.events("progress")[-1] for one in (whole, parts))
    assert first["steps"] == second["steps"]
    assert first["learning_rate"] < 0.1, "the schedule has lowered it"


@pytest.mark.nightly
def test_parts_are_compiled_by_xla_and_their_loss_scaling_is_undone_once(build: Build) -> None:
    settings = (*SHARED, "epochs=1", "steps_per_epoch=8")
    whole = _without_dropout(build(*settings)).train()
    compiled = _without_dropout(build(*settings, "xla=true", "micro_batches=3")).train()
    assert compiled.loop.built.model.jit_compile
    assert compiled.losses() == pytest.approx(whole.losses(), rel=1e-5)
    half = _without_dropout(build(*settings, "policy=mixed_float16", "micro_batches=4")).train()
    assert half.losses() == pytest.approx(whole.losses(), rel=0.02)
    assert half.events("progress")[-1]["skipped_steps"] == 0


@pytest.mark.parametrize("kind", [tf.float16, tf.bfloat16, tf.float32])
def test_gradients_of_parts_are_added_up_with_32_bits(kind: tf.DType, cpus: Devices) -> None:
    """Beside 1, a 16-bit number loses what is below a thousandth."""
    parts = [micro_batches._to_be_added(tf.constant([1.0, 0.0003], kind), 1 / 1024) for _ in range(1024)]
    assert {part.dtype for part in parts} == {tf.float32}
    np.testing.assert_allclose(tf.add_n(parts), [1.0, 0.0003], rtol=0.01)


# ---- a user's own code ---------------------------------------------------------------------------

OWN = """
import keras, numpy as np, tensorflow as tf
from keras import layers
drawn = np.random.default_rng(0)
x = drawn.normal(size=(90, 6)).astype("float32")
y = (x[:, :1] * x[:, 1:2]).astype("float32")
weights = drawn.uniform(0, 3, 90).astype("float32")
words = drawn.integers(0, 9, (90, 7))
tags = np.concatenate([words[:, 1:], words[:, :1]], axis=1) % 5
def plain(**more):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh", **more)(inputs)
    return keras.Model(inputs, layers.Dense(1)(hidden))
def compiled(model, loss, **more):
    model.compile(keras.optimizers.SGD(0.005, momentum=0.9, use_ema=True), loss, metrics=["mae"], **more)
    return model
"""


def test_a_training_step_of_the_users_own_is_refused_before_anything_runs(own: Write) -> None:
    program = """
class Mine(keras.Model):
    def train_step(self, data):
        return super().train_step(data)
def build(context):
    inputs = keras.Input((6,))
    return compiled(Mine(inputs, layers.Dense(1)(inputs)), "mse"), (x, y)
"""
    for settings in ("micro_batches=2",), ("on_oom=accumulate",):
        with pytest.raises(TrainerError, match="a train_step of its own") as refused:
            own(OWN + program, *settings)
        assert "halve" in refused.value.hint
    mixed = """
def build(context):
    inputs = keras.Input((6,))
    losses = [keras.losses.MeanSquaredError(reduction="sum"), keras.losses.MeanSquaredError()]
    made = keras.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(1)(inputs)])
    made.compile("sgd", losses)
    return made, (x, [y, y])
"""
    with pytest.raises(TrainerError, match="several reductions"):
        own(OWN + mixed, "micro_batches=2")


@pytest.mark.nightly
def test_a_resumed_training_goes_on_exactly_with_its_parts(own: Write) -> None:
    program = """
def build(context):
    inputs = keras.Input((6,))
    hidden = layers.Dropout(0.3)(layers.BatchNormalization()(layers.Dense(8, activation="tanh")(inputs)))
    return compiled(keras.Model(inputs, layers.Dense(1)(hidden)), "mse"), (x, y, weights)
"""
    settings = (*SHORT, "micro_batches=3")
    whole = own(OWN + program, *settings).train()
    again = resumed(own, OWN + program, whole, 8, *settings)
    assert again.losses() == whole.losses()[1:]


# ---- parts of a batch --------------------------------------------------------------------------


def test_losses_that_count_by_masks_and_weights_are_those_of_the_whole_batch() -> None:
    draw = np.random.default_rng(0)
    words, tags = draw.integers(0, 4, (7, 5)), draw.integers(0, 3, (7, 5))
    weights = draw.uniform(0, 3, (7, 5)).astype("float32")

    def model() -> keras.Model:
        keras.utils.set_random_seed(3)
        made = keras.Sequential([keras.Input((5,)), layers.Embedding(4, 2, mask_zero=True), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
        made.compile(keras.optimizers.SGD(0.5), loss)
        made.optimizer.build(made.trainable_variables)
        return made

    whole, parts = model(), model()
    batch = tf.constant(words), tf.constant(tags), tf.constant(weights)
    expected = float(whole.train_step(batch)["loss"])
    found = micro_batches.split_training(parts, 3)(batch)
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(parts.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def dense(*losses: Any, weights: Any = None) -> keras.Model:
    inputs = keras.Input((2,))
    made = keras.Model(inputs, [layers.Dense(1)(inputs) for _ in losses])
    made.compile("sgd", list(losses))
    made.compute_metrics(tf.zeros((1, 2)), [tf.zeros((1, 1))] * len(losses), [tf.zeros((1, 1))] * len(losses), weights)
    made._compile_loss.build([keras.KerasTensor((1, 1))] * len(losses), [keras.KerasTensor((1, 1))] * len(losses))
    return made


def mse(reduction: str | None) -> keras.losses.Loss:
    return keras.losses.MeanSquaredError(reduction=reduction)


class Steps(keras.Sequential):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any: ...


def _compiled() -> keras.Model:
    made = dense(mse("mean"))
    made.jit_compile = True
    return made


def _recurrent(batch: int | None, stateful: bool) -> keras.Model:
    layers = [keras.layers.LSTM(4, stateful=stateful), keras.layers.Dense(1)]
    made = keras.Sequential([keras.Input(batch_shape=(batch, 5, 3)), *layers] if batch else layers)
    made.compile(loss="mse")
    return made


@pytest.mark.parametrize(
    ("make", "replicas", "reason"),
    [
        (lambda: dense(mse("sum_over_batch_size")), 2, ""),
        (Steps, 1, "Steps has a train_step of its own, which applies its gradients itself"),
        (_compiled, 2, "XLA compiles it for whole batches only over several replicas (compile.xla)"),
        (lambda: dense(mse("sum"), mse("mean")), 1, "its losses have several reductions (mean, sum)"),
        (lambda: dense(mse("none")), 1, "its loss has no reduction, so that it is not a single number"),
        (lambda: _recurrent(8, stateful=False), 1, "its inputs have a fixed batch size"),
        (lambda: _recurrent(None, stateful=True), 1,
         "it has stateful layers, which keep a state for each sample of a whole batch"),
        (lambda: dense(mse("mean_with_sample_weight"), mse("mean_with_sample_weight")), 1,
         "its losses are means by sample weights that differ from output to output"),
    ],
)  # fmt: skip
def test_a_model_whose_batches_cannot_be_computed_in_parts_says_why(make: Any, replicas: int, reason: str) -> None:
    assert micro_batches.obstacle_to_parts(make(), replicas) == reason


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_a_replica_without_samples_still_counts_the_losses_of_its_weights(reduction: str) -> None:
    """As in Keras: the mean over no samples is 0, and the L2 of the weights is added to it."""
    after = []
    for parts in (1, 3):
        model = keras.Sequential(
            [keras.Input((2,)), layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")]
        )
        model.compile(keras.optimizers.SGD(0.5), keras.losses.MeanSquaredError(reduction=reduction), jit_compile=False)
        step = model.train_step if parts == 1 else micro_batches.split_training(model, parts)
        columns = tf.TensorSpec((None, 2)), tf.TensorSpec((None, 1))
        tf.function(step, input_signature=[columns])((tf.zeros((0, 2)), tf.zeros((0, 1))))
        after.append(model.get_weights()[0])
    np.testing.assert_allclose(after[1], after[0])
    assert np.all(after[0] < 1)
