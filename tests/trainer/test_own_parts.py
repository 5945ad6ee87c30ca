"""Parts of what a user's code returns: arguments of fit, types of batches, roles, callbacks, and lengths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import (
    FitArguments,
    Pipeline,
    Returned,
    Share,
    UserError,
    building,
    checked,
    model_checks,
    pipeline,
    user_pipeline,
)
from tests.doors.trainer import returned as fit_arguments
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


RETURN = "return (model, train), (model, train, validation), or a dict with model, train and what goes with them"
DATA = "(x, y) arrays, x alone, a tf.data.Dataset, a keras.utils.PyDataset, or a generator or loader of batches"


@pytest.fixture
def model() -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


# ---- taken -------------------------------------------------------------------------------------


def of_keras_2() -> Any:
    return type("Net", (), {"__module__": "tf_keras.src.engine"})()


def named(name: str) -> Any:
    return type(name, (), {})()


REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "four": (lambda model: [model, 2, 3, 4], "build returned 4 values", RETURN),
    "unknown": (lambda model: {"model": model, "train": X, "optimiser": 1},
                "build returned a dict with the unknown key 'optimiser'", "did you mean optimizer?"),
    "of-fit": (lambda model: {"model": model, "train": X, "class_weights": {0: 1.0}},
               "build returned a dict with the unknown key 'class_weights'", "did you mean class_weight?"),
    "no-train": (lambda model: (model, None), "build returned no train", RETURN),
    "keras-2": (lambda model: (of_keras_2(), X), "model is a Net of Keras 2 (tf_keras); gputui trains Keras 3",
                "build it from `import keras`, or from tf.keras without TF_USE_LEGACY_KERAS=1 in the environment"),
    "text": (lambda model: (model, "train.csv"), "train is a str", f"give {DATA}"),
    "distributed": (lambda model: (model, named("DistributedDataset")), "train is a DistributedDataset",
                    "return the tf.data.Dataset itself: strategy.kind distributes it"),
    "map": (lambda model: {"model": model, "train": X, "map": 3}, "map is an int, not a function",
            "it gets one sample, as in Dataset.map"),
    "bare": (lambda model: (model, X, Y),
             "train is one array or dict, and validation has another shape: targets must be returned with their inputs",
             f"return (model, (x, y), (x_validation, y_validation)); train is {DATA}"),
    "list": (lambda model: (model, (X, [1, 2])), "y of train contains an int, not an array", f"give {DATA}"),
    "objects": (lambda model: (model, (X, Y), (X.astype(object), Y)), "x of validation is an array of objects",
                "convert it to numbers or texts of equal shape"),
    "lengths": (lambda model: (model, (X, Y[:1])), "train has 6 samples in x and 1 in y",
                "each sample needs its target"),
    "empty": (lambda model: (model, (X, Y), (X[:0], Y[:0])), "validation has no samples", f"give {DATA}"),
    "compiled-twice": (lambda model: {"model": model, "train": X, "optimizer": "sgd", "loss": "mse"},
                       "the model is already compiled, and loss, optimizer is also given",
                       "pass it to model.compile, or return the model uncompiled"),
    "no-loss": (lambda model: (keras.Sequential(), X), "the model is not compiled and no loss is given",
                "compile it, or return a dict with a loss"),
    "callbacks": (lambda model: {"model": model, "train": X, "callbacks": [keras.callbacks.TerminateOnNaN(), 3]},
                  "callbacks contains an int", "give a list of keras.callbacks.Callback"),
    "samples": (lambda model: {"model": model, "train": X, "samples": 0}, "samples is 0", "give a whole number from 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_return_is_refused_with_what_to_return(name: str, model: Any) -> None:
    returned, message, hint = REFUSED[name]
    assert refused(lambda: checked(returned(model), "build")) == (message, hint)


# ---- callbacks that write ----------------------------------------------------------------------


def test_callbacks_that_write_files_are_left_out_where_a_run_only_measures_or_is_not_the_chief(tmp_path: Any) -> None:
    class Best(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
        pass

    class Backup(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
        pass

    log, best, board = keras.callbacks.CSVLogger("a"), Best("b.keras"), keras.callbacks.TensorBoard(str(tmp_path))
    kept = keras.callbacks.TerminateOnNaN()
    theirs = [log, kept, best, board]
    told: list[Any] = []
    report: Any = SimpleNamespace(warn=lambda *words, **more: told.append((*words, *more.items())))
    assert building.usable(theirs, options(), report) == theirs
    assert told == []
    measures = options("run.measure_seconds=3")
    for given, writes, why in (
        (measures, True, "a run with run.measure_seconds does not touch your files"),
        (measures, False, "a run with run.measure_seconds does not touch your files"),
        (options(), False, "the chief alone writes files"),
    ):
        told.clear()
        assert building.usable(theirs, given, report, writes) == [kept]
        assert told == [
            ("callback_left_out", f"{name} does nothing here: {why}", ("option", name))
            for name in ("CSVLogger", "Best", "TensorBoard")
        ]
    assert refused(lambda: building.usable([kept, Backup(tmp_path)], options(), report)) == (
        "BackupAndRestore would train epochs twice here; run.checkpoint replaces it",
        "remove it, set run.checkpoint=epoch, and continue with gputui resume",
    )


# ---- whether a model fits ----------------------------------------------------------------------


def batched(*shape: int | None) -> Any:
    return SimpleNamespace(spec=(tf.TensorSpec((None, *shape)), tf.TensorSpec((None,))), kind="batched")


def samples(*shape: int | None, kind: str = "mapped") -> Any:
    made = object.__new__(pipeline.Samples)
    vars(made).update(spec=tf.TensorSpec((None, *shape)), kind=kind)
    return made


def test_batches_with_an_axis_too_few_or_too_many_are_refused() -> None:
    def of(*shapes: tuple[int | None, ...]) -> Any:
        return SimpleNamespace(inputs=[SimpleNamespace(shape=(None, *shape)) for shape in shapes])

    image, numbers = of((8, 8, 3)), of((4,))
    cases: list[tuple[Any, Any]] = [
        (image, batched(None, 8, 3)), (numbers, batched(4, 1)), (image, samples(8, 3)),
        (numbers, samples(2, 4, kind="arrays")), (image, SimpleNamespace(spec=tf.RaggedTensorSpec((None, None)))),
    ]  # fmt: skip
    for model, given in cases:
        model_checks.check_batches(model, given)
    assert refused(lambda: model_checks.check_batches(image, batched(8, 3))) == (
        "train's elements have shape (None, 8, 3), the model takes batches of (8, 8, 3)",
        "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it",
    )
    assert refused(lambda: model_checks.check_batches(numbers, samples(5, 4))) == (
        "train is already batched, but with a map gputui batches it again",
        "remove Dataset.batch, or remove map from the dict",
    )


# ---- batches of theirs -------------------------------------------------------------------------


ROWS, LABELS = np.arange(40, dtype="float32").reshape(20, 2), np.arange(20)
SMALL = ("batch_size=4", "shuffle=off", "prefetch=off", "parallel_calls=off", "validation_split=0")


class Told:
    """Stands for the report of a run: phases and warnings."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, ...]] = []
        self.warnings: list[tuple[str, ...]] = []

    def phase(self, *words: str) -> None:
        self.phases.append(words)

    def warn(self, *words: str) -> None:
        self.warnings.append(words)


