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
        return Collected(list(self.variables), list(self.generators))


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


@pytest.mark.parametrize(
    ("variables", "generators", "message"),
    [
        (3, 2, "it contains 1 variables besides those that Keras lists, but your code has 3"),
        (1, 1, "your code has other random generators than when the checkpoint was written"),
        (1, 3, "your code has other random generators than when the checkpoint was written"),
    ],
)
def test_code_that_keeps_something_else_does_not_fit(
    variables: int, generators: int, message: str, tmp_path: Path
) -> None:
    prefix, kept = written(tmp_path, Kept()), Kept(variables, generators)
    state = State(model(), kept)
    assert state.fits(prefix) is (variables == 1)
    with pytest.raises(ValueError, match=f"^{message}$"):
        state.restore(prefix)


def test_a_checkpoint_without_the_state_of_the_code_begins_it_anew_and_says_so(tmp_path: Path) -> None:
    prefix = written(tmp_path, None)
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
    objects = state.objects()
    assert list(objects) == ["weights", "others", "metrics", "optimizer", "more", "host"]
    assert [id(each) for each in objects["more"]] == [id(kept.variables[0]), id(extra)]
    assert list(State(made).objects()) == ["weights", "others", "metrics", "optimizer"]


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
