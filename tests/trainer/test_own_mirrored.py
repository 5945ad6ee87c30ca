"""Models that are built in their first step train over several replicas; what cannot be is refused with its reason."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own.user_code import UserError

from tests.support.own import Write
from tests.trainer.test_own_resume import DRAWN, NAMES, SHORT, resumed, warned

MIRRORED = (*SHORT, "strategy.kind=mirrored", "batch_size=10")


RESUMED = ("gan", "average", "diffusion")  # a seed generator, averaged weights, the global state of Keras
ALL_BUT_ONE_SLOW = [name if name == "gan" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", ALL_BUT_ONE_SLOW)
def test_a_program_that_builds_itself_in_its_first_step_trains_over_replicas_and_resumes(name: str, own: Write) -> None:
    source = DRAWN / f"{name}.py"
    training = own(source, *MIRRORED).train()
    losses = training.losses()
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    assert {len(variable.value.values) for variable in training.loop.built.model.trainable_variables} == {2}
    assert warned(training) == []
    if name in RESUMED:
        again = resumed(own, source, training, 4, *MIRRORED)
        assert again.losses() == losses
        both = again.loop.built.model.get_weights(), training.loop.built.model.get_weights()
        assert all(np.array_equal(*pair) for pair in zip(*both, strict=True))
        assert warned(again) == []


HEAD = """
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
def network():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
"""
AT_THE_TOP = (
    HEAD
    + """
class Momentum(keras.optimizers.Optimizer):
    def build(self, variables):
        super().build(variables)
        self._momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]
    def update_step(self, gradient, variable, rate):
        momentum = self._momentums[self._get_variable_index(variable)]
        self.assign(momentum, 0.9 * momentum - rate * gradient)
        self.assign_add(variable, momentum)
class Mine(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.tracker = keras.layers.Dense(1), keras.metrics.Mean("loss")
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.inner(data[0]) - data[1]))
        weights = self.inner.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}
made = Mine()
made.compile(Momentum(0.01))
def build(context):
    return made, (x, x.sum(axis=1, keepdims=True))
"""
)


def test_a_model_made_at_the_top_of_its_module_and_an_optimizer_of_their_own(own: Write) -> None:
    losses = own(AT_THE_TOP, *MIRRORED).train().losses()
    assert losses[2] < losses[0]


REFUSED = {
    "scope": (
        """
def build(context):
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        made = network()
    made.compile("sgd", "mse")
    return made, (x, x[:, :1])
""",
        "train.py:8 in build: RuntimeError: ",
        "remove your own",
    ),
    "thread": (
        """
import threading
def build(context):
    found = []
    thread = threading.Thread(target=lambda: found.append(network()))
    thread.start()
    thread.join()
    found[0].compile("sgd", "mse")
    return found[0], (x, x[:, :1])
""",
        "was created outside the scope of strategy.kind=mirrored",
        "create model and optimizer in build",
    ),
    "step": (
        """
class Mine(keras.Model):
    def train_step(self, data):
        raise KeyError("nothing here")
def build(context):
    made = Mine()
    made.compile("sgd")
    return made, (x, x[:, :1])
""",
        "Mine has no variables yet, and they cannot be created for strategy.kind=mirrored: train.py:9 in train_step",
        "call the model",
    ),
}

REFUSED["accumulation"] = (
    """
def build(context):
    made = network()
    made.compile(keras.optimizers.Adam(gradient_accumulation_steps=4), "mse")
    return made, (x, x[:, :1])
""",
    "Adam(gradient_accumulation_steps=4) of your code",
    "train.micro_batches",
)


def test_batches_of_sparse_tensors_are_split_over_the_replicas(own: Write) -> None:
    training = own(
        HEAD
        + """
def build(context):
    given = keras.Input((4,), sparse=True)
    made = keras.Model(given, keras.layers.Dense(1, kernel_initializer="zeros")(given))
    made.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(context.global_batch_size - 1)
    return made, data.map(lambda a, b: (tf.sparse.from_dense(a), b))
""",
        *MIRRORED,
        "epochs=1",
    )
    spec, _ = training.loop.built.own.pipeline.stream(0).element_spec if training.loop.built.own else (None, None)
    assert isinstance(spec, tf.SparseTensorSpec)
    assert spec.shape.as_list() == [None, 4]
    (loss,) = training.train().losses()
    assert 0 < loss < 1.5


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mirrored_is_refused_before_it_trains(name: str, own: Write) -> None:
    source, told, hint = REFUSED[name]
    with pytest.raises(UserError) as refused:
        own(HEAD + source, *MIRRORED)
    assert told in refused.value.message
    assert hint in refused.value.hint


def test_variables_outside_the_scope_of_a_model_with_its_own_fit_are_refused_before_it_trains(own: Write) -> None:
    source = """
import threading
class Mine(keras.Sequential):
    def fit(self, *given, **more):
        return super().fit(*given, **more)
def made():
    return Mine([keras.Input((4,)), keras.layers.Dense(1)])
def build(context):
    found = []
    thread = threading.Thread(target=lambda: found.append(made()))
    thread.start()
    thread.join()
    found[0].compile("sgd", "mse")
    return found[0], (x, x[:, :1])
"""
    training = own(HEAD + source, *MIRRORED)
    with pytest.raises(UserError) as refused:
        training.train()
    assert "was created outside the scope of strategy.kind=mirrored" in refused.value.message
