"""How data that is read by iterating goes on pass after pass, and from any place: iterators, functions, PyDatasets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own import py_dataset
from gputui.engine.trainer.own.iterables import kinds, positions
from gputui.engine.trainer.own.iterables.kinds import Anew, Once, Passes, Repeated
from gputui.engine.trainer.own.iterables.positions import Positions
from gputui.engine.trainer.own.user_code import UserError

from tests.support.training import options

X, Y = np.zeros((6, 2), "float32"), np.zeros(6, "int64")


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


# ---- places in a pass --------------------------------------------------------------------------


class Numbers(Passes):
    """Passes over numbers, and what is done to them; with `exact`, an iterator can be begun at any number."""

    name = "a Numbers"

    def __init__(self, per_pass: int, exact: bool = False, once: bool = False) -> None:
        self.per_pass, self.exact, self.once = per_pass, exact, once
        self.begun: list[Any] = []
        self.closed = 0

    def begin(self, state: Any = None) -> Any:
        self.begun.append(state)
        return _From(state or 0, self.per_pass)

    def state(self, iterator: Any) -> Any:
        return iterator.at if self.exact else None

    def close(self, iterator: Any) -> None:
        self.closed += 1


class _From:
    def __init__(self, at: int, end: int) -> None:
        self.at, self.end = at, end

    def __next__(self) -> int:
        if self.at == self.end:
            raise StopIteration
        self.at += 1
        return self.at - 1


def places(passes: Passes) -> Positions:
    return Positions(passes, "train", lambda number: number, "train.steps_per_epoch")


def taken(made: Positions, first: int, number: int) -> list[int]:
    return list(itertools.islice(made.batches(first), number))


@pytest.mark.parametrize("exact", [False, True])
def test_batches_go_on_pass_after_pass_from_any_place(exact: bool) -> None:
    passes = Numbers(3, exact)
    made = places(passes)
    assert taken(made, 0, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert passes.begun == [None, None, None]
    assert passes.closed == 2
    assert taken(made, 7, 2) == [1, 2], "the next ones, without beginning again"
    assert passes.begun == [None] * 3
    assert taken(made, 5, 2) == [2, 0]
    assert passes.begun[3:] == ([2, None] if exact else [None, None]), "at the last place before"
    kept = made.state(5)
    assert kept == ({"batches": 5, "of_pass": 2, "state": 2} if exact else {"batches": 3, "of_pass": 0, "state": None})
    again = places(Numbers(3, exact))
    again.restore(kept)
    assert taken(again, 5, 3) == [2, 0, 1]
    assert again.passes.begun[0] == (2 if exact else None)  # type: ignore[attr-defined]
    assert made.state(2) is None, "earlier places are dropped"
    assert places(passes).state(0) is None
    closed = passes.closed
    made.close()
    assert passes.closed == closed + 1
    assert taken(made, 8, 1) == []


def test_many_places_are_thinned_out_and_the_newest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_MOST_KEPT", 4)
    made = places(Numbers(100, exact=True))
    taken(made, 0, 8)
    newest, older = made.state(8), made.state(7)
    assert newest is not None
    assert (newest["batches"], older) == (8, None), "what is older than a checkpoint is dropped"
    made = places(Numbers(100, exact=True))
    taken(made, 0, 8)
    kept = [state["batches"] for step in (3, 5, 7, 8) if (state := made.state(step)) is not None]
    assert kept == [0, 0, 6, 8]


def test_one_pass_that_ends_and_a_pass_without_batches_are_refused() -> None:
    made = places(Numbers(2, once=True))
    with pytest.raises(ValueError, match="train ended after 2 batches"):
        taken(made, 0, 3)
    assert made.fault is not None
    assert (made.fault.message, made.fault.hint) == (
        "train ended after 2 batches, and more are needed: a Numbers has only one pass",
        "let it yield without an end, return the function that makes it, or lower train.steps_per_epoch",
    )
    going = places(Numbers(9, once=True))
    taken(going, 0, 2)
    assert going.state(2) is None, "it cannot be begun again"
    empty = places(Numbers(0))
    with pytest.raises(ValueError, match="a pass over train has no batches"):
        taken(empty, 0, 1)
    only_once = iter([[1, 2], []])
    later = places(Anew(lambda: iter(next(only_once)), "x"))
    with pytest.raises(ValueError, match="a pass over train has no batches"):
        taken(later, 0, 3)


# ---- kinds of iterators ------------------------------------------------------------------------


class Stateful:
    """Counts, and can be told where."""

    def __init__(self) -> None:
        self.place: Any = 0

    def __iter__(self) -> Stateful:
        return self

    def __next__(self) -> int:
        self.place += 1
        return int(self.place)

    def get_state(self) -> Any:
        return bytes([self.place])

    def set_state(self, state: bytes) -> None:
        self.place = state[0]


def test_an_iterator_is_read_once_and_what_was_looked_at_comes_again() -> None:
    plain = Once(iter([1, 2, 3]))
    assert plain.peek(2) == [1, 2]
    assert (plain.name, plain.once, plain.exact, plain.batches) == ("a list_iterator", True, False, None)
    assert plain.state(None) is None
    assert list(plain.begin()) == [1, 2, 3]
    assert refused(plain.begin) == ("a list_iterator cannot be begun again", "return the function that makes it")
    keeps = Once(Stateful())
    assert keeps.peek(2) == [1, 2]
    iterator = keeps.begin()
    assert [next(iterator), next(iterator)] == [1, 2]
    state = keeps.state(iterator)
    assert state == {"base64": "Ag=="}
    assert next(iterator) == 3
    assert next(keeps.begin(state)) == 3


def test_a_state_is_that_of_the_moment_in_which_it_was_asked_for() -> None:
    class Counts(Stateful):
        def __init__(self) -> None:
            self.place = [0]

        def __next__(self) -> int:
            self.place[0] += 1
            return int(self.place[0])

        def get_state(self) -> Any:
            return {"place": self.place}

        def set_state(self, state: Any) -> None:
            self.place = list(state["place"])

    for passes in (Once(Counts()), Anew(Counts, "x")):
        iterator = passes.begin()
        assert [next(iterator), next(iterator)] == [1, 2]
        state = passes.state(iterator)
        assert next(iterator) == 3
        assert next(passes.begin(state)) == 3


def test_a_function_begins_anew_and_looking_at_it_moves_no_global_state() -> None:
    closed: list[int] = []

    def drawing() -> Iterator[float]:
        try:
            while True:
                yield random.random() + np.random.rand()
        finally:
            closed.append(1)

    passes = Anew(drawing, "the function drawing")
    random.seed(3)
    np.random.seed(3)
    first = passes.peek(2)
    assert closed == [1]
    assert list(itertools.islice(passes.begin(), 2)) == first
    keeps = Anew(Stateful, "x")
    assert not keeps.exact
    iterator = keeps.begin({"value": [7]})
    assert (keeps.exact, next(iterator)) == (True, 8)
    assert refused(lambda: Anew(lambda: 3, "f").begin()) == (
        "f returned an int, not an iterator", "yield the batches, each as (x, y)",
    )  # fmt: skip


def test_a_state_that_json_cannot_hold_is_refused_before_the_training() -> None:
    class Bad(Stateful):
        def get_state(self) -> Any:
            return {1, 2}

    assert refused(lambda: Anew(Bad, "x").peek(1)) == (
        "get_state of the data returned a set that JSON cannot hold",
        "return bytes, or numbers, texts, lists and dicts of them",
    )


def test_validation_data_of_one_pass_are_kept_for_each_pass() -> None:
    repeated = Repeated(Once(iter([1, 2, 3])), 2, "validation_steps")
    assert (list(repeated.begin()), list(repeated.begin())) == ([1, 2], [1, 2])
    assert (repeated.exact, repeated.once, repeated.batches) == (True, False, 2)
    few = Repeated(Once(iter([1])), 2, "validation_steps")
    assert refused(lambda: list(few.begin())) == (
        "validation ended after 1 batches: a list_iterator has only one pass",
        "lower validation_steps, or return the function that makes it",
    )
    assert [kinds.named(value) for value in (Stateful(), [1], OSError())] == ["a Stateful", "a list", "an OSError"]


# ---- a PyDataset -------------------------------------------------------------------------------


class Pages(keras.utils.PyDataset):  # type: ignore[misc]
    """Notes what it is told."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.seen: list[Any] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        self.seen.append(index)
        return X, Y

    def on_epoch_begin(self) -> None:
        self.seen.append("begin")

    def on_epoch_end(self) -> None:
        self.seen.append("end")


