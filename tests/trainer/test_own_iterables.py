"""Data that a user's code gives by iterating: generators, functions and iterables, as in plain Keras and resumed."""

from __future__ import annotations

import random
import re
import shutil
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own.user_code import UserError

from tests.support.cases import all_hold
from tests.support.own import Write
from tests.support.training import Training

PROGRAM = """
import keras, numpy as np, random

x = np.random.default_rng(0).normal(size=(95, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)
outer = np.random.default_rng(1)

def batches():
    order = np.random.default_rng(3).permutation(95)
    for at in range(0, 95, 10):
        rows = order[at : at + 10]
        yield {"a": x[rows]}, y[rows], np.ones(len(rows))

def forever():
    while True:
        yield from batches()

def moving():
    for at in range(0, 90, 10):
        yield {"a": x[at : at + 10] + outer.normal()}, y[at : at + 10]

def globally():
    for at in range(0, 90, 10):
        yield {"a": x[at : at + 10] + np.random.rand()}, [] if False else y[at : at + 10]

def through():
    yield from moving()

def without_value():
    def of_closure():
        yield from batches() if x is not None else nothing
    if x is None:
        nothing = []
    return of_closure

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


def resumed(own: Write, source: str, whole: Training, step: int, *settings: str) -> Training:
    """Another training of the same program, in which everything random stands elsewhere, from that step on."""
    random.seed(99)
    np.random.seed(99)
    again = own(source, *settings)
    shutil.copytree(whole.run.file("checkpoints"), again.run.file("checkpoints"))
    again.loop.run(step)
    return again


def warned(training: Training, kind: str) -> list[str]:
    return [event["message"] for event in training.announce().events("warning") if event["kind"] == kind]


def same_weights(one: Training, other: Training) -> bool:
    both = (training.loop.built.model.get_weights() for training in (one, other))
    return all(np.array_equal(*pair) for pair in zip(*both, strict=True))


EXACT = {
    "a function": ("model(), batches, batches", ()),
    "a function whose passes are cut": ("model(), batches", ("steps_per_epoch=8",)),
    "a generator": ("{'model': model(), 'train': forever(), 'class_weight': {}}", ("steps_per_epoch=10",)),
    "an iterable": ("model(), Pages()", ()),
    "an iterator with a state": ("model(), Counter()", ("steps_per_epoch=10", "prefetch=off")),
    "mirrored": ("model(), batches, batches", ("strategy.kind=mirrored", "prefetch=off")),
}
# These are resumed within a later pass only, the others within the first one as well.
IN_LATER_PASSES = ("a function whose", "an iterable", "mirrored")


@pytest.mark.usefixtures("cpus")
def test_it_trains_as_plain_keras_and_a_resumed_run_goes_on_to_the_same_weights(own: Write) -> None:
    import keras

    with all_hold() as cases:
        for name, (returned, settings) in EXACT.items():
            with cases.case(name):
                whole = own(program(returned), *COMMON, *settings).train()
                assert warned(whole, "data_state") == []
                for step in (7, 28)[name.startswith(IN_LATER_PASSES) :]:
                    assert same_weights(resumed(own, program(returned), whole, step, *COMMON, *settings), whole)
                    # With its state it draws no batch again: two for the types, and one that is drawn ahead.
                    assert sys.modules["train"].Counter.drawn <= 40 - step + 3
                if name in ("a function", "a generator"):
                    names: dict[str, Any] = {}
                    keras.utils.set_random_seed(7)
                    exec(program("None"), names)
                    plain = names["model"]().fit(
                        names["forever"](), epochs=4, steps_per_epoch=10, shuffle=False, verbose=0
                    )
                    assert whole.losses() == plain.history["loss"]


def test_what_a_resumed_run_would_not_get_again_is_said_before_the_training(own: Write) -> None:
    expected = {
        "moving": "moving draws from outer, which is made outside of it (train.py:20)",
        "through": "moving draws from outer, which is made outside of it (train.py:20)",
        "globally": "globally draws from np.random (train.py:24)",
        "zip([x], [y])": "a zip keeps its place to itself",
        "batches": "",
        "without_value()": "",
    }
    with all_hold() as cases:
        for data, place in expected.items():
            with cases.case(data):
                training = own(program(f"model(), {data}"), "epochs=1", "checkpoint=epoch", "steps_per_epoch=1")
                messages = warned(training, "data_state")
                assert (place in messages[0]) if place else messages == []


REFUSED = {
    "model(), batches()": ("one pass of unknown length", "return the function that makes it"),
    "model(), lambda: iter(())": ("train has no batches", "check where it reads from"),
    "model(), lambda: 3": ("returned an int, not an iterator", "yield the batches"),
    "model(), lambda: iter([3, 4])": ("single values, not batches", "give each batch as (x, y)"),
    "model(), lambda: iter([({'a': x}, y), (x, y)])": ("different structures", "give each batch as"),
    "model(), lambda: iter([({'a': x}, y, 'text', 1, None, object())])": ("single values", "give each batch as"),
    "model(), batches, forever()": ("validation is a generator", "return validation_steps"),
    "{'model': model(), 'train': forever(), 'map': None}": ("one pass", "return the function that makes it"),
    "model(), 'train.csv'": ("train is a str", "a generator or loader of batches"),
    "model(), model()": ("train is a Functional", "a generator or loader of batches"),
}


def test_data_that_cannot_be_trained_on_is_refused_with_what_to_do(own: Write) -> None:
    with all_hold() as cases:
        for returned, (message, hint) in REFUSED.items():
            with cases.case(returned):
                with pytest.raises(UserError) as fault:
                    own(program(returned), "epochs=1")
                assert message in fault.value.message
                assert hint in fault.value.hint


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
