"""What a user's function returns, read part by part: arguments of fit, batches, the state of a class."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own import counting, fit_arguments, unsaved_state
from gputui.engine.trainer.own.fit_arguments import FitArguments
from gputui.engine.trainer.own.iterables import batch_types, stream
from gputui.engine.trainer.own.iterables.recognised import passes_of
from gputui.engine.trainer.own.user_code import UserError

from tests.support.training import options

X, Y = np.zeros((6, 2), "float32"), np.zeros(6, "int64")


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


# ---- arguments of fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({}, FitArguments(None, 0, 1, None)),
        ({"class_weight": {}, "initial_epoch": 0, "validation_freq": 1}, FitArguments()),
        ({"class_weight": {0: 2, 3: 0.5}}, FitArguments({0: 2.0, 3: 0.5})),
        ({"initial_epoch": np.int64(3), "validation_steps": 1}, FitArguments(None, 3, 1, 1)),
        ({"validation_freq": 7}, FitArguments(None, 0, 7, None)),
        ({"validation_freq": (2, 5)}, FitArguments(None, 0, [2, 5], None)),
    ],
)
def test_arguments_of_fit_are_taken_out_of_what_is_returned(given: dict[str, Any], taken: FitArguments) -> None:
    returned = {"train": (X, Y), **given}
    assert fit_arguments.taken(returned) == taken
    assert list(returned) == ["train"]
    returned = {"train": (X, Y), "sample_weight": "weights"}
    fit_arguments.taken(returned)
    assert returned["train"] == (X, Y, "weights")


DICT = "give a dict of class numbers and weights, such as {0: 1.0, 1: 5.0}"


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"batch_size": 3}, "batch_size is an option, and cannot be returned by build",
         "set input.batch_size in the preset"),
        ({"class_weight": {-1: 2.0}}, "class_weight is {-1: 2.0}", DICT),
        ({"class_weight": {"a": 2.0}}, "class_weight is {'a': 2.0}", DICT),
        ({"initial_epoch": -1}, "initial_epoch is -1", "give a whole number from 0"),
        ({"initial_epoch": True}, "initial_epoch is True", "give a whole number from 0"),
        ({"validation_steps": 0}, "validation_steps is 0", "give a whole number from 1"),
        ({"validation_freq": [1, 0]}, "validation_freq is 0", "give a whole number from 1"),
        ({"validation_freq": "2"}, "validation_freq is '2'", "give a whole number from 1"),
    ],
)  # fmt: skip
def test_arguments_of_fit_that_are_wrong_are_refused(given: dict[str, Any], message: str, hint: str) -> None:
    assert refused(lambda: fit_arguments.taken({"train": (X, Y), **given})) == (message, hint)


@pytest.mark.parametrize(
    ("y", "weights"),
    [
        ([0, 2, 1, 3, -1], [3.0, 0.5, 1.0, 1.0, 1.0]),
        ([0.0, 1.9, 1.0, 3.0, 0.1], [3.0, 0.5, 1.0, 1.0, 3.0]),
        ([[0.0], [2.0], [0.9], [5.0], [0.0]], [3.0, 0.5, 1.0, 1.0, 3.0]),
        ([[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]], [3.0, 0.5, 1.0, 0.5, 3.0]),
    ],
)
def test_a_sample_has_the_weight_of_its_class(y: Any, weights: list[float]) -> None:
    batches = tf.data.Dataset.from_tensors((np.zeros((5, 2)), np.array(y)))
    ((_, same, weight),) = fit_arguments.weigh(batches, {0: 3.0, 2: 0.5})
    np.testing.assert_array_equal(same, y)
    assert weight.numpy().tolist() == weights


# ---- batches -----------------------------------------------------------------------------------


def test_batches_are_nests_of_arrays() -> None:
    pair = batch_types.as_batch([{"a": [1, 2], "b": range(2)}, np.ones(2), None, None])
    assert isinstance(pair, tuple)
    assert len(pair) == 2
    assert pair[0]["b"].tolist() == [0, 1]
    assert [int(part) for part in pair[0]["a"]] == [1, 2], "a list is a tuple"
    assert batch_types.as_batch((None, 1))[0] is None
    on_gpu = SimpleNamespace(cpu=lambda: [5])
    assert batch_types.as_batch(on_gpu).tolist() == [5]
    array = np.ones(3)
    assert batch_types.as_batch(array) is array
    copy = batch_types.copied(array)
    assert (copy is not array, copy.tolist()) == (True, [1, 1, 1])
    text = tf.constant("a")
    assert batch_types.copied(text) is text


class Sparse:
    """As SciPy has it."""

    def tocoo(self) -> Any:
        row, col, data = np.array([1, 0]), np.array([0, 2]), np.array([5.0, 7.0])
        return SimpleNamespace(row=row, col=col, data=data, shape=(2, 3))


def test_a_sparse_matrix_of_scipy_is_one_of_tensorflow() -> None:
    assert tf.sparse.to_dense(batch_types.as_batch(Sparse())).numpy().tolist() == [[0, 0, 7], [5, 0, 0]]


@pytest.mark.parametrize(
    ("leaves", "batched", "spec"),
    [
        (lambda: (np.zeros((2, 3)), np.zeros((2, 3))), True, tf.TensorSpec((None, 3), tf.float64)),
        (lambda: (np.zeros((2, 3)), np.zeros((2, 4))), False, tf.TensorSpec((2, None), tf.float64)),
        (lambda: (np.array(["a"]), np.array(["bc"])), True, tf.TensorSpec((None,), tf.string)),
        (lambda: (np.array([b"a"]),), False, tf.TensorSpec((1,), tf.string)),
        (lambda: (tf.sparse.from_dense(np.eye(2)),), True, tf.SparseTensorSpec((None, 2), tf.float64)),
        (
            lambda: (tf.ragged.constant([[1], [2, 3]], dtype="int32"),), True,
            tf.RaggedTensorSpec((None, None), tf.int32, 1, tf.int64),
        ),
        (
            lambda: (tf.ragged.constant([[[1]], [[2], [3]]], row_splits_dtype="int32"),), False,
            tf.RaggedTensorSpec((2, None, None), tf.int32, 2, tf.int32),
        ),
    ],
)  # fmt: skip
def test_the_type_of_batches_leaves_open_in_what_they_differ(leaves: Any, batched: bool, spec: Any) -> None:
    assert batch_types.type_of(leaves(), batched) == spec


AS_BATCHES = "give each batch as (x, y), (x, y, sample_weight) or x, arrays whose first axis is the samples"


@pytest.mark.parametrize(
    ("batches", "message", "hint"),
    [
        ([(X, Y), {"a": X}], "the first two batches of train have different structures", AS_BATCHES),
        ([(X, np.float32(3))], "the elements of train are single values, not batches", AS_BATCHES),
        ([(None, X)], "a batch of train contains None, which is no array",
         "leave out what is None: build the model without this input"),
        ([X, Y], "batches of train have the shapes (6, 2) and (6,)", "give all the same number of axes"),
        ([np.array(["2026-01-02"], "datetime64[D]")], "a batch of train contains an array of the type datetime64[D]",
         "convert it to numbers or texts of equal shape"),
    ],
)  # fmt: skip
def test_batches_without_a_type_in_common_are_refused(batches: list[Any], message: str, hint: str) -> None:
    assert refused(lambda: stream.spec_of(batches, "train")) == (message, hint)


def drawn(made: Any, number: int) -> list[Any]:
    return list(itertools.islice(made.positions.batches(0), number))


def iterated(data: Any, role: str = "train", replicas: int = 1, samples: Any = None, steps: Any = None) -> Any:
    passes = passes_of(data, role)
    model: Any = SimpleNamespace()
    report: Any = SimpleNamespace(phase=lambda *_: None)
    assert passes is not None
    return stream.iterated(passes, role, options(), replicas, samples, steps, model, report)


def test_a_batch_of_another_type_than_the_first_two_is_refused() -> None:
    def batches(last: Any) -> Callable[[], Iterator[Any]]:
        return lambda: iter([({"a": X}, Y), ({"a": X[:5]}, Y[:5]), last])

    assert len(drawn(iterated(batches(({"a": X[:1]}, Y[:1]))), 3)) == 3
    for last, shown in (
        (({"a": X[:, :1]}, Y), "({a: float32 (6, 1)}, int64 (6,))"),
        (({"a": X}, Y.astype("int32")), "({a: float32 (6, 2)}, int32 (6,))"),
        (X, "float32 (6, 2)"),
        (({"a": X}, None, Y), "({a: float32 (6, 2)}, None, int64 (6,))"),
    ):
        made = iterated(batches(last))
        with pytest.raises(ValueError, match="a batch of train is"):
            drawn(made, 3)
        assert made.positions.fault is not None
        first = "({a: float32 (None, 2)}, int64 (None,))"
        assert made.positions.fault.message == f"a batch of train is {shown}, and the first ones were {first}"


def test_arrays_are_copied_for_several_replicas() -> None:
    several, alone = iterated(lambda: iter([X]), replicas=2), iterated(lambda: iter([X]))
    assert drawn(several, 1)[0] is not X, "TensorFlow may write into it"
    assert drawn(alone, 1)[0] is X


def test_an_evaluation_of_a_generator_gets_the_same_batches_each_time() -> None:
    made = iterated(iter([X, X[:2], X[:3]]), "validation", steps=2)
    assert [len(batch) for batch in drawn(made, 4)] == [6, 2, 6, 2]


def test_batches_from_within_an_epoch_on_end_with_it() -> None:
    made = iterated(lambda: iter([X, X[:2], X[:3]]), steps=None)
    found = [[len(batch) for batch in made.global_batches(step).take(5)] for step in (1, 3)]
    assert found == [[2, 3], [6, 2, 3, 6, 2]]


def test_each_pass_over_a_data_set_of_theirs_is_closed() -> None:
    made: list[Any] = []

    class Rows:
        """An iterator with a file that is to be closed."""

        def __init__(self) -> None:
            self.left, self.closed = iter([X, X[:2]]), False
            made.append(self)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self.left)

        def close(self) -> None:
            self.closed = True

    def rows() -> Rows:
        return Rows()

    passes = passes_of(rows)
    assert passes is not None
    data = stream.data_set_of(passes, batched=True)
    assert [len(list(data)) for _ in range(2)] == [2, 2]
    assert [rows.closed for rows in made] == [True] * 3, "also after the look at its types"


class Sized:
    """Batches of a known number."""

    def __init__(self, length: int | None) -> None:
        self.length = length

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter([X] * 3)


@pytest.mark.parametrize(
    ("length", "samples", "steps", "batches"),
    [(5, 12, 7, 5), (None, 12, 7, 2), (None, None, 7, None), (None, None, None, 3), (2**62, 12, None, 2)],
)
def test_the_batches_of_a_pass_are_its_length_or_those_of_the_samples_or_are_counted(
    length: int | None, samples: int | None, steps: int | None, batches: int | None
) -> None:
    made = iterated(Sized(length), samples=samples, steps=steps)
    assert (made.batches, made.samples, made.batch_size) == (batches, samples, 6)


def test_data_without_an_end_need_a_number_of_batches() -> None:
    assert refused(lambda: iterated(Sized(2**62))) == (
        "train has no end", "set train.steps_per_epoch, the number of batches to take",
    )  # fmt: skip
    assert refused(lambda: iterated(Sized(2**62), "validation")) == (
        "validation has no end", "return validation_steps next to it, the number of batches to take",
    )  # fmt: skip
    for role, setting in (("train", "set train.steps_per_epoch"), ("validation", "return validation_steps next to it")):
        assert refused(lambda role=role: iterated(iter([X]), role)) == (  # type: ignore[misc]
            f"{role} is a list_iterator, which has only one pass of unknown length",
            f"return the function that makes it, so that each pass begins again, or {setting}",
        )


def test_counting_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.chain([0.0], itertools.repeat(120.5))
    monkeypatch.setattr(counting, "time", SimpleNamespace(monotonic=lambda: next(now)))
    report: Any = SimpleNamespace(phase=lambda *_: None)
    data = tf.data.Dataset.range(600).filter(lambda n: n >= 0)
    assert refused(lambda: counting.counted(data, "validation", report)) == (
        "validation has more than 256 elements, or no end: they were counted for 120 s",
        "return validation_samples next to it, or return validation_steps next to it",
    )
    now = itertools.repeat(0.0)  # type: ignore[assignment]
    assert counting.counted(data, "train", report) == 600
    now = itertools.chain([0.0], itertools.repeat(120.0))
    assert counting.counted(data, "train", report) == 600, "not beyond the limit"


# ---- state that no checkpoint has --------------------------------------------------------------


class Draws(keras.utils.PyDataset):  # type: ignore[misc]
    """Line 0 of the class; texts name the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.order: Any = np.random.permutation(9)  # made again

    def __getitem__(self, index: int) -> Any:
        self.cache[index] = 1
        return X

    def on_epoch_end(self) -> None:
        self.generator = np.random.default_rng(3)
        self.order = np.random.permutation(9)

    def load(self) -> None:
        self.left.append(3)

    def swap(self) -> None:
        first, [*self.order] = 1, [2, 3]  # noqa: F841

    def look(self) -> int:
        local: list[Any] = [self.order]
        local.append(3)
        return len(local)

    cache: Any = None
    left: Any = None


def test_what_a_dataset_keeps_that_is_not_repeated_is_named_with_its_line() -> None:
    first = inspect.getsourcelines(Draws)[1]
    assert unsaved_state.inexact(Draws()) == [
        f"Draws.__getitem__ changes self.cache (test_own_parts.py:{first + 8})",
        f"Draws.on_epoch_end draws from np.random (test_own_parts.py:{first + 13})",
        f"Draws.load changes self.left (test_own_parts.py:{first + 16})",
        f"Draws.swap changes self.order (test_own_parts.py:{first + 19})",
    ]