def test_a_dataset_is_told_of_each_pass_once_and_of_those_before_it() -> None:
    data = Pages()
    loader = py_dataset.Loader(data, 3, alone=True)
    assert loader.begin(1, skipped=1) == 3
    assert data.seen == ["end", "begin", "end", "begin"]
    loader.load(1)
    assert data.seen[4:] == [1]
    assert [array.shape for array in loader.load(2)] == [(6, 2), (6,)]
    assert data.seen[5:] == [2, "end"]
    loader.begin(1, skipped=0)
    assert data.seen[7:] == []
    loader.begin(2, skipped=3)
    assert data.seen[7:] == ["begin"]


def test_a_dataset_of_evaluations_is_told_of_the_first_alone() -> None:
    data = Pages()
    loader = py_dataset.Loader(data, 3, alone=True, evaluates=True)
    for number in (0, 1, 0):  # the stream is endless, and begins again in the next evaluation
        assert loader.begin(number, skipped=0) == 3
        for index in range(3):
            loader.load(index)
    assert data.seen == ["end", "begin", *[0, 1, 2] * 3]


def test_a_dataset_is_told_of_passes_as_by_keras() -> None:
    theirs, ours = Pages(), Pages()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(theirs, epochs=2, shuffle=False, verbose=0)
    loader = py_dataset.Loader(ours, 3, alone=True)
    for number in range(2):
        loader.begin(number, skipped=0)
        for index in range(3):
            loader.load(index)
    assert theirs.seen == [0, 1, *ours.seen], "Keras looks at two batches, for their shapes"