@pytest.fixture
def report() -> Any:
    return Told()


def opened(
    tmp_path: Path, report: Any, *settings: str, replicas: int = 1, share: Share | None = None, **given: Any
) -> Pipeline:
    returned = Returned(**{"model": keras.Sequential(), "train": (ROWS, LABELS), **given})
    return user_pipeline.opened(options(*SMALL, *settings), replicas, returned, tmp_path / "train.py", report, share)


def labels(batches: tf.data.Dataset, most: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(most).as_numpy_iterator()]


def numbers(count: int = 20) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((ROWS[:count], LABELS[:count]))


# ---- sizes -------------------------------------------------------------------------------------


def test_arrays_are_split_and_the_sizes_are_those_of_the_parts(tmp_path: Path, report: Any) -> None:
    made = opened(tmp_path, report, "validation_split=0.25")
    assert (made.train_samples, made.validation_samples, made.global_batch_size) == (15, 5, 4)
    assert (made.batches_per_pass, made.validation_batches, made.smaller_last_batch) == (4, 2, True)
    trained, held_out = (sum(labels(data, count), []) for data, count in ((made.stream(), 4), (made.validation(), 2)))  # noqa: RUF017
    assert sorted(trained + held_out) == list(range(20))
    drawn = np.random.default_rng(7).permutation(20)
    assert (trained, held_out) == (drawn[:15].tolist(), drawn[15:].tolist()), "in the order of the seed"
    whole = opened(tmp_path, report, "validation_split=0.25", validation=(ROWS[:3], LABELS[:3]))
    assert (whole.train_samples, whole.validation_samples, whole.validation_batches) == (20, 3, 1)
    none = opened(tmp_path, report, "validation_split=0.01")
    assert (none.train_samples, none.held_out, none.validation_batches, none.validation_samples) == (20, None, 0, 0)
    assert opened(tmp_path, report, "validation_split=0.25", train=numbers().batch(5)).held_out is None
    assert report.warnings == []


