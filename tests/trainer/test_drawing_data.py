"""Which functions of a user's data draw numbers that a resumed run does not draw again, found in their code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own.iterables import exactness

WITHIN = "make the random generator within the function, such as rng = np.random.default_rng(seed)"
STATEFUL = "return a function that makes it, or give it the methods get_state() and set_state(state), as Grain's have"

OUTER = np.random.default_rng(1)
LEGACY = np.random.RandomState(1)
PLAIN = random.Random(1)


def exact() -> Iterator[Any]:
    rng = np.random.default_rng(3)
    yield rng.normal() + np.random.RandomState(3).normal() + random.Random(3).random()


def draws() -> Iterator[Any]:
    yield np.random.normal()
    yield random.random()


def of_others() -> Iterator[Any]:
    yield OUTER.normal() + LEGACY.normal() + PLAIN.random()


def fourth() -> Any:
    return OUTER.normal()


def third() -> Any:
    return fourth()


def second() -> Any:
    return third()


def first() -> Any:
    return second()


def three_deep() -> Iterator[Any]:
    yield second()


def four_deep() -> Iterator[Any]:
    yield first()


def again(depth: int = 3) -> Iterator[Any]:
    if depth:
        yield from again(depth - 1)
    yield np.random.normal()


def closed() -> Any:
    rng, seeds = np.random.default_rng(2), keras.random.SeedGenerator(3)

    def batches() -> Iterator[Any]:
        yield rng.normal() + seeds.next()

    return batches


class Rows:
    """Draws from what it keeps."""

    def __init__(self) -> None:
        self.rng, self.generator = random.Random(1), tf.random.Generator.from_seed(1)

    def __iter__(self) -> Iterator[Any]:
        yield self.rng.random() + self.generator.normal(()) + self._more()

    def _more(self) -> Any:
        return np.random.normal()

    def __call__(self) -> Iterator[Any]:
        return iter([self.rng.random()])

    def method(self) -> Iterator[Any]:
        yield self.rng.random()


class Plain:
    """Keeps its place."""

    def __iter__(self) -> Plain:
        return self

    def __next__(self) -> Any:
        return 3


class Drawing(Plain):
    """One pass, which draws from what it keeps."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def __next__(self) -> Any:
        return self.rng.random()


class Stateful(Plain):
    def __next__(self) -> Any:
        return np.random.normal()

    def get_state(self) -> int:
        return 3

    def set_state(self, state: int) -> None:
        pass


def found(data: Any, mine: bool = True) -> tuple[list[str], str]:
    """The places without their lines."""
    places, instead = exactness.inexact(data, lambda file: mine and file == __file__)
    said = ": a resumed run draws other numbers"
    assert all(place.endswith(f"){said}") for place in places)
    return [place.partition(" (test_drawing_data.py:")[0] for place in places], instead


def test_a_function_is_exact_if_it_makes_its_own_generator() -> None:
    for data in (exact, lambda: iter([1]), np.zeros(3), tf.data.Dataset.range(3), (exact, exact), Stateful()):
        assert found(data)[0] == []


def test_draws_from_global_states_and_from_generators_made_elsewhere_are_named() -> None:
    outside = "which is made outside of it"
    for data, places in (
        (draws, ["draws draws from np.random", "draws draws from random"]),
        (of_others, [f"of_others draws from {name}, {outside}" for name in ("OUTER", "LEGACY", "PLAIN")]),
        (three_deep, [f"fourth draws from OUTER, {outside}"]),
        (four_deep, []),
        (again, ["again draws from np.random"]),
        (closed(), [f"batches draws from rng, {outside}", f"batches draws from seeds, {outside}"]),
        (Rows(), [
            f"__iter__ draws from self.rng, {outside}", f"__iter__ draws from self.generator, {outside}",
            f"__call__ draws from self.rng, {outside}",
        ]),
        (Rows().method, [f"method draws from self.rng, {outside}"]),
    ):  # fmt: skip
        told, instead = found(data)
        assert (sorted(told), instead) == (sorted(places), WITHIN), data


def test_the_variables_of_a_generator_that_only_it_reaches_begin_again_with_it() -> None:
    assert found(closed()())[0] == found(Drawing())[0] == []
    assert "of_others draws from OUTER, which is made outside of it" in found(of_others())[0]
    ended: Any = of_others()
    ended.close()
    keeps = "a generator keeps its place to itself: a resumed run draws its first batches again and leaves them out"
    later = ", and later batches are the same only if they depend on nothing else"
    assert exactness.inexact(ended, lambda file: True) == ([keeps + later], STATEFUL)


@pytest.mark.parametrize(("data", "mine"), [(zip([1], [2], strict=True), True), (Plain(), False), (of_others, False)])
def test_of_code_that_is_not_theirs_only_that_it_keeps_its_place_is_known(data: Any, mine: bool) -> None:
    (told,), instead = exactness.inexact(data, lambda file: mine and file == __file__)
    assert " keeps its place to itself: " in told
    assert instead == STATEFUL


def test_a_place_is_named_once_with_its_line() -> None:
    def twice() -> Iterator[Any]:
        yield fourth() + fourth()

    line = fourth.__code__.co_firstlineno + 1
    assert exactness.inexact(twice, lambda file: file == __file__)[0] == [
        f"fourth draws from OUTER, which is made outside of it (test_drawing_data.py:{line}): a resumed run draws "
        "other numbers"
    ]
