"""What a checkpoint holds of a training besides the variables that Keras lists, and what it says if they differ."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.checkpoint import training_state
from gputui.engine.trainer.checkpoint.object_graph import Collected
from gputui.engine.trainer.checkpoint.training_state import ANEW, State

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


def test_a_search_leaves_the_random_numbers_as_they_were_also_after_an_error() -> None:
    states = training_state.read_random_states([])
    expected = draw([])
    training_state.write_random_states([], json.loads(json.dumps(states)))
    with contextlib.suppress(ValueError), training_state.host_random_kept():
        draw([])
        raise ValueError
    assert draw([]) == expected


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


def test_what_the_code_keeps_is_restored_with_the_weights(tmp_path: Path) -> None:
    kept = Kept()
    first = model()
    State(first, kept).write(str(tmp_path / "state"))
    expected = [float(each.random()) for each in kept.generators]
    again, other = Kept(), model()
    again.variables[0].assign(9.0)
    state = State(other, again)
    state.restore(str(tmp_path / "state"))
    assert [float(each.random()) for each in again.generators] == expected
    assert (again.variables[0].numpy(), state.begins_anew) == (0.0, "")
    for ours, theirs in zip(first.variables, other.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def of_older_version(folder: Path, find: Callable[[], Collected] | None) -> str:
    """A checkpoint as versions up to 0.1.0 have written it: by position, in groups that follow `trainable`."""
    prefix = str(folder / "state")
    tf.train.Checkpoint(**State(model(), find)._by_position()).write(prefix)
    return prefix


@pytest.mark.parametrize("generators", [1, 3])
@pytest.mark.parametrize("write", [written, of_older_version])
def test_code_that_keeps_other_generators_does_not_fit(write: Any, generators: int, tmp_path: Path) -> None:
    state = State(model(), Kept(1, generators))
    with pytest.raises(ValueError, match="your code has other random generators than when the checkpoint was written"):
        state.restore(write(tmp_path, Kept()))


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


def test_which_variables_are_trained_is_restored_and_decides_nothing(tmp_path: Path) -> None:
    prefix, made, other = str(tmp_path / "state"), model(), model()
    state, again = State(made, Kept()), State(other, Kept())
    with state.as_traced():
        pass
    made.layers[0].trainable = False
    state.write(prefix)
    again.traced = again.traced_in(prefix)
    again.restore(prefix)
    assert not other.layers[0].trainable
    np.testing.assert_array_equal(other.get_weights()[0], made.get_weights()[0])
    with again.as_traced():
        assert other.layers[0].trainable, "as it was traced"
    assert not other.layers[0].trainable


def test_another_model_is_refused_by_the_names_of_its_variables(tmp_path: Path) -> None:
    prefix = written(tmp_path, None)
    wider = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="wider")])
    wider.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"^its variables of the model are others: .*/kernel only in the checkpoint"):
        State(wider).restore(prefix)


def test_a_checkpoint_without_the_state_of_the_code_begins_it_anew_and_says_so(tmp_path: Path) -> None:
    prefix = of_older_version(tmp_path, None)
    kept = Kept()
    kept.variables[0].assign(9.0)
    state = State(model(), kept)
    assert state.fits(prefix)
    state.restore(prefix)
    assert (state.begins_anew, kept.variables[0].numpy()) == (ANEW, 9.0)
    plain = State(model())
    plain.restore(prefix)
    assert plain.begins_anew == ""


def test_a_variable_counts_once_whoever_lists_it_and_those_that_a_step_writes_too() -> None:
    made = model()
    weight = made.trainable_variables[0].value
    kept, extra, ours = Kept(), tf.Variable(5.0), tf.Variable(6.0)
    kept.variables += [weight, kept.variables[0]]
    state = State(made, kept)

    def step() -> None:
        for each in (extra, ours, weight, kept.variables[0]):
            each.assign(each)

    state.saw(tf.function(step).get_concrete_function().graph, [ours])
    more = [entry for entry in state._entries() if entry.group == "more"]
    assert [id(entry.parts[0]) for entry in more] == [id(kept.variables[0]), id(extra)]
    assert {entry.group for entry in State(made)._entries()} == {"model", "metrics", "optimizer"}


def test_a_worker_takes_its_own_state_out_of_the_bytes_of_all() -> None:
    """Its random numbers, and its statistics; weights and optimizer are those of all."""
    mine, theirs = Kept(), Kept()
    one, other = model(), model()
    first, second = State(one, mine), State(other, theirs)
    for kept in (mine, theirs):
        kept.variables.append(tf.Variable("text, of which no worker has another"))
    mine.variables[0].assign(3.5)
    draw(mine.generators)
    one.trainable_variables[0].assign([[1.0], [2.0]])
    data = first.of_its_own()
    expected = draw(mine.generators)
    before = other.trainable_variables[0].numpy()
    second.take_own(data)
    assert draw(theirs.generators) == expected
    assert theirs.variables[0].numpy() == 3.5
    np.testing.assert_array_equal(other.trainable_variables[0].numpy(), before)
    the_same = first.the_same()
    assert [tuple(each.shape) for each in the_same][:2] == [(2, 1), (1,)]
    assert len(the_same) == 2 + len(one.optimizer.variables)
    assert [State.size_of(each) for each in the_same[:2]] == [8, 4]
    State.take(the_same[0], np.array([7.0, 8.0], "float32").tobytes())
    assert one.trainable_variables[0].numpy().tolist() == [[7.0], [8.0]]
    replicas = [tf.Variable([1, 2]), tf.Variable([3, 4])]
    mirrored: Any = SimpleNamespace(values=replicas, dtype=tf.int32, shape=(2,))
    State.take(mirrored, np.array([5, 6], "int32").tobytes())
    assert [each.numpy().tolist() for each in replicas] == [[5, 6]] * 2
