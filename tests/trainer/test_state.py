"""What a checkpoint holds beside the weights: generators, callbacks, objects of the user; and draws that it misses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import (
    Arrays,
    Collected,
    State,
    StopRequested,
    TrainerError,
    callback_state,
    draws,
    training_state,
    versions,
)
from tests.support.own import Write, resumed
from tests.support.training import Training

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own callbacks


GENERATORS: dict[str, Callable[[], Any]] = {
    "Generator": lambda: np.random.default_rng(1),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(2)),
    "RandomState": lambda: np.random.RandomState(3),
    "Random": lambda: random.Random(4),
}


@pytest.fixture(autouse=True)
def _global_states() -> Iterator[None]:
    with training_state.host_random_kept():
        yield


def draw(generators: list[Any]) -> list[float]:
    """The next number of each, after those of Python and NumPy."""
    first = [random.random(), float(np.random.random())]
    return [*first, *(float(each.random()) for each in generators), random.gauss(0, 1), float(np.random.normal())]


def test_generators_draw_on_where_they_were() -> None:
    """Also the half of a pair of normal numbers that was not given yet."""
    generators = [make() for make in GENERATORS.values()]
    draw(generators)
    states = json.loads(json.dumps(training_state.read_random_states(generators)))
    expected = draw(generators)
    draw(generators)
    training_state.write_random_states(generators, states)
    assert draw(generators) == expected
    others = [make() for make in GENERATORS.values()]
    training_state.write_random_states(others, states)
    assert draw(others) == expected
    with pytest.raises(ValueError, match="zip"):
        training_state.write_random_states(generators[:-1], states)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    made.compile("sgd", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


class Kept:
    """What a user's code keeps: variables and generators, in any number."""

    def __init__(self, variables: int = 1, generators: int = 2) -> None:
        self.variables = [tf.Variable(float(number)) for number in range(variables)]
        self.generators = [np.random.default_rng(number) for number in range(generators)]

    def __call__(self) -> Collected:
        return Collected([("Kept.variables", each) for each in self.variables], list(self.generators))


def written(folder: Path, find: Callable[[], Collected] | None) -> str:
    prefix = str(folder / "state")
    State(model(), find).write(prefix)
    return prefix


def of_older_version(folder: Path, find: Callable[[], Collected] | None) -> str:
    """A checkpoint as versions up to 0.1.0 have written it: by position, in groups that follow `trainable`."""
    prefix = str(folder / "state")
    tf.train.Checkpoint(**State(model(), find)._by_position()).write(prefix)
    return prefix


def test_a_checkpoint_of_an_older_version_is_restored(tmp_path: Path) -> None:
    kept = Kept(2)
    kept.variables[1].assign(5.0)
    prefix, again = of_older_version(tmp_path, kept), Kept(2)
    state = State(model(), again)
    assert state.fits(prefix)
    assert state.restore(prefix) == []
    assert (again.variables[1].numpy(), state.begins_anew) == (5.0, "")
    with pytest.raises(
        ValueError, match=r"^it contains 2 variables besides those that Keras lists, but your code has 3"
    ):
        State(model(), Kept(3)).restore(prefix)


class Late:
    """Keeps a second model, whose weights and slots are created at its first batch, and variables of its own."""

    def __init__(self) -> None:
        self.model = keras.Sequential([keras.layers.Dense(1, name="late")], name="second")
        self.model.compile(keras.optimizers.Adam(0.1, name="late_adam"), "mse")
        self.average: list[Any] = []

    def train(self) -> float:
        return float(self.model.train_on_batch(np.ones((3, 2)), np.ones((3, 1))))

    def __call__(self) -> Collected:
        slots = [*self.model.variables, *self.model.optimizer.variables, *self.model.metrics_variables]
        own = [("Late.average", variable) for variable in self.average]
        return Collected([*((each.path, each.value) for each in slots), *own])


def test_variables_that_are_created_after_the_restore_get_their_values_or_are_named(tmp_path: Path) -> None:
    """Those of Keras get them, even if the state is saved once more before."""
    late, prefixes = Late(), [str(tmp_path / name) for name in ("first", "again")]
    late.train()
    late.average = [tf.Variable(1.0)]
    State(model(), late).write(prefixes[0])
    expected = late.train()
    between = State(model(), Late())
    assert not between.fits(prefixes[0])
    assert between.restore(prefixes[0]) == []
    between.write(prefixes[1])
    between.later.close()
    again = Late()
    state = State(model(), again)
    state.restore(prefixes[1])
    assert again.train() == expected
    assert state.missed() == []
    assert [entry.name for entry in state.later.waiting] == ["Late.average"]
    again.average = [tf.Variable(0.0)]
    assert state.missed() == ["Late.average"]
    state.later.close()


