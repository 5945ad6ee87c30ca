"""Activations that are computed again: what is learnt stays the same, and what would not is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doors.trainer import TrainerError
from tests.support.own import Write, resumed
from tests.support.training import Build

NIGHTLY = pytest.mark.nightly
OWN = """
import keras, numpy as np, tensorflow as tf
from keras import layers
drawn = np.random.default_rng(0)
x, y = drawn.normal(size=(96, 8)).astype("float32"), drawn.integers(0, 3, 96)

@keras.saving.register_keras_serializable()
class Noise(layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))

class Skips(keras.Model):
    def call(self, x, training=None):
        return super().call(x, training=training)

def deep(x, **more):
    for _ in range(3):
        x = layers.Dropout(0.3)(layers.BatchNormalization()(layers.Dense(16, activation="relu", **more)(x)))
    return x

def build(context):
    inputs = keras.Input((8,))
    {body}
    return model, (x, y)
"""
COMPILED = 'model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])'
WITHIN = "keras.Sequential([layers.GaussianNoise(0.1), layers.Dense(8)])"  # as augmentation often is
WHOLE = f"model = keras.Model(inputs, layers.Dense(3)(deep({WITHIN}(inputs)))); {COMPILED}"
SHORT = ("epochs=2", "batch_size=16", "validation_split=0", "checkpoint=4", "keep=10")
REFUSED = {
    "a layer of it adds a loss": "model = keras.Model(inputs, deep(inputs, activity_regularizer='l2'))",
    "draws random numbers by RandomStandardNormal": "model = keras.Model(inputs, Noise()(deep(inputs)))",
    "gives a mask": "model = keras.Model(inputs, layers.LSTM(4)(layers.Masking()(layers.Reshape((4, 2))(inputs))))",
    "no part of it is a Functional": "model = Skips(inputs, deep(inputs))",
    "no place where a single tensor": "model = keras.Model(inputs, layers.Dense(3)(inputs))",
}


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["model=transformer", "model=resnet50"])
def test_the_models_of_gputui_learn_the_same(model: str, build: Build) -> None:
    settings = (model, "width=0.1", "epochs=1", "steps_per_epoch=4", "batch_size=16", "data=synthetic", "shape=[8,8,3]",
                "normalization=batch")  # fmt: skip
    kept, again = build(*settings).train(), build(*settings, "recompute=true").train()
    assert again.losses() == pytest.approx(kept.losses(), rel=1e-5)
    for one, two in zip(*(each.loop.built.model.weights for each in (kept, again)), strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-3, atol=1e-4, err_msg=one.path)


@pytest.mark.parametrize("more", [("strategy.kind=mirrored",), *(pytest.param(more, marks=NIGHTLY) for more in (
    (), ("micro_batches=2",), ("policy=mixed_float16",)))])  # fmt: skip
def test_dropout_and_moving_averages_of_own_code_are_those_of_the_first_time(more: tuple[str, ...], own: Write) -> None:
    program = OWN.replace("{body}", WHOLE)
    kept, again = (own(program, *SHORT, *more, f"recompute={on}").train() for on in ("false", "true"))
    assert again.losses() == kept.losses()
    assert "call" in vars(again.loop.built.model), "the whole is divided, and not the small model within it"
    from_its_checkpoint = resumed(own, program, again, 4, *SHORT, *more, "recompute=true").losses()
    assert from_its_checkpoint == again.losses()[-len(from_its_checkpoint) :]
    both = (each.loop.built.model.get_weights() for each in (kept, again))
    assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))


@pytest.mark.parametrize("why", REFUSED)
def test_what_recomputing_would_change_is_refused(why: str, own: Write) -> None:
    with pytest.raises(TrainerError, match=why) as refused:
        own(OWN.replace("{body}", f"{REFUSED[why]}; {COMPILED}"), *SHORT, "recompute=true")
    assert refused.value.hint == "set compile.recompute=false"
