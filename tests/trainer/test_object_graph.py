"""What a search in a user's objects finds, and what the graph of a step writes and draws."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.checkpoint import object_graph
from gputui.engine.trainer.checkpoint.object_graph import Module, draws, walk, written
from gputui.engine.trainer.common import versions


@pytest.fixture(autouse=True)
def no_generator_of_keras() -> Iterator[None]:
    """Nothing has drawn from keras.random yet, whichever tests were before."""
    kept = versions.get_global_attribute(versions.GLOBAL_SEED_GENERATOR)
    versions.set_global_attribute(versions.GLOBAL_SEED_GENERATOR, None)
    yield
    versions.set_global_attribute(versions.GLOBAL_SEED_GENERATOR, kept)


class Theirs:
    """A class of the user's code."""

    of_class: Any = None

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def method(self) -> None: ...


def theirs(module: str) -> bool:
    return module == __name__


def found(*roots: Any) -> tuple[list[float], int]:
    """The values of the variables that are found, in their order, and the number of generators."""
    parts = walk(roots, theirs)
    return [float(np.ravel(variable.numpy())[0]) for _, variable in parts.variables], len(parts.generators)


def variable(value: float) -> Any:
    return tf.Variable(value, trainable=False)


def with_default(given: Any = None, *, named: Any = None) -> Any:
    return given, named


def test_variables_are_found_wherever_a_users_object_keeps_them_each_once() -> None:
    one, two, three = variable(1.0), variable(2.0), variable(3.0)
    captured = variable(4.0)

    def closure() -> Any:
        return captured

    assert found([one, {"a": two}, (three, one), deque([variable(5.0)])]) == ([1, 2, 3, 5], 0)
    assert found(Theirs(x=one, inner=Theirs(y=[two]))) == ([1, 2], 0)
    assert found(closure, functools.partial(max, one, key=two)) == ([4, 1, 2], 0)
    assert found(Theirs(x=three).method) == ([3], 0)
    Theirs.method.__kwdefaults__ = {"named": two}
    assert found(Theirs(x=three).method) == ([3, 2], 0)
    Theirs.method.__kwdefaults__ = None
    with_default.__defaults__, with_default.__kwdefaults__ = (one,), {"named": two}
    assert found(with_default) == ([1, 2], 0)
    Theirs.of_class = three
    assert found(Theirs) == ([3], 0)
    Theirs.of_class = None
    assert found(keras.Variable(7.0), "text", 3, None, np.ones(3), tf.constant(1.0), random) == ([7], 0)


def test_a_function_that_has_not_captured_its_variable_yet_and_values_in_rings_are_searched_once() -> None:
    def early() -> Any:
        return later, other

    other = variable(2.0)
    ring: list[Any] = [early, variable(1.0)]
    ring.append({"ring": ring, "method": Theirs(x=other).method})
    assert found(ring) == ([2, 1], 0)
    later = variable(3.0)
    assert found(early) == ([3, 2], 0)
    assert found(Theirs(x=keras.losses.MeanSquaredError(), y=keras.metrics.Mean())) == ([0, 0], 0)


def test_the_generator_of_keras_is_found_although_no_object_has_it() -> None:
    assert walk([], theirs).variables == [], "before the first draw there is none"
    keras.random.normal((1,))
    ((_, state),) = walk([], theirs).variables
    before = state.numpy().tolist()
    keras.random.normal((1,))
    assert state.numpy().tolist() != before


def test_objects_of_other_modules_and_large_containers_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    other = type("Other", (), {"__module__": "elsewhere"})()
    other.x = variable(1.0)
    assert found(other) == ([], 0)
    monkeypatch.setattr(object_graph, "MOST_ITEMS", 3)
    assert found([variable(1.0)] * 3) == ([1], 0)
    assert found([variable(1.0)] * 4, {n: variable(2.0) for n in range(4)}) == ([], 0)


def test_generators_are_found_and_those_of_a_module_without_its_models() -> None:
    seed = keras.random.SeedGenerator(5)
    generators = [np.random.default_rng(1), np.random.RandomState(2), random.Random(3)]
    layer = keras.layers.Dense(2)
    layer.build((None, 1))
    module = Module({"layer": layer, "rng": generators, "keeps": Theirs(x=variable(9.0), rng=random.Random(4)),
                     "seed": seed, "tf": tf.random.Generator.from_seed(6, alg="philox")})  # fmt: skip
    values, count = found(module)
    assert (len(values), values[0], count) == (2, 5.0, 4), "the states of both generators, and no weights"
    assert len(found(layer)[0]) == 2
    assert len(walk([layer, module], theirs).variables) == 4


def test_the_optimizers_of_a_model_are_all_that_it_keeps() -> None:
    first, second, third, fourth = (keras.optimizers.SGD(0.1) for _ in range(4))
    inner = keras.Sequential([keras.layers.Dense(1)])
    inner.compile(third, "mse")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(first, "mse")
    model.kept = {"a": [second], "inner": inner}
    model.again = first
    assert object_graph.optimizers(model) == [first, second, third]
    assert fourth not in object_graph.optimizers(model)


def graph(function: Any, *arguments: Any) -> Any:
    return tf.function(function, autograph=True).get_concrete_function(*arguments).graph


def test_a_graph_writes_what_it_assigns_also_in_functions_loops_and_branches() -> None:
    read, plain, in_function, in_loop, in_branch, added = (variable(float(n)) for n in range(6))

    def assigns() -> Any:
        in_function.assign(1.0)
        return read + 1.0

    inner = tf.function(assigns)

    def step(flag: Any) -> Any:
        plain.assign(read + inner())
        added.assign_add(1.0)
        if flag:
            in_branch.assign(2.0)
        for _ in tf.range(3):
            in_loop.assign_add(read)
        return plain.read_value()

    made = graph(step, tf.constant(True))
    assert {id(each) for each in written(made)} == {
        id(each) for each in (plain, in_function, in_loop, in_branch, added)
    }
    assert written(graph(lambda: read + tf.identity(plain))) == []

    def passes_on() -> None:
        _ = plain.read_value(), read.read_value()
        tf.raw_ops.AssignVariableOp(resource=tf.identity(plain.handle), value=tf.constant(7.0))
        tf.raw_ops.ReadVariableOp(resource=tf.identity(read.handle), dtype=tf.float32)

    assert [id(each) for each in written(graph(passes_on))] == [id(plain)], "under another name"


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