def test_another_model_is_refused_by_the_names_of_its_variables(tmp_path: Path) -> None:
    prefix = written(tmp_path, None)
    wider = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="wider")])
    wider.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"^its variables of the model are others: .*/kernel only in the checkpoint"):
        State(wider).restore(prefix)


PROGRAM = """
import keras, numpy as np

class Counts(keras.callbacks.Callback):
    STOP = []  # a method and its number, in which the training is asked to stop
    def __init__(self):
        super().__init__()
        self.seen = {"begun": 0, "batches": 0, "epochs": 0, "tests": 0, "ends": [], "pair": (0, None),
                     "last": np.zeros(2, "float32")}
    def get_state(self):
        return self.seen
    def set_state(self, state):
        self.seen = state
    def count(self, name):
        self.seen[name] += 1
        if Counts.STOP[:2] == [name, self.seen[name]]:
            Counts.STOP[2]()
    def on_train_batch_begin(self, batch, logs=None):
        self.count("begun")
    def on_train_batch_end(self, batch, logs=None):
        self.count("batches")
    def on_epoch_begin(self, epoch, logs=None):
        self.count("epochs")
    def on_test_end(self, logs=None):
        self.count("tests")
    def on_epoch_end(self, epoch, logs=None):
        self.seen["ends"].append((epoch, logs))
        self.seen["pair"] = (epoch, "text")
        self.seen["last"][epoch % 2] = logs["val_loss"]
        self.model.evaluate(np.zeros((4, 6)), np.zeros(4), verbose=0)
    def on_train_end(self, logs=None):
        self.seen["end"] = logs

def build(context):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=120) * 2).astype("float32")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.03), "mse")
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, cooldown=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.97),
        keras.callbacks.ModelCheckpoint("best.keras", "val_loss", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
        Counts(),
    ]
    data = {"train": (x[:100], y[:100]), "validation": (x[100:], y[100:])}
    return {"model": model, **data, "callbacks": callbacks}
"""
SETTINGS = ("epochs=30", "batch_size=20", "checkpoint=3", "keep=99")  # 5 steps per epoch


def kept(training: Training) -> list[dict[str, Any]]:
    """What the callbacks have counted, without objects of Keras and what says how a file was opened."""
    own = training.loop.built.own
    assert own is not None
    left_out = ("_model", "_params", "params", "monitor_op", "csv_file", "writer", "append_header", "schedule",
                "min_delta", "_current_epoch")  # fmt: skip
    return [{name: value for name, value in vars(each).items() if name not in left_out} for each in own.callbacks]


