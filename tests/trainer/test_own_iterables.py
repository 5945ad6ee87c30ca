"""Data that a user's code gives by iterating: as in plain Keras, the same when resumed, and told of its passes."""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import Anew, Passes, Positions, UserError, iterated, py_dataset
from tests.support.own import Write, resumed
from tests.support.training import Training, options

PROGRAM = """
import keras, numpy as np, random

x = np.random.default_rng(0).normal(size=(95, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)

def batches():
    order = np.random.default_rng(3).permutation(95)
    for at in range(0, 95, 10):
        rows = order[at : at + 10]
        yield {"a": x[rows]}, y[rows], np.ones(len(rows))

def forever():
    while True:
        yield from batches()

class Pages:
    def __len__(self): return 10
    def __iter__(self): return batches()

class Counter:
    place = drawn = 0
    def __iter__(self): return self
    def __next__(self):
        self.place += 1
        Counter.drawn += 1
        at = self.place * 7 % 80
        return {"a": x[at : at + 10]}, y[at : at + 10]
    def get_state(self): return {"place": self.place}
    def set_state(self, state): self.place = state["place"]

def model():
    a = keras.Input((4,), name="a")
    made = keras.Model({"a": a}, keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(a)))
    made.compile("adam", "mse", weighted_metrics=[])
    return made

def build(context):
    return RETURNED
"""
COMMON = ("epochs=4", "run.checkpoint=7", "run.keep=9")


def program(returned: str) -> str:
    return PROGRAM.replace("RETURNED", returned)


def warned(training: Training, kind: str) -> list[str]:
    return [event["message"] for event in training.announce().events("warning") if event["kind"] == kind]


def same_weights(one: Training, other: Training) -> bool:
    both = (training.loop.built.model.get_weights() for training in (one, other))
    return all(np.array_equal(*pair) for pair in zip(*both, strict=True))


EXACT: dict[str, tuple[Any, ...]] = {
    "a function": ("model(), batches, batches", 7),
    "a function whose passes are cut": ("model(), batches", 28, "steps_per_epoch=8"),
    "a generator": ("{'model': model(), 'train': forever(), 'class_weight': {}}", 28, "steps_per_epoch=10"),
    "an iterable": ("model(), Pages()", 28),
    "an iterator with a state": ("model(), Counter()", 7, "steps_per_epoch=10", "prefetch=off"),
    "mirrored": ("model(), batches, batches", 28, "strategy.kind=mirrored", "prefetch=off"),
}
NIGHTLY = ("a function", "a function whose passes are cut", "an iterable", "mirrored")


@pytest.mark.usefixtures("cpus")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in EXACT]
)
def test_it_trains_as_plain_keras_and_a_resumed_run_goes_on_to_the_same_weights(name: str, own: Write) -> None:
    returned, step, *settings = EXACT[name]
    whole = own(program(returned), *COMMON, *settings).train()
    assert warned(whole, "data_state") == []
    assert same_weights(resumed(own, program(returned), whole, step, *COMMON, *settings), whole)
    # With its state it draws no batch again: two for the types, and one that is drawn ahead.
    assert sys.modules["train"].Counter.drawn <= 40 - step + 3
    if name == "a generator":
        names: dict[str, Any] = {}
        keras.utils.set_random_seed(7)
        exec(program("None"), names)
        plain = names["model"]().fit(names["forever"](), epochs=4, steps_per_epoch=10, shuffle=False, verbose=0)
        assert whole.losses() == plain.history["loss"]


def test_a_generator_that_ends_too_early_or_changes_its_shapes_says_so(own: Write) -> None:
    ends = "{'model': model(), 'train': batches(), 'validation': batches(), 'validation_steps': 2}"
    changes = "model(), lambda: iter([({'a': x[:5]}, y[:5])] * 3 + [({'a': x[:5, :3]}, y[:5])])"
    for returned, message in ((ends, "train ended after 10 batches"), (changes, "float32 (5, 3)")):
        training = own(program(returned), "epochs=3", "steps_per_epoch=8")
        with pytest.raises(tf.errors.InvalidArgumentError):
            training.train()
        with pytest.raises(UserError, match=re.escape(message)):
            training.loop.built.pipeline.find_fault()


def test_single_samples_of_a_function_are_batched_by_gputui(own: Write) -> None:
    samples = "lambda: zip(x, y)"
    text = program(f"{{'model': model(), 'train': {samples}, 'map': lambda a, b: ({{'a': 2 * a}}, b)}}")
    built = own(text, "epochs=1", "batch_size=20", "shuffle=off").loop.built
    x, y = next(iter(built.pipeline.stream()))
    assert x["a"].shape == (20, 4)
    assert y.shape == (20, 1)
    assert built.pipeline.train_samples == 95


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
    return list(itertools.islice(made.batches_from(first), number))


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
    kept = made.place(5)
    assert kept == ({"batches": 5, "of_pass": 2, "state": 2} if exact else {"batches": 3, "of_pass": 0, "state": None})
    again = places(Numbers(3, exact))
    again.go_to(kept)
    assert taken(again, 5, 3) == [2, 0, 1]
    assert again.passes.begun[0] == (2 if exact else None)  # type: ignore[attr-defined]
    assert made.place(2) is None, "earlier places are dropped"
    assert places(passes).place(0) is None
    closed = passes.closed
    made.close()
    assert passes.closed == closed + 1
    assert taken(made, 8, 1) == []


def test_many_places_are_thinned_out_and_the_newest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterated, "_MOST_KEPT", 4)
    made = places(Numbers(100, exact=True))
    taken(made, 0, 8)
    newest, older = made.place(8), made.place(7)
    assert newest is not None
    assert (newest["batches"], older) == (8, None), "what is older than a checkpoint is dropped"
    made = places(Numbers(100, exact=True))
    taken(made, 0, 8)
    kept = [state["batches"] for step in (3, 5, 7, 8) if (state := made.place(step)) is not None]
    assert kept == [0, 0, 6, 8]


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
    loader = py_dataset.Indexed(data, options("parallel_calls=off", "across_epochs=true"))
    data.seen.clear()
    assert loader.begin(1, skipped=1).tolist() == [0, 1, 2]
    assert data.seen == ["end", "begin", "end", "begin"]
    loader.load(1)
    assert data.seen[4:] == [1]
    assert [array.shape for array in loader.load(2)] == [(6, 2), (6,)]
    assert data.seen[5:] == [2, "end"]
    loader.begin(1, skipped=0)
    assert data.seen[7:] == []
    loader.begin(2, skipped=3)
    assert data.seen[7:] == ["begin"]