@pytest.mark.parametrize(
    ("workers", "processes", "calls", "at_once"),
    [(1, False, "auto", 1), (4, False, "auto", 4), (4, True, "auto", 1), (4, False, "2", 2), (4, False, "9", 4),
     (4, False, "off", 1), (0, False, "auto", 1)],
)  # fmt: skip
def test_as_many_batches_are_loaded_at_once_as_the_dataset_and_the_option_allow(
    workers: int, processes: bool, calls: str, at_once: int
) -> None:
    data = Pages(workers=workers, use_multiprocessing=processes)
    assert py_dataset.loads_at_once(data, options(f"parallel_calls={calls}")) == at_once


def test_the_type_of_a_datasets_batches_is_as_open_as_the_model_and_its_first_two_batches() -> None:
    class Texts(Pages):
        def __getitem__(self, index: int) -> Any:
            self.seen.append(index)
            return [np.zeros((4, 7 + index)), np.array([["a"]] * 4), None]

    shape: Any = SimpleNamespace(inputs=[], outputs=[])
    found = py_dataset.indexed(Texts(), options(), 12, shape)
    assert found.spec == (tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((None, 1), tf.string))
    assert (found.batches, found.samples, found.batch_size, found.data.seen) == (3, 12, 4, [0, 1])
    open_model: Any = SimpleNamespace(
        inputs=[SimpleNamespace(name="x", shape=(None, None))], outputs=[SimpleNamespace(name="y", shape=(None, None))]
    )
    given = (tf.TensorSpec((None, 7), tf.float32), tf.TensorSpec((None, 1), tf.int32))
    opened = (tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((None, None), tf.int32))
    assert py_dataset.opened_as(given, open_model) == opened
    assert py_dataset.opened_as(given[0], open_model) == opened[0]
    closed: Any = SimpleNamespace(inputs=[SimpleNamespace(name="x", shape=(None, 7))], outputs=None)
    assert py_dataset.opened_as(given, closed) == given
    named: Any = SimpleNamespace(
        inputs=[SimpleNamespace(name="b", shape=(None, None)), SimpleNamespace(name="a", shape=(None, 7))]
    )
    by_name = {"a": given[0], "b": given[0]}
    assert py_dataset.opened_as(by_name, named) == {"a": given[0], "b": opened[0]}


def test_batches_of_a_dataset_from_within_an_epoch_on_end_with_it() -> None:
    class Numbered(Pages):
        def __getitem__(self, index: int) -> Any:
            return X, Y + index

    model: Any = SimpleNamespace()

    def batches(first: int, *settings: str) -> list[int]:
        made = py_dataset.indexed(Numbered(), options("shuffle=off", *settings), None, model)
        return [int(y[0]) for _, y in made.global_batches(first).take(7)]

    assert batches(0) == batches(3) == [0, 1, 2, 0, 1, 2, 0]
    assert batches(2) == [2]
    assert batches(4) == [1, 2]
    assert batches(3, "steps_per_epoch=5") == [0, 1], "an epoch need not be a pass"


@pytest.mark.parametrize("length", [0, None])
def test_a_dataset_without_batches_or_an_end_is_refused(length: int | None) -> None:
    class Odd(Pages):
        @property
        def num_batches(self) -> int | None:
            return length

    model: Any = SimpleNamespace()
    assert refused(lambda: py_dataset.indexed(Odd(), options(), None, model)) == (
        "the PyDataset has no batches, or no end", "its __len__ must return the number of batches in a pass",
    )  # fmt: skip


def test_batches_of_a_dataset_with_other_axes_are_refused() -> None:
    class Odd(Pages):
        def __getitem__(self, index: int) -> Any:
            return np.zeros((4,) * (index + 1), "float32")

    model: Any = SimpleNamespace()
    assert refused(lambda: py_dataset.indexed(Odd(), options(), None, model)) == (
        "batches of the PyDataset have the shapes (4,) and (4, 4)", "give all the same number of axes",
    )  # fmt: skip
