"""What exported scripts have of their own: callbacks for Keras' fit, equal parts of batches, how data is opened."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer import exported

X, Y = np.arange(24, dtype="float32").reshape(6, 4), np.arange(6)


# ---- callbacks ---------------------------------------------------------------------------------


def test_a_time_limit_ends_the_training_after_its_minutes_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(exported, "time", SimpleNamespace(monotonic=lambda: now[0]))
    limit, model = exported.TimeLimit(1.5), SimpleNamespace(stop_training=False)
    limit.set_model(model)
    for now[0], ends in ((100.0, False), (190.0, False), (190.1, True)):
        limit.on_train_batch_end(0)
        assert model.stop_training is ends


@pytest.mark.parametrize(("first", "last"), [(1, 1), (2, 3), (4, 9)])
def test_a_profile_is_of_the_steps_of_all_epochs(first: int, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: told.append(folder))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: told.append("stop"))
    profile = exported.Profile(first, last)
    for step in range(1, 7):
        batch = (step - 1) % 3  # of epochs with three steps
        profile.on_train_batch_begin(batch)
        told.append(step)
        profile.on_train_batch_end(batch)
    steps: list[Any] = [1, 2, 3, 4, 5, 6]
    stops = ["stop"] if last <= 6 else []
    assert told == [*steps[: first - 1], "profile", *steps[first - 1 : last], *stops, *steps[last:]]


# ---- several replicas --------------------------------------------------------------------------


@pytest.fixture
def strategy() -> Any:
    tf.distribute.MirroredStrategy._collective_key_base += 100_000  # each strategy of this process needs its own keys
    return exported.EqualParts(["CPU:0", "CPU:1"])


def test_batches_are_split_as_by_tensorflow_and_wait_in_the_memory_of_gpus_if_they_can(strategy: Any) -> None:
    settings: list[Any] = []
    distribute = strategy.distribute_datasets_from_function

    def noted(function: Any, given: Any) -> Any:
        settings.append((given.experimental_fetch_to_device, given.experimental_per_replica_buffer_size))
        return distribute(function)

    strategy.distribute_datasets_from_function = noted
    data = tf.data.Dataset.from_tensor_slices((X[:5], Y[:5])).batch(3)
    seen = [
        [labels.numpy().tolist() for labels in strategy.experimental_local_results(batch[1])]
        for batch in strategy.experimental_distribute_dataset(data)
    ]
    assert seen == [[[0, 1], [2]], [[3], [4]]]
    strategy.ahead = 2
    strategy.experimental_distribute_dataset(data)
    strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(["a", "b"]).batch(2))
    assert settings == [(False, 0), (True, 2), (False, 0)], "texts stay on the CPU"


def test_a_model_is_built_from_the_part_of_the_first_replica(strategy: Any) -> None:
    def part(rows: int) -> Any:
        return tf.zeros([rows, 4]), tf.zeros([rows, 1])

    for given in ("iterator", "data_batch"):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        exported.build_from_a_part(model, strategy)
        made = strategy.experimental_distribute_values_from_function(
            lambda context: part(3 - context.replica_id_in_sync_group)
        )
        if given == "iterator":
            model._maybe_symbolic_build(iterator=[(0, 1, iter([made]))])  # as Keras' iterator of an epoch
        else:
            model._maybe_symbolic_build(data_batch=part(3))
        assert [tuple(variable.shape) for variable in model.trainable_variables] == [(4, 1), (1,)]
        assert all(strategy.extended.variable_created_in_scope(each.value) for each in model.trainable_variables)


# ---- models ------------------------------------------------------------------------------------


class WithoutCall(keras.Model):  # type: ignore[misc]
    """Gets its variables in its first step."""


def test_a_model_gets_its_variables_from_the_type_of_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
    model = keras.Sequential([keras.layers.Dense(3)])
    assert not exported.has_variables(model, X), "arrays: fit makes them"
    assert exported.has_variables(model, data)
    assert [tuple(variable.shape) for variable in model.variables] == [(4, 3), (3,)]
    assert exported.has_variables(model, None)
    assert exported.has_variables(keras.Sequential([keras.layers.Dense(3)]), data.map(lambda x, y: x)), "x alone"
    assert capsys.readouterr().out == ""
    assert not exported.has_variables(WithoutCall(), data)
    assert capsys.readouterr().out.startswith("WithoutCall gets its variables in the first step: ")


def test_weights_are_saved_of_models_whose_call_takes_the_data() -> None:
    class OfNine(keras.Model):  # type: ignore[misc]
        """Its train_step gives its layers more than the data."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.Sequential([keras.Input((9,)), keras.layers.Dense(1)])

        def call(self, x: Any) -> Any:
            return self.layer(x)

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
    pages = keras.utils.PyDataset()
    assert [exported.saves_weights(made(), data) for made in (OfNine, WithoutCall)] == [False, False]
    assert exported.saves_weights(keras.Sequential([keras.layers.Dense(1)]), data)
    assert [exported.saves_weights(made(), pages) for made in (OfNine, WithoutCall)] == [True, False]


