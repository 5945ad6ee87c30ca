"""Batches that are computed in parts: the result is that of the whole batch, and refused where it cannot be."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import micro_batches
from gputui.engine.trainer.setup.devices import Devices

from tests.support.cases import all_hold
from tests.support.own import Write
from tests.support.training import Build, Training
from tests.trainer.test_own_resume import SHORT, resumed

# 24 batches of 74 and one of 21: parts of 19, 19, 19 and 17, and of 6, 6, 6 and 3.
SHARED = ("model=mlp", "width=0.05", "epochs=2", "normalization=none", "batch_size=74",
          "validation_split=0", "optimizer=sgd", "learning_rate=0.1", "global_clip_norm=0.5", "schedule=cosine",
          "warmup_steps=4")  # fmt: skip
WAYS = {
    "single": (),
    "bytes to replicas": ("data=npz:{bytes}", "cast=device", "strategy.kind=mirrored", "batch_size=37"),
    "accumulated besides, several steps in one call": (
        "gradient_accumulation=2",
        "optimizer=adam",
        "learning_rate=0.01",
        "steps_per_execution=5",
        "validation_split=0.05",
    ),
}


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


@pytest.mark.slow
def test_parts_of_a_batch_learn_as_the_whole_batch(build: Build, tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    images, bytes_ = drawn.integers(0, 256, (300, 6, 6, 1), "uint8"), tmp_path / "bytes.npz"
    np.savez(bytes_, x=images, y=images[:, 0, 0, 0] // 64)
    with all_hold() as cases:
        for name, wanted in WAYS.items():
            settings = [word.format(bytes=bytes_) for word in wanted]
            with cases.case(name):
                whole, parts = (
                    _without_dropout(build(*SHARED, *settings, f"micro_batches={count}")).train() for count in (1, 4)
                )
                _agree(whole, parts)
                (first, second) = (one.events("progress")[-1] for one in (whole, parts))
                assert first["steps"] == second["steps"]


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
PROGRAMS = {
    "sample weights": """
def build(context):
    return compiled(plain(), "mse", weighted_metrics=["mse"]), (x, y, weights)
""",
    "means by weight": """
def build(context):
    made = plain(kernel_regularizer="l2")
    return compiled(made, keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")), (x, y, weights)
""",
    "sums": """
def build(context):
    made = plain(kernel_regularizer="l2")
    return compiled(made, keras.losses.MeanSquaredError(reduction="sum")), (x, y, weights)
""",
    "masks and embeddings": """
def build(context):
    made = keras.Sequential([
        keras.Input((7,)), layers.Embedding(9, 4, mask_zero=True),
        layers.SimpleRNN(5, return_sequences=True), layers.Dense(5),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return made, (words, tags)
""",
    "two outputs, with sample weights": """
def build(context):
    inputs = {"one": keras.Input((6,), name="one"), "two": keras.Input((6,), name="two")}
    both = layers.Concatenate()([inputs["one"], inputs["two"]])
    made = keras.Model(inputs, {"a": layers.Dense(1, name="a")(both), "b": layers.Dense(6, name="b")(both)})
    losses, counted = {"a": "mse", "b": "mae"}, {"a": ["mse"], "b": ["mae"]}
    made.compile("sgd", losses, loss_weights={"a": 0.3, "b": 2.0}, weighted_metrics=counted)
    return made, ({"one": x, "two": x[::-1]}, {"a": y, "b": x}, {"a": weights, "b": weights[::-1]})
""",
    "a loss of its own, and a dataset of sparse inputs": """
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
    def call(self, values):
        return self.dense(values)
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(tf.square(y - y_pred)) + 0.01 * tf.reduce_mean(tf.abs(y_pred))
def build(context):
    made = Mine()
    made.compile("adam")
    sparse = tf.sparse.from_dense(np.where(x > 0, x, 0))
    return made, tf.data.Dataset.from_tensor_slices((sparse, y)).batch(20).repeat()
""",
}


@pytest.mark.slow
def test_parts_of_a_users_batches_learn_as_the_whole_batches(own: Write) -> None:
    """Losses count as they are reduced: by samples, by weights, by what a mask leaves, or as a sum."""
    with all_hold() as cases:
        for name, program in PROGRAMS.items():
            with cases.case(name):
                settings = ("epochs=2", "batch_size=20", "validation_split=0", "steps_per_epoch=5")
                whole, parts = (own(OWN + program, *settings, f"micro_batches={count}").train() for count in (1, 3))
                _agree(whole, parts, 2e-5)


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