def same(again: Training, whole: Training) -> None:
    """Assert that both have ended with the same step, counts of callbacks and weights."""
    assert again.loop.step == whole.loop.step
    np.testing.assert_equal(kept(again), kept(whole))
    pairs = zip(again.loop.built.model.get_weights(), whole.loop.built.model.get_weights(), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


def test_callbacks_of_keras_and_those_with_a_state_go_on(own: Write) -> None:
    """In the middle of an epoch, and at the end of the training, which a callback had ended."""
    settings = (*SETTINGS, "checkpoint=1")
    whole = own(PROGRAM, *settings).train()
    rows, end = Path("log.csv").read_text(), whole.loop.step
    assert end < 150, "EarlyStopping has ended it"
    for step in (end - 7, end):
        again = resumed(own, PROGRAM, whole, step, *settings)
        same(again, whole)
        assert Path("log.csv").read_text() == rows
        assert again.events("warning") == []
    assert [event["phase"] for event in again.events("phase")].count("training") == 0


def test_a_stop_before_an_execution_comes_before_callbacks_begin_it(own: Write) -> None:
    stopped = own(PROGRAM, *SETTINGS, "checkpoint=1000")
    built = stopped.loop.built
    assert built.own is not None
    counts: Any = built.own.callbacks[-1]
    vars(type(counts))["STOP"][:] = ["tests", 2, lambda: setattr(built.stop, "reason", "stopped")]
    with pytest.raises(StopRequested):
        stopped.train()
    assert (stopped.loop.step, counts.seen["begun"], counts.seen["epochs"]) == (10, 10, 2)


def test_a_training_that_a_callback_has_ended_within_an_epoch_ends_at_once(own: Write) -> None:
    within = PROGRAM.replace('self.count("batches")', "self.model.stop_training = batch == 3")
    whole = own(within, *SETTINGS, "checkpoint=4").train()
    assert (whole.loop.step, len(whole.events("epoch"))) == (4, 1)
    same(resumed(own, within, whole, 4, *SETTINGS), whole)


# ---- states that are given ------------------------------------------------------------------------


class Gives(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = state


UNSAVED = {
    "set": ({"pair": [1, {2}]}, r"get_state of the callback Gives returns a value of type set in state\['pair'\]\[1\]"),
    "key": ({"pair": {1: 2}}, r"returns the key 1 in state\['pair'\]"),
    "objects": ({"last": np.array([None])}, r"returns an array of object in state\['last'\]"),
    "whole": ([1], "returns list, not a dict"),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_a_state_that_cannot_be_saved_is_refused(name: str) -> None:
    state, message = UNSAVED[name]
    with pytest.raises(TrainerError, match=message):
        callback_state.state_of([Gives(state)], Arrays())


def test_each_of_several_callbacks_of_a_class_gets_its_own_state_back() -> None:
    first, second, other = Gives({"n": 1}), Gives({"n": 2}), keras.callbacks.EarlyStopping(patience=9)
    other.wait = 5
    arrays = Arrays()
    states = callback_state.state_of([first, other, second], arrays)
    new: list[Any] = [keras.callbacks.EarlyStopping(), Gives({}), Gives({}), Gives({"kept": True})]
    assert callback_state.restore(new, states, arrays) == ["Gives starts again: the checkpoint has no state of it"]
    assert [each.state for each in new[1:]] == [{"n": 1}, {"n": 2}, {"kept": True}]
    assert (new[0].wait, new[0].patience) == (5, 0), "what it counts, and not what it was made with"
    without: Any = type("Gives", (keras.callbacks.Callback,), {})()
    assert callback_state.restore([without], states, arrays) == [], "its methods were removed since"


@pytest.fixture(autouse=True)
def no_generator_of_keras() -> Iterator[None]:
    """Nothing has drawn from keras.random yet, whichever tests were before."""
    kept = versions.get_global_attribute(versions.GLOBAL_SEED_GENERATOR)
    versions.set_global_attribute(versions.GLOBAL_SEED_GENERATOR, None)
    yield
    versions.set_global_attribute(versions.GLOBAL_SEED_GENERATOR, kept)


def graph(function: Any, *arguments: Any) -> Any:
    return tf.function(function, autograph=True).get_concrete_function(*arguments).graph


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: tf.random.normal((2,)), "tf.random.normal"),
        (lambda: tf.random.uniform((2,)), "tf.random.uniform"),
        (lambda: tf.random.uniform((2,), 0, 5, tf.int32), "tf.random.uniform"),
        (lambda: tf.random.truncated_normal((2,)), "tf.random.truncated_normal"),
        (lambda: tf.random.shuffle(tf.range(3)), "tf.random.shuffle"),
        (lambda: tf.random.categorical(tf.zeros((1, 3)), 2), "tf.random.categorical"),
        (lambda: tf.random.gamma((2,), 1.0), "tf.random.gamma"),
        (lambda: tf.random.poisson((2,), 1.0), "tf.random.poisson"),
        (lambda: tf.raw_ops.ParameterizedTruncatedNormal(
            shape=[2], means=[0.0], stdevs=[1.0], minvals=[-1.0], maxvals=[1.0]), "tf.random.truncated_normal"),
        (lambda: tf.image.sample_distorted_bounding_box((4, 4, 1), tf.zeros((1, 0, 4)), 0.5,
                                                        use_image_if_no_bounding_boxes=True).begin,
         "tf.image.sample_distorted_bounding_box"),
        (lambda: tf.random.uniform_candidate_sampler(tf.zeros((1, 1), tf.int64), 1, 2, True, 9)[0], "a sampled loss"),
        (lambda: tf.random.log_uniform_candidate_sampler(tf.zeros((1, 1), tf.int64), 1, 2, True, 9)[0],
         "a sampled loss"),
        (lambda: tf.random.learned_unigram_candidate_sampler(tf.zeros((1, 1), tf.int64), 1, 2, True, 9)[0],
         "a sampled loss"),
    ],
)  # fmt: skip
def test_draws_that_cannot_be_restored_are_found_with_their_lines(draw: Any, name: str) -> None:
    outer = tf.function(draw)

    def step(flag: Any) -> Any:
        if flag:
            return outer()
        return outer()

    (first, *more) = draws(graph(step, tf.constant(True)))
    assert {each.name for each in (first, *more)} == {name}
    assert any(file == __file__ and function == "<lambda>" for file, _, function in first.lines)
    assert draws(graph(lambda: tf.random.stateless_normal((2,), (1, 2)))) == []
