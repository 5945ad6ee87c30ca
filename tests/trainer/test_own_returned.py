"""What a user's function may return, each refusal in whole sentences, and the batches that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.own import counting, model_checks, streams, usable_callbacks
from gputui.engine.trainer.own.fit_arguments import FitArguments
from gputui.engine.trainer.own.returned import Returned, checked
from gputui.engine.trainer.own.streams import Batched
from gputui.engine.trainer.own.user_code import UserError

from tests.support.training import options

X, Y = np.arange(12, dtype="float32").reshape(6, 2), np.arange(6)
RETURN = "return (model, train), (model, train, validation), or a dict with model, train and what goes with them"
DATA = "(x, y) arrays, x alone, a tf.data.Dataset, a keras.utils.PyDataset, or a generator or loader of batches"
NOTHING = "nothing (None)"


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


@pytest.fixture
def model() -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def data_set() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


# ---- taken -------------------------------------------------------------------------------------


def test_what_is_returned_is_taken_apart(model: Any) -> None:
    x, y = (X, Y), (X[:2], Y[:2])
    for given, validation in (((model, x), None), ([model, x, y], y), ({"model": model, "train": x}, None)):
        taken = checked(given, "build")
        assert taken == Returned(model, x, validation, callbacks=[], fit=FitArguments())
        assert not taken.mapped

    def load(a: Any) -> Any:
        return a

    def other(a: Any) -> Any:
        return a

    callback = keras.callbacks.TerminateOnNaN()
    given = {"model": model, "train": data_set(), "map": load, "callbacks": callback, "samples": np.int64(6)}
    before = dict(given)
    taken = checked(given, "build")
    assert given == before, "their dict stays as it is"
    assert (taken.map, taken.validation_map, taken.callbacks, taken.mapped) == (load, load, [callback], True)
    assert (taken.samples, taken.validation_samples, type(taken.samples)) == (6, None, int)
    taken = checked(given | {"validation_map": other, "validation_samples": 1, "initial_epoch": 2}, "build")
    assert (taken.map, taken.validation_map, taken.validation_samples, taken.fit.initial_epoch) == (load, other, 1, 2)
    taken = checked({"model": model, "train": data_set(), "map": None, "validation_map": other}, "build")
    assert (taken.mapped, taken.map, taken.validation_map) == (True, None, other)
    taken = checked({"model": model, "train": data_set(), "map": load, "validation_map": None}, "build")
    assert (taken.map, taken.validation_map) == (load, None), "nothing is to be done to the validation data"


def of_keras_2() -> Any:
    return type("Net", (), {"__module__": "tf_keras.src.engine"})()


def named(name: str) -> Any:
    return type(name, (), {})()


KEYS = (
    "model, train, validation, map, validation_map, augment, loss, metrics, optimizer, callbacks, samples, "
    "validation_samples, class_weight, sample_weight, initial_epoch, validation_freq, validation_steps"
)
REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "nothing": (lambda model: None, f"build returned {NOTHING}", RETURN),
    "one": (lambda model: (model,), "build returned 1 value", RETURN),
    "four": (lambda model: [model, 2, 3, 4], "build returned 4 values", RETURN),
    "unknown": (lambda model: {"model": model, "train": X, "optimiser": 1},
                "build returned a dict with the unknown key 'optimiser'", "did you mean optimizer?"),
    "of-fit": (lambda model: {"model": model, "train": X, "class_weights": {0: 1.0}},
               "build returned a dict with the unknown key 'class_weights'", "did you mean class_weight?"),
    "far": (lambda model: {"model": model, "train": X, 7: 1}, "build returned a dict with the unknown key 7",
            f"the known keys are {KEYS}"),
    "no-model": (lambda model: (None, X), "build returned no model", RETURN),
    "no-train": (lambda model: (model, None), "build returned no train", RETURN),
    "keras-2": (lambda model: (of_keras_2(), X), "model is a Net of Keras 2 (tf_keras); gputui trains Keras 3",
                "build it from `import keras`, or from tf.keras without TF_USE_LEGACY_KERAS=1 in the environment"),
    "layer": (lambda model: (keras.layers.Dense(1), X), "model is a Dense, not a keras.Model", RETURN),
    "text": (lambda model: (model, "train.csv"), "train is a str", f"give {DATA}"),
    "four-parts": (lambda model: (model, (X, Y, Y, Y)), "train is a tuple", f"give {DATA}"),
    "no-parts": (lambda model: (model, (X, Y), []), "validation is a list", f"give {DATA}"),
    "model-as-data": (lambda model: (model, (X, Y), model), "validation is a Sequential", f"give {DATA}"),
    "distributed": (lambda model: (model, named("DistributedDataset")), "train is a DistributedDataset",
                    "return the tf.data.Dataset itself: strategy.kind distributes it"),
    "by-function": (lambda model: (model, named("DistributedDatasetsFromFunction")),
                    "train is a DistributedDatasetsFromFunction",
                    "return the tf.data.Dataset itself: strategy.kind distributes it"),
    "adapter": (lambda model: (model, named("DataAdapter")), "train is a DataAdapter",
                f"an adapter of Keras' own is an internal part of it: give {DATA}"),
    "map": (lambda model: {"model": model, "train": X, "map": 3}, "map is an int, not a function",
            "it gets one sample, as in Dataset.map"),
    "validation-map": (lambda model: {"model": model, "train": X, "validation_map": [3]},
                       "validation_map is a list, not a function", "it gets one sample, as in Dataset.map"),
    "augment": (lambda model: {"model": model, "train": X, "augment": ()}, "augment is a tuple, not a function",
                "it gets one sample, as in Dataset.map"),
    "bare": (lambda model: (model, X, Y),
             "train is one array or dict, and validation has another shape: targets must be returned with their inputs",
             f"return (model, (x, y), (x_validation, y_validation)); train is {DATA}"),
    "list": (lambda model: (model, (X, [1, 2])), "y of train contains an int, not an array", f"give {DATA}"),
    "x-none": (lambda model: (model, (None, Y)), f"x of train contains {NOTHING}, not an array", f"give {DATA}"),
    "optional": (lambda model: (model, ({"a": X, "b": None}, Y)), "x of train contains None, which is no array",
                 "leave out what is None: build the model without this input"),
    "number": (lambda model: (model, (X, np.float32(3))), "y of train contains a single number",
               "its first axis must be the samples"),
    "objects": (lambda model: (model, (X, Y), (X.astype(object), Y)), "x of validation is an array of objects",
                "convert it to numbers or texts of equal shape"),
    "sparse": (lambda model: (model, ({"a": SimpleNamespace(tocoo=None)}, Y)),
               "x of train is a sparse matrix of SciPy, which cannot be read by sample",
               "give .toarray(), or a function that yields batches of its rows"),
    "lengths": (lambda model: (model, (X, Y[:1])), "train has 6 samples in x and 1 in y",
                "each sample needs its target"),
    "weights": (lambda model: (model, (X[:1], Y[:1], Y)), "train has 1 sample in x and 6 in sample_weight",
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
    "true": (lambda model: {"model": model, "train": X, "validation_samples": True}, "validation_samples is True",
             "give a whole number from 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_return_is_refused_with_what_to_return(name: str, model: Any) -> None:
    returned, message, hint = REFUSED[name]
    assert refused(lambda: checked(returned(model), "build")) == (message, hint)


def test_parts_that_are_absent_or_equal_in_shape_are_fine(model: Any) -> None:
    same = ({"a": X}, {"a": X[:3]})
    for train, validation in ((X, X[:2]), same, ((X, None), None), ((X, Y, None), None), (X, (X, Y))):
        assert tf.nest.flatten(checked((model, train, validation), "build").train)[0] is X


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
    assert usable_callbacks.usable(theirs, options(), report) == theirs
    assert told == []
    measures = options("run.measure_seconds=3")
    for given, writes, why in (
        (measures, True, "a run with run.measure_seconds does not touch your files"),
        (measures, False, "a run with run.measure_seconds does not touch your files"),
        (options(), False, "the chief alone writes files"),
    ):
        told.clear()
        assert usable_callbacks.usable(theirs, given, report, writes) == [kept]
        assert told == [
            ("callback_left_out", f"{name} does nothing here: {why}", ("option", name))
            for name in ("CSVLogger", "Best", "TensorBoard")
        ]
    assert refused(lambda: usable_callbacks.usable([kept, Backup(tmp_path)], options(), report)) == (
        "BackupAndRestore would train epochs twice here; run.checkpoint replaces it",
        "remove it, set run.checkpoint=epoch, and continue with gputui resume",
    )


# ---- whether a model fits ----------------------------------------------------------------------


def batched(*shape: int | None) -> Any:
    return SimpleNamespace(spec=(tf.TensorSpec((None, *shape)), tf.TensorSpec((None,))), kind="batched")


def samples(*shape: int | None, kind: str = "mapped") -> Any:
    made = object.__new__(streams.Samples)
    vars(made).update(spec=tf.TensorSpec((None, *shape)), kind=kind)
    return made


def test_batches_with_an_axis_too_few_or_too_many_are_refused() -> None:
    def of(*shapes: tuple[int | None, ...]) -> Any:
        return SimpleNamespace(inputs=[SimpleNamespace(shape=(None, *shape)) for shape in shapes])

    image, numbers = of((8, 8, 3)), of((4,))
    for model, stream in (
        (image, batched(8, 8, 3)), (image, batched(None, 8, 3)), (numbers, batched(4, 1)), (of((4, 1)), batched(4)),
        (of((4,), (4,)), batched(4, 5)), (SimpleNamespace(), batched(4)), (numbers, batched(9)),
        (image, samples(8, 3)), (numbers, samples(2, 4, kind="arrays")), (numbers, samples(4, 1)),
        (image, SimpleNamespace(spec=tf.RaggedTensorSpec((None, None)))),
        (image, SimpleNamespace(spec=tf.TensorSpec(None))),
    ):  # fmt: skip
        model_checks.check_batches(model, stream)
    assert refused(lambda: model_checks.check_batches(image, batched(8, 3))) == (
        "train's elements have shape (None, 8, 3), the model takes batches of (8, 8, 3)",
        "batch the Dataset by context.global_batch_size, or return a dict with map: None to have gputui batch it",
    )
    assert refused(lambda: model_checks.check_batches(numbers, samples(5, 4))) == (
        "train is already batched, but with a map gputui batches it again",
        "remove Dataset.batch, or remove map from the dict",
    )


def test_a_model_can_be_evaluated_unless_its_own_training_step_alone_has_the_loss(model: Any) -> None:
    def of(compiled: Any = False, **methods: Any) -> Any:
        made = type("Mine", (keras.Model,), methods)()
        if compiled:
            made.compile("sgd", "mse")
        return made

    def method(*_: Any) -> None:
        pass

    assert model_checks.can_evaluate(of(), None)
    assert not model_checks.can_evaluate(of(train_step=method), None)
    assert model_checks.can_evaluate(of(train_step=method), "mse")
    assert model_checks.can_evaluate(of(compiled=True, train_step=method), None)
    for other in ("test_step", "compute_loss", "make_test_function", "evaluate"):
        assert model_checks.can_evaluate(of(train_step=method, **{other: method}), None), other
    adds = of(train_step=method)
    adds.add_loss(tf.constant(1.0))
    assert model_checks.can_evaluate(adds, None), "a layer has added a loss"
    for name, of_method in (("train_step", model_checks.custom_step), ("fit", model_checks.overrides_fit)):
        assert (of_method(of(**{name: method})), of_method(of()), of_method(model)) == (True, False, False)
        below = type("Below", (type(of(**{name: method})),), {})()
        assert of_method(below), "also of a class above its own"


# ---- batches of theirs -------------------------------------------------------------------------


def rows(stream: Any, first_step: int, most: int) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in stream.global_batches(first_step).take(most)]


def test_batches_of_theirs_go_on_where_they_were() -> None:
    data = tf.data.Dataset.range(5).batch(2)
    whole = [[0, 1], [2, 3], [4]]
    known, unknown = Batched(data, None, 3, 2, 1), Batched(data, None, None, 2, 1)
    for stream in (known, unknown):
        assert rows(stream, 0, 4) == [*whole, [0, 1]]
        for step in (1, 2, 3, 4, 7):
            assert rows(stream, step, 4) == (whole * 5)[step : step + 4], step
    assert rows(Batched(data, None, 3, 2, 2), 0, 4) == [*whole, [0, 1]], "over two replicas"
    assert (known.spec, known.stages(), known.kind, known.smaller_last_batch) == (
        data.element_spec,
        (),
        "batched",
        True,
    )


def test_a_prefetch_is_found_wherever_it_stands() -> None:
    data = data_set().batch(2)
    assert not streams.prefetches(data)
    assert streams.prefetches(data.prefetch(1))
    assert streams.prefetches(data.prefetch(1).repeat(2).map(lambda *batch: batch))
    assert streams.prefetches(tf.data.Dataset.zip((data, data.prefetch(1))))
    assert not streams.prefetches((X, Y))


@pytest.mark.parametrize(
    ("spec", "is_image"),
    [
        (tf.TensorSpec((8, 8, 3)), True),
        ((tf.TensorSpec((8, 8, 3)), tf.TensorSpec((2,))), True),
        (tf.TensorSpec((8, 8, 3), tf.uint8), False),
        (tf.TensorSpec((8, 8)), False),
        (tf.TensorSpec((None, 8, 3)), False),
        ({"x": tf.TensorSpec((8, 8, 3))}, False),
        ((tf.TensorSpec((2,)), tf.TensorSpec((8, 8, 3))), False),
    ],
)
def test_images_are_floats_of_a_fixed_size_with_three_axes(spec: Any, is_image: bool) -> None:
    assert streams.is_image(spec) is is_image


def test_an_augmentation_changes_the_inputs_and_nothing_else() -> None:
    images = np.random.default_rng(0).random((4, 8, 8, 3)).astype("float32")
    given = options("augment=light")
    for batch in ((images, Y[:4], Y[:4] + 7), (images,), images):
        position = tf.data.Dataset.from_tensors(np.array([0, 3]))
        numbered = tf.data.Dataset.zip((position, tf.data.Dataset.from_tensors(batch)))
        (found,) = streams.augmented_batches(numbered, 5, given)
        parts, expected = tf.nest.flatten(found), tf.nest.flatten(batch)
        assert isinstance(found, tuple) is isinstance(batch, tuple)
        assert parts[0].shape == (4, 8, 8, 3)
        assert not np.array_equal(parts[0], images)
        assert all(np.array_equal(*pair) for pair in zip(parts[1:], expected[1:], strict=True))


def test_arrays_are_taken_as_fit_takes_them() -> None:
    wide = X.astype("float64")
    assert streams.as_tuples([wide, None, None])[0].dtype == "float32"
    assert streams.as_tuples([[X, None], {"a": [Y]}, None]) == ((X,), {"a": (Y,)})
    assert streams.as_tuples((None, Y))[0] is None
    for given in (X, [X], (X, None), [X, None, None]):
        assert streams.as_fitted(given) is X
    assert streams.as_fitted([X, Y]) == (X, Y)
    assert streams.as_fitted(((X,), None)) == ((X,),), "several inputs stay together"
    ragged = tf.ragged.constant([[1], [2, 3]])
    made = streams.as_tensors((X, ragged))
    assert made[1] is ragged
    assert (type(made[0]).__name__, made[0].numpy().tolist()) == ("EagerTensor", X.tolist())
    assert streams.as_array(tf.constant([1, 2])).tolist() == [1, 2]


def test_a_cache_needs_the_number_of_samples() -> None:
    def stream(counted: int | None, *settings: str) -> Any:
        return streams.samples_of(data_set(), counted, options("batch_size=4", *settings), 1, "mapped", None, None, "")

    assert refused(lambda: stream(None, "cache=memory")) == (
        "input.cache needs to know the number of samples in a pass over train",
        "return samples, or set input.cache=off",
    )
    assert refused(lambda: stream(None, "cache=/a/folder")) == refused(lambda: stream(None, "cache=memory"))
    assert stream(6, "cache=memory").samples == 6
    assert (stream(6).seed, stream(6, "seed=3").seed) == (7, 3)
    known, unknown = stream(6), stream(None)
    assert (known.samples, known.batches, known.batch_size) == (6, 2, 4)
    assert (unknown.samples, unknown.batches, unknown.batch_size) == (None, None, 4)
    assert len(list(unknown.global_batches(0).take(9))) == 9, "without an end"


# ---- shuffles ----------------------------------------------------------------------------------


def order(data: tf.data.Dataset) -> list[int]:
    return [int(number) for number in data.as_numpy_iterator()]


def test_all_shuffles_are_left_out_or_those_that_differ_from_pass_to_pass() -> None:
    numbers = tf.data.Dataset.range(50)
    fixed = numbers.shuffle(50, seed=3, reshuffle_each_iteration=False)
    twice = fixed.shuffle(50, seed=4).shuffle(50, seed=5).map(lambda number: number)
    assert order(counting.unshuffled(twice)) == list(range(50))
    kept = counting.unshuffled(twice, keep_fixed=True)
    assert order(kept) == order(fixed) != list(range(50))
    assert [counting.reshuffles(data) for data in (numbers, fixed, twice, (X, Y), None)] == [
        False, False, True, False, False,
    ]  # fmt: skip
    of_python = numbers.shuffle(50).map(lambda number: tf.numpy_function(lambda n: n, [number], tf.int64))
    assert order(counting.unshuffled(of_python)) == list(range(50)), "although a function has a state of its own"


def test_a_look_at_data_moves_no_random_state_even_if_it_fails() -> None:
    import random

    def fail(data: Any) -> None:
        random.random()
        np.random.rand()
        raise OSError("gone")

    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    with pytest.raises(OSError, match="gone"):
        counting.inspected(data_set(), fail)
    assert (random.random(), np.random.rand()) == expected


def test_counting_is_reported_as_a_phase() -> None:
    told: list[tuple[str, str]] = []
    report: Any = SimpleNamespace(phase=lambda *words: told.append(words))
    assert counting.counted(data_set().filter(lambda *_: True), "validation", report) == 6

    class Whole:
        def __enter__(self) -> Iterator[int]:
            return iter([1, 2])

        def __exit__(self, *_: object) -> None:
            told.append(("closed", ""))

    assert counting.counted_in(Whole, "train", report) == 2
    data = ("building", "data")
    assert told == [("building", "counting validation"), data, ("building", "counting train"), ("closed", ""), data]
    assert refused(lambda: counting.counted(data_set().repeat(), "train", report)) == (
        "train has no end", "set train.steps_per_epoch, the number of batches to take",
    )  # fmt: skip
