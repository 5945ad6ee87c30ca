"""Batches on their way: changes of images, caches, rows for replicas and workers, and the times of the stages."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import (
    SOURCE,
    Pipeline,
    Share,
    Source,
    StageMeter,
    Timed,
    batching,
    finishing,
)
from tests.doors.trainer import pipeline as pipelines
from tests.doors.trainer import sources as file_sources
from tests.support.front_door import until
from tests.support.planted import SLEEP, gated, slow_load, slow_read
from tests.support.training import Build, options, source_of, with_source
from tests.trainer.test_data import FLOATS, GOOD, image, records

pytestmark = pytest.mark.usefixtures("cpus")


def changed(images: Any, *changes: str, seed: int = 0) -> np.ndarray:
    return np.asarray(batching.augment(tf.constant(images), changes, tf.constant([3, seed], tf.int64)))


# ---- changes of images -------------------------------------------------------------------------


def test_blur_spreads_a_pixel_by_a_binomial_kernel_in_its_own_channel() -> None:
    image = np.zeros((1, 9, 9, 2), "float32")
    image[0, 4, 4, 1] = 1.0
    line = np.array([1, 4, 6, 4, 1]) / 16
    found = changed(image, "blur")
    np.testing.assert_allclose(found[0, 2:7, 2:7, 1], np.outer(line, line), atol=1e-6)
    assert found.sum() == pytest.approx(1.0)
    assert found[..., 0].sum() == 0


def test_each_change_draws_the_same_whichever_others_are_made() -> None:
    """And flip and shift also take bytes, whose values stay as they are."""
    draw = np.random.default_rng(0)
    images = draw.random((6, 8, 8, 1), dtype="float32") * 0.2 + 0.4
    both = changed(images, "shift", "flip")
    np.testing.assert_array_equal(both, changed(changed(images, "flip"), "shift"))
    bright = changed(images, "brightness") - images
    alone = changed(images, "noise") - images
    together = changed(images, "noise", "brightness") - images
    np.testing.assert_allclose(together, bright + alone, atol=1e-6)
    levels = (images * 255).astype("uint8")
    moved = changed(levels, "shift", "flip")
    assert moved.dtype == np.uint8
    np.testing.assert_array_equal(moved, (changed(levels.astype("float32"), "shift", "flip")).astype("uint8"))
    text = np.zeros((4, 5), "float32")
    assert changed(text, "noise").tolist() == text.tolist()


def test_the_seeds_of_the_changes_stay_so_that_a_resumed_run_changes_images_as_before() -> None:
    images = np.full((3, 2, 2, 1), 0.5, "float32")
    images[:, 0] = 0.6
    flip, _, contrast, noise, bright = tf.unstack(tf.random.split(tf.constant([3, 0], tf.int64), 5), num=5)
    expected = {
        "flip": tf.image.stateless_random_flip_left_right(images, flip),
        "contrast": tf.image.stateless_random_contrast(images, 0.7, 1.3, contrast),
        "noise": images + tf.random.stateless_normal(images.shape, noise, stddev=0.05),
        "brightness": images + tf.random.stateless_uniform((3, 1, 1, 1), bright, -0.2, 0.2),
    }
    for name, wanted in expected.items():
        np.testing.assert_allclose(changed(images, name), wanted, atol=1e-6, err_msg=name)


# ---- as the model takes them -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "cast", "scaled"),
    [("mlp", "host", [0.0, 1.0]), ("mlp", "device", [0, 255]), ("transformer", "host", [0, 255])],
)
def test_inputs_are_floats_or_tokens_or_stay_bytes_for_the_device(model: str, cast: str, scaled: list[float]) -> None:
    x = tf.constant([[[[0], [255]]]], tf.uint8)
    asked = options(f"model={model}", f"cast={cast}")
    made = batching.tokens(batching.inputs(x, 1 / 255, (1, 2, 1), asked), (1, 2, 1), asked)
    assert np.ravel(made).tolist() == scaled
    kind = {"mlp": tf.float32, "transformer": tf.int32}[model]
    assert made.dtype == (tf.uint8 if cast == "device" else kind)
    assert made.shape == ((1, 2) if model == "transformer" else (1, 1, 2, 1))
    floats = batching.inputs(tf.constant([[[[0.0], [2.0]]]]), 0.5, (1, 2, 1), asked)
    assert np.ravel(floats).tolist() == [0.0, 1.0], "only bytes are left to the device"
    over = batching.tokens(tf.constant([[-0.5, 0.5, 1.5]]), (3,), options("model=transformer"))
    assert over.numpy().tolist() == [[0, 127, 255]]


# ---- files -------------------------------------------------------------------------------------


def test_data_are_others_if_one_of_their_files_was_written_since(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        image(tmp_path / "images" / name, 5)
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), y=np.arange(4))
    records(tmp_path / "one.tfrecord", GOOD)
    pictures = ("shape=[2, 2, 3]",)
    sources: list[tuple[Callable[..., Any], str, tuple[str, ...], Path]] = [
        (file_sources.npz, f"npz:{tmp_path}/x.npz", (), tmp_path / "x.npz"),
        (file_sources.images, f"images:{tmp_path}/images", pictures, tmp_path / "images" / "b" / "2.png"),
        (file_sources.tfrecord, f"tfrecord:{tmp_path}/*.tfrecord", FLOATS, tmp_path / "one.tfrecord"),
    ]
    for read, place, settings, file in sources:
        asked = options(f"data={place}", *settings)
        stamp = read(asked, 1).stamp
        assert len(stamp) == 64
        assert read(asked, 2).stamp == stamp
        os.utime(file, ns=(0, 5))
        assert read(asked, 1).stamp != stamp, place


def test_a_cache_file_is_another_for_another_way_to_read_or_to_hold_out(tmp_path: Any) -> None:
    base = ("data=synthetic", "shape=[2]", "samples=40", f"cache={tmp_path / 'cache'}")

    def file(*settings: str, stamp: str = "") -> str:
        pipe = pipelines.build(options(*base, *settings), 1)
        pipe = with_source(pipe, replace(source_of(pipe), stamp=stamp))
        return str(cast("Any", pipe.train)._cache_file("train"))

    plain = file()
    assert plain == file("width=0.5", "model=cnn", "batch_size=8", "shuffle=9", "epochs=9", "augment=off")
    of_models = ("stride=2", "separable=true", "kernel_size=5", "normalization=layer")
    assert {file("shape=[2, 2, 1]", each) for each in of_models} == {file("shape=[2, 2, 1]")}
    assert file("model=transformer", "blocks=1") == plain
    others = [
        file("parallel_reads=4"),
        file("validation_split=0.3"),
        file("validation=test"),
        file("seed=8"),
        file(stamp="x"),
        file("classes=3"),
    ]
    assert len({plain, *others}) == 7
    assert plain.startswith(f"{tmp_path}/cache/")
    assert plain.endswith("-train")
    stale, other = (tmp_path / "cache" / f"{plain.rpartition('/')[2]}{end}" for end in ("_0.lockfile", "-1-of-2_0"))
    for path in (stale, other):
        path.touch()
    assert file() == plain
    assert (stale.exists(), other.exists()) == (False, True), "half of a file of a killed run, but of no other worker"
    stale.touch()
    (tmp_path / "cache" / f"{plain.rpartition('/')[2]}.index").touch()
    assert file() == plain
    assert stale.exists(), "the file is whole, and another run may be writing"


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(10)


def test_a_global_batch_is_split_into_rows_for_each_replica_whatever_its_kind() -> None:
    x = tf.range(20)[:, None]
    ragged = tf.RaggedTensor.from_row_lengths(tf.range(20), [2] * 10)
    sparse = tf.sparse.from_dense(tf.reshape(tf.range(1, 21), (10, 2)))
    batches = tf.data.Dataset.from_tensors({"x": x[:10], "r": ragged, "s": sparse})
    parts = list(finishing.split(batches, 3))
    assert [part["x"].shape[0] for part in parts] == [4, 4, 2], "as TensorFlow's strategies split it"
    for samples, replicas, sizes in ((5, 4, [1, 1, 1, 2]), (4, 3, [1, 1, 2])):
        few = finishing.split(tf.data.Dataset.from_tensors(x[:samples]), replicas)
        assert [len(part) for part in few] == sizes, "and each has a sample"
    np.testing.assert_array_equal(np.concatenate([part["x"] for part in parts]), x[:10])
    assert [row for part in parts for row in part["r"].to_list()] == ragged.to_list()
    dense = np.concatenate([tf.sparse.to_dense(part["s"]) for part in parts])
    np.testing.assert_array_equal(dense, np.arange(1, 21).reshape(10, 2))
    assert [len(part[1]) for part in finishing.split(tf.data.Dataset.from_tensors((x, x + 1)), 2)] == [10, 10]


def test_bytes_become_floats_in_the_step() -> None:
    def step(data: Any) -> Any:
        return data

    x, y, weight = finishing.first_cast(step, 0.5)((tf.constant([2, 255], tf.uint8), 1, 2))
    assert (x.dtype, x.numpy().tolist(), y, weight) == (tf.float32, [1.0, 127.5], 1, 2)
    assert finishing.first_cast(step, None) is step


# ---- workers -----------------------------------------------------------------------------------


def test_each_worker_takes_rows_of_its_own_and_all_take_each_row_once() -> None:
    shares = [Share(3, index) for index in range(3)]
    assert [share.size(30) for share in shares] == [10, 10, 10]
    pairs = tf.data.Dataset.from_tensor_slices((tf.range(10), tf.range(10) * 2)).batch(10)
    rows = [next(iter(share.batches(pairs))) for share in shares]
    assert [x.numpy().tolist() for x, _ in rows] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [y.numpy().tolist() for _, y in rows] == [[0, 2, 4], [6, 8, 10], [12, 14, 16, 18]]
    single = [next(iter(share.batches(numbers().batch(10)))).numpy().tolist() for share in shares]
    assert single == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [[int(n) for n in share.elements(numbers())] for share in shares] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


DATA = ("data=synthetic", "shape=[8, 8, 1]", "samples=200", "validation_split=0", "batch_size=8", "shuffle=16")


def piped(*settings: str, replicas: int = 1, plant: Callable[[Source], Source] | None = None) -> Pipeline:
    pipe = pipelines.build(options(*DATA, *settings), replicas)
    return with_source(pipe, plant(source_of(pipe))) if plant else pipe


def measured(pipe: Pipeline, batches: int = 30, looks: int = 5, declared: Any = None) -> tuple[list[Timed], Any]:
    """The stages after so many batches, looked at so many times on the way."""
    meter = StageMeter(pipe.stages() if declared is None else declared, pipe.replicas)
    iterator = iter(pipe.stream())
    for number in range(batches * pipe.replicas):
        next(iterator)
        if (number + 1) % (batches * pipe.replicas // looks) == 0:
            assert meter.read(iterator)
    return meter.take()


# ---- the slow one is found --------------------------------------------------------------------


def of(name: str, stages: list[Timed]) -> Timed:
    (found,) = (stage for stage in stages if stage.name == name)
    return found


@pytest.mark.parametrize(
    ("plant", "name", "calls", "prefetch"), [(slow_load, "load", "auto", "off"), (slow_read, SOURCE, "off", "auto")]
)
def test_a_stage_that_sleeps_has_its_time(
    plant: Callable[[Source], Source], name: str, calls: str, prefetch: str
) -> None:
    """That it is the slowest, and has no more than its own time, is measured in tests/end_to_end/test_cases.py."""
    stages, _ = measured(piped(f"parallel_calls={calls}", f"prefetch={prefetch}", plant=plant), batches=10)
    assert of(name, stages).ms_per_batch >= 8 * 1000 * SLEEP


def test_parallelism_is_told_where_calls_run_at_once() -> None:
    by_name = {stage.name: stage for stage in measured(piped("parallel_calls=3", "augment=light"))[0]}
    assert by_name["augment"].parallelism == 3
    assert by_name["shuffle"].parallelism is None


def test_the_next_iterator_adds_its_own_times() -> None:
    meter = StageMeter(piped().stages(), 1)
    for plant in (slow_load, None):
        iterator = iter(piped("parallel_calls=off", "prefetch=off", plant=plant).stream())
        for _ in range(10):
            next(iterator)
        meter.read(iterator)
        stages, _ = meter.take()
    assert of("load", stages).ms_per_batch >= 8 * 1000 * SLEEP / 4, "those of the slow one count half"


# ---- names ------------------------------------------------------------------------------------


def test_a_filled_cache_leaves_nothing_of_what_lies_behind_it() -> None:
    pipe = piped("cache=memory", "shuffle=off", plant=slow_load)
    meter = StageMeter(pipe.stages(), 1)
    iterator = iter(pipe.stream())
    for _ in range(5):
        next(iterator)
    meter.read(iterator)
    assert "load" in [stage.name for stage in meter.take()[0]]
    names = ["load"]
    for _ in range(20 * pipe.batches_per_pass):  # TensorFlow's model may have the pass before for a while
        next(iterator)
        if not {"load", SOURCE} & set(names):
            break
        meter.read(iterator)
        names = [stage.name for stage in meter.take()[0]]
    assert "cache" in names
    assert not {"load", SOURCE} & set(names)


# ---- the buffer -------------------------------------------------------------------------------


def test_the_buffer_is_empty_where_the_pipeline_is_slow_and_full_where_it_is_ahead() -> None:
    permits = threading.Semaphore(0)
    pipe = piped("prefetch=2", "parallel_calls=off", "shuffle=off", plant=lambda source: gated(source, permits))
    meter = StageMeter(pipe.stages(), 1)
    iterator = iter(pipe.stream())
    for _ in range(5):
        permits.release(8)  # for the batch that is taken
        next(iterator)
        meter.read(iterator)
    assert meter.take()[1] == 0.0
    permits.release(8 * 200)

    def fill() -> float | None:
        meter.read(iterator)
        return meter.take()[1]

    until(lambda: fill() == 1.0)
    assert measured(piped("prefetch=off"))[1] is None


# ---- the model of TensorFlow, as a table -------------------------------------------------------


def test_a_training_says_its_stages_while_it_runs(build: Build) -> None:
    """Over replicas, whose iterator is not that of the pipeline."""
    settings = (
        "model=mlp",
        "width=0.05",
        "optimizer=sgd",
        "strategy.kind=mirrored",
        "steps_per_epoch=100000",
        "epochs=1",
    )
    training = build(*DATA, *settings, "measure_seconds=1.5")
    pipe = training.pipeline
    training.loop.built.pipeline = with_source(pipe, slow_load(source_of(pipe)))
    told = training.train().events("input_stages")
    assert told
    (stage,) = (stage for stage in told[-1]["stages"] if stage["name"] == "load")
    assert stage["ms_per_batch"] >= pipe.global_batch_size * 1000 * SLEEP
    assert told[-1]["buffer_fill"] is not None