def test_an_evaluation_takes_the_same_batches_each_time(tmp_path: Path, report: Any) -> None:
    validation = numbers(10).batch(4)
    unknown = validation.filter(lambda *_: True)
    for data, steps, batches in ((validation, None, 3), (validation, 2, 2), (unknown, 2, 2), (unknown, 5, 3)):
        made = opened(tmp_path, report, validation=data, fit=FitArguments(validation_steps=steps))
        assert made.validation_batches == batches
        whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert labels(made.validation(), 2 * batches) == whole[:batches] * 2
    arrays = opened(
        tmp_path, report, "shuffle=9", "drop_remainder=true", "one_batch=true", "augment=light",
        validation=(ROWS[:10], LABELS[:10]), augment=lambda x, y: (x, y + 100), map=lambda x, y: (x, y + 1),
        mapped=True, validation_map=lambda x, y: (x, y + 50),
    )  # fmt: skip
    assert labels(arrays.validation(), 4) == [[50, 51, 52, 53], [54, 55, 56, 57], [58, 59], [50, 51, 52, 53]]
    first, second = labels(arrays.stream(), 2)
    assert first == second, "one batch again and again"
    assert min(first) > 100


class Indexed(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self, optional: bool = False) -> None:
        super().__init__()
        self.optional = optional

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return {"a": ROWS[:4], "b": None} if self.optional else ROWS[:4], LABELS[:4]


@pytest.mark.parametrize("kind", ["known", "unknown", "indexed"])
def test_data_that_end_within_an_epoch_are_refused_with_what_to_write(kind: str, tmp_path: Path, report: Any) -> None:
    """Keras' fit ends such an epoch early, and begins the next one with a new iterator."""
    known = numbers(18).batch(4)
    data: Any = {"known": known, "unknown": known.filter(lambda *_: True), "indexed": Indexed()}[kind]
    for steps in (2, 7):
        with pytest.raises(UserError, match="end an epoch early") as raised:
            opened(tmp_path, report, f"steps_per_epoch={steps}", "epochs=3", train=data)
        if isinstance(data, tf.data.Dataset):
            assert ".repeat()" in raised.value.hint
            assert opened(tmp_path, report, f"steps_per_epoch={steps}", "epochs=3", train=data.repeat())
    if kind != "unknown":
        assert opened(tmp_path, report, "steps_per_epoch=2", "epochs=2", train=data).batches_per_pass == 5
        assert opened(tmp_path, report, "steps_per_epoch=1", "epochs=9", train=data).batches_per_pass == 5
