"""The end of a pipeline: limits of a container, order and threads, rows for each replica and each worker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.data import finishing
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.data.batches import Share
from gputui.engine.trainer.data.stages import SOURCE, Stage

from tests.support.training import options


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(10)


@pytest.mark.parametrize(
    ("few_cpus", "little_memory", "budgets"),
    [(False, False, (None, None)), (True, False, (3, None)), (False, True, (None, 500)), (True, True, (3, 500))],
)
def test_the_limits_of_a_container_bound_what_is_prepared_unless_an_option_does(
    few_cpus: bool, little_memory: bool, budgets: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = SimpleNamespace(
        cpus_limited=lambda: few_cpus, usable_cpus=lambda: 3, memory_limited=lambda: little_memory,
        memory=lambda: SimpleNamespace(available=1001),
    )  # fmt: skip
    monkeypatch.setattr(finishing, "resource_limits", limits)
    of = finishing.within_limits(numbers()).options().autotune
    assert (of.cpu_budget, of.ram_budget) == budgets
    given = tf.data.Options()
    given.autotune.cpu_budget, given.autotune.ram_budget = 7, 70
    of = finishing.within_limits(numbers().with_options(given)).options().autotune
    assert (of.cpu_budget, of.ram_budget) == (7, 70)


@pytest.mark.parametrize(
    ("settings", "deterministic", "threads", "parallel_maps", "fusion", "prefetch"),
    [
        ((), True, None, None, None, None),
        (("deterministic_order=false",), False, None, None, False, None),
        (("private_threads=3",), True, 3, None, None, None),
        (("parallel_calls=off",), True, None, False, False, None),
        (("prefetch=off",), True, None, None, False, False),
        (("prefetch=3",), True, None, None, None, None),
    ],
)
def test_the_options_of_the_input_are_those_of_tensorflow(
    settings: tuple[str, ...], deterministic: bool, threads: Any, parallel_maps: Any, fusion: Any, prefetch: Any
) -> None:
    made = finishing.ahead(numbers(), options(*settings)).options()
    improves = made.experimental_optimization
    assert made.deterministic is deterministic
    assert made.threading.private_threadpool_size == threads
    assert (improves.map_parallelization, improves.map_and_batch_fusion) == (parallel_maps, fusion)
    assert improves.inject_prefetch is prefetch


@pytest.mark.parametrize(
    ("settings", "deterministic"),
    [((), False), (("deterministic=true",), True), (("deterministic=true", "deterministic_order=false"), False)],
)
def test_data_that_may_vary_in_their_order_do_unless_the_training_is_deterministic(
    settings: tuple[str, ...], deterministic: bool
) -> None:
    may_vary = tf.data.Options()
    may_vary.deterministic = False
    made = finishing.ahead(numbers().with_options(may_vary), options(*settings)).options()
    assert made.deterministic is deterministic


def test_a_global_batch_is_split_into_rows_for_each_replica_whatever_its_kind() -> None:
    x = tf.range(20)[:, None]
    ragged = tf.RaggedTensor.from_row_lengths(tf.range(20), [2] * 10)
    sparse = tf.sparse.from_dense(tf.reshape(tf.range(1, 21), (10, 2)))
    batches = tf.data.Dataset.from_tensors({"x": x[:10], "r": ragged, "s": sparse})
    parts = list(finishing.split(batches, 3))
    assert [part["x"].shape[0] for part in parts] == [4, 4, 2], "as TensorFlow's strategies split it"
    few = finishing.split(tf.data.Dataset.from_tensors(x[:5]), 4)
    assert [len(part) for part in few] == [1, 1, 1, 2], "and each has a sample"
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in parts]), x[:10])
    assert [row for part in parts for row in part["r"].to_list()] == ragged.to_list()
    dense = np.concatenate([tf.sparse.to_dense(part["s"]) for part in parts])
    np.testing.assert_array_equal(dense, np.arange(1, 21).reshape(10, 2))
    assert [len(part[1]) for part in finishing.split(tf.data.Dataset.from_tensors((x, x + 1)), 2)] == [10, 10]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (lambda: (None, np.zeros((4, 2))), 4),
        (lambda: tf.sparse.from_dense(np.eye(5, 3)), 5),
        (lambda: tf.ragged.constant([[1], [2, 3], []]), 3),
    ],
)
def test_the_samples_of_a_batch_are_its_rows(batch: Callable[[], Any], count: int) -> None:
    assert int(finishing.sample_count(batch())) == count


def test_rows_are_counted_in_a_graph_that_does_not_know_them() -> None:
    sparse, ragged = tf.sparse.from_dense(np.eye(5, 3)), tf.ragged.constant([[1], [2, 3], [], [4], [5]])
    for rows in (tf.zeros((5, 3)), sparse, ragged):
        batches = tf.data.Dataset.from_tensor_slices(rows).batch(2)
        assert [int(count) for count in batches.map(finishing.sample_count)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (tf.TensorSpec((None, 2), tf.float16), True),
        ((tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.bool)), True),
        (tf.TensorSpec((), tf.complex64), True),
        ((tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.string)), False),
        (tf.RaggedTensorSpec((None, None), tf.int32), False),
        (tf.SparseTensorSpec((None, 3), tf.float32), False),
    ],
)
def test_only_dense_numbers_wait_in_the_memory_of_a_gpu(spec: Any, fits: bool) -> None:
    given: Any = SimpleNamespace(device_batches=3)
    assert finishing.fits_devices(spec) is fits
    assert finishing.batches_ahead(given, "GPU", spec) == (3 if fits else 0)
    assert finishing.batches_ahead(given, "CPU", spec) == 0


def test_bytes_become_floats_in_the_step() -> None:
    def step(data: Any) -> Any:
        return data

    x, y, weight = finishing.first_cast(step, 0.5)((tf.constant([2, 255], tf.uint8), 1, 2))
    assert (x.dtype, x.numpy().tolist(), y, weight) == (tf.float32, [1.0, 127.5], 1, 2)
    assert finishing.first_cast(step, None) is step


def test_batches_come_from_an_iterator_on_the_host_on_demand_and_nothing_is_added_behind_it() -> None:
    asked: list[int] = []

    def noted(number: Any) -> Any:
        asked.append(int(number))
        return number

    settings = tf.data.Options()
    settings.experimental_optimization.inject_prefetch = False
    counted = numbers().map(lambda number: tf.py_function(noted, [number], tf.int64)).with_options(settings)
    handed_on, host = finishing.through_an_iterator(counted)
    taken = iter(handed_on)
    assert (int(next(taken)), int(next(taken)), asked) == (0, 1, [0, 1])
    assert int(next(host)) == 2, "it is the iterator that they are taken from"
    made = handed_on.options()
    assert made.autotune.enabled is False
    assert made.experimental_optimization.inject_prefetch is False
    assert made.experimental_optimization.map_parallelization is False


def test_as_many_batches_wait_in_the_memory_of_a_device_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def prefetch_to_device(*words: Any) -> Any:
        given.append(words)
        return lambda batches: batches

    monkeypatch.setattr(tf.data.experimental, "prefetch_to_device", prefetch_to_device)
    batches = numbers()
    assert finishing.prefetched_to("/GPU:1", batches, 3) is batches
    assert given == [("/GPU:1", 3)]


# ---- workers -----------------------------------------------------------------------------------


def test_each_worker_takes_rows_of_its_own_and_all_take_each_row_once() -> None:
    shares = [Share(3, index) for index in range(3)]
    assert [share.size(30) for share in shares] == [10, 10, 10]
    assert [share.bounds(10) for share in shares] == [(0, 3), (3, 6), (6, 10)]
    pairs = tf.data.Dataset.from_tensor_slices((tf.range(10), tf.range(10) * 2)).batch(10)
    rows = [next(iter(share.batches(pairs))) for share in shares]
    assert [x.numpy().tolist() for x, _ in rows] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [y.numpy().tolist() for _, y in rows] == [[0, 2, 4], [6, 8, 10], [12, 14, 16, 18]]
    single = [next(iter(share.batches(numbers().batch(10)))).numpy().tolist() for share in shares]
    assert single == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [[int(n) for n in share.elements(numbers())] for share in shares] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_the_share_of_a_worker_is_in_its_pipeline() -> None:
    settings = ("data=synthetic", "samples=50", "shape=[4, 3]", "validation_split=0.2", "batch_size=4", "seed=5")
    alone = pipelines.build(options(*settings), 2)
    shared = pipelines.build(options(*settings), 4, Share(2, 1))
    assert (alone.sharing, alone.replicas_here, alone.global_batch_size) == ("", 2, 8)
    assert (shared.replicas_here, shared.global_batch_size) == (2, 16)
    assert shared.sharing == (
        "by element: of each global batch every worker takes its own rows, before they are loaded; together the "
        "workers train each sample once in a pass"
    )
    assert (alone.batches_per_pass, alone.validation_batches, alone.smaller_last_batch) == (5, 2, False)
    assert (shared.batches_per_pass, shared.validation_batches, shared.smaller_last_batch) == (3, 1, True)
    assert (alone.sample_bytes, alone.train_samples, alone.validation_samples) == (48, 40, 10)
    first, second = (pipelines.build(options(*settings), 4, Share(2, index)) for index in (0, 1))
    assert (first._augment_seed, second._augment_seed, alone._augment_seed) == (5, 5 + 1_000_003, 5)
    assert [pipe._cache_suffix for pipe in (first, second, alone)] == ["-0-of-2", "-1-of-2", ""]


READ = Stage(SOURCE, "")


@pytest.mark.parametrize(
    ("settings", "replicas", "stages"),
    [
        (
            ("data=synthetic", "shape=[4, 3, 1]", "shuffle=off", "prefetch=off"), 1,
            (READ, Stage("load", "Map"), Stage("batch", "Batch"), Stage("pass", "FlatMap")),
        ),
        (
            ("data=synthetic", "shape=[4, 3, 1]", "cache=memory", "augment=light"), 2,
            (
                READ, Stage("load", "Map"), Stage("cache", "Cache"), Stage("shuffle", "Shuffle"),
                Stage("batch", "Batch"), Stage("pass", "Map"), Stage("pass", "FlatMap"), Stage("augment", "Map"),
                Stage("split", "FlatMap", 2), Stage("prefetch", "Prefetch"),
            ),
        ),
        (
            ("data=digits", "model=transformer", "cache=memory", "one_batch=true"), 1,
            (
                READ, Stage("shuffle", "Shuffle"), Stage("batch", "Batch"), Stage("pass", "FlatMap"),
                Stage("prepare", "Map"), Stage("one batch", "Cache"), Stage("prefetch", "Prefetch"),
            ),
        ),
    ],
)  # fmt: skip
def test_the_stages_of_a_pipeline_are_those_of_its_options(
    settings: tuple[str, ...], replicas: int, stages: tuple[Stage, ...]
) -> None:
    assert pipelines.build(options(*settings, "validation_split=0"), replicas).stages() == stages


@pytest.mark.parametrize(
    ("arrays", "settings", "why"),
    [
        ("float32", (), "the data are not bytes (uint8)"),
        ("uint8", ("model=transformer",), "the transformer's tokens are created on the host"),
        ("uint8", ("augment=heavy",), "augmentation other than flip and shift needs floats on the host"),
        ("uint8", ("augment=light",), None),
        ("uint8", (), None),
    ],
)
def test_why_bytes_are_not_converted_on_the_device(
    arrays: str, settings: tuple[str, ...], why: str | None, tmp_path: Any
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((8, 2, 2), arrays), y=np.arange(8) % 2)
    asked = (f"data=npz:{tmp_path / 'a.npz'}", "batch_size=4", "validation_split=0", *settings)
    pipe = pipelines.build(options(*asked, "cast=device"), 1)
    assert pipe.inapplicable == ({"input.cast": why} if why else {})
    assert pipe.not_applied == ([{"option": "input.cast", "why": why}] if why else [])
    assert pipelines.build(options(*asked, "cast=host"), 1).not_applied == []
    expected = pytest.approx(1 / 255) if why is None else None
    assert pipe.device_scale == expected
    assert pipelines.build(options(*asked, "cast=host"), 1).device_scale is None