def test_inputs_that_are_bytes_become_scaled_floats_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train_step", "test_step"):
        monkeypatch.setattr(keras.Model, name, lambda self, data: data)
    inputs = keras.Input((2,))
    model = exported.OfBytes(inputs, inputs)
    model.scale = 0.5
    for step in (model.train_step, model.test_step):
        x, y = step((tf.constant([[2, 255]], tf.uint8), "labels"))
        assert (x.dtype, x.numpy().tolist(), y) == (tf.float32, [[1.0, 127.5]], "labels")
        x, y = step((tf.constant([[2.0, 3.0]]), "labels"))
        assert (x.numpy().tolist(), y) == ([[2.0, 3.0]], "labels"), "floats are scaled already"


# ---- data --------------------------------------------------------------------------------------


def values(data: tf.data.Dataset) -> list[Any]:
    """The labels of each batch."""
    return [y.tolist() for _, y in data.as_numpy_iterator()]


def batches() -> Iterator[Any]:
    yield X[:2], Y[:2]
    yield X[2:3], Y[2:3], None


def test_as_many_elements_of_a_generator_are_kept_as_an_evaluation_needs() -> None:
    again = exported.first_again(iter(range(9)), 3)
    assert next(again()) == 0
    assert [list(again()), list(again())] == [[0, 1, 2]] * 2, "also if its end was not read"


UNKNOWN, ENDLESS = tf.data.UNKNOWN_CARDINALITY, tf.data.INFINITE_CARDINALITY


def test_a_dataset_is_counted_only_if_its_length_is_needed_and_unknown() -> None:
    known = tf.data.Dataset.range(7)
    unknown = known.filter(lambda _: True)
    for needed in (False, True):
        assert exported.length(known, needed) == 7
        assert exported.length(known.repeat(), needed) == ENDLESS
    assert exported.length(unknown, needed=False) == UNKNOWN
    assert exported.length(unknown, needed=True) == 7


def read(elements: Any, most: int = 99) -> list[int]:
    return [int(number) for number in elements.dataset.take(most).as_numpy_iterator()]


def test_samples_of_a_dataset_are_as_many_as_are_given_or_counted_or_without_an_end() -> None:
    known = tf.data.Dataset.range(7)
    unknown = known.filter(lambda _: True)
    load, vary = object(), object()
    for data, count, needed, samples in (
        (known, None, False, 7), (known, 5, False, 5), (known, 9, False, 7), (unknown, 5, False, 5),
        (unknown, None, True, 7), (known.repeat(), 9, True, 9),
    ):  # fmt: skip
        made: Any = exported.elements_of(data, count, load, vary, needed)  # type: ignore[arg-type]
        assert (made.samples, made.load, made.vary, made.arrays, made.whole) == (samples, load, vary, None, False)
        assert read(made) == [number % 7 for number in range(samples)]
    made = exported.elements_of(unknown, None, None, None, needed=False)
    assert (made.samples, read(made, 9)) == (2**62, [0, 1, 2, 3, 4, 5, 6, 0, 1])


def test_arrays_are_samples_that_can_be_gathered_by_index_unless_they_are_ragged() -> None:
    load, vary = object(), object()
    made: Any = exported.samples_of([X.astype("float64"), Y, None], load, vary)  # type: ignore[arg-type]
    assert (made.samples, made.load, made.vary, made.whole) == (6, load, vary, True)
    assert [(part.dtype, part.shape.as_list()) for part in made.arrays] == [(tf.float32, [6, 4]), (tf.int64, [6])]
    assert values(made.dataset) == list(range(6))
    ragged: Any = exported.samples_of(tf.ragged.constant([[1], [2, 3]]), None, None)
    assert (ragged.samples, ragged.arrays, ragged.whole) == (2, None, True)


def test_batches_are_those_of_the_dataset_or_as_many_as_the_samples_fill() -> None:
    rows = tf.data.Dataset.range(10)
    unknown = rows.filter(lambda _: True)
    for data, count, needed, expected in (
        (rows.batch(4), None, False, 3), (rows.batch(4), 99, True, 3), (unknown.batch(4), None, False, UNKNOWN),
        (unknown.batch(4), None, True, 3), (unknown.batch(4), 10, False, 3), (unknown.batch(4), 10, True, 3),
        (unknown.batch(4, drop_remainder=True), 10, True, 2), (rows.repeat().batch(4), 10, False, 3),
        (rows.repeat().batch(4), None, True, ENDLESS),
    ):  # fmt: skip
        assert exported.batches_in(data, count, needed) == expected, (data, count, needed)


def test_batches_of_a_pydataset_are_copied_and_it_is_told_of_its_epochs() -> None:
    class Pages(keras.utils.PyDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(workers=3, use_multiprocessing=True, max_queue_size=7)
            self.told: list[str] = []

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return [X[index], Y, None]

        def on_epoch_begin(self) -> None:
            self.told.append("begin")

        def on_epoch_end(self) -> None:
            self.told.append("end")

    pages = Pages()
    copied = exported.Copied(pages)
    assert (len(copied), copied.workers, copied.use_multiprocessing, copied.max_queue_size) == (5, 3, True, 7)
    x, y = copied[2]
    assert (x.tolist(), y.tolist()) == (X[2].tolist(), Y.tolist())
    assert y is not Y
    assert not np.shares_memory(x, X)
    copied.on_epoch_begin()
    copied.on_epoch_end()
    assert pages.told == ["begin", "end"]
