"""Parts of the pipeline by themselves: how images are changed, shuffled, and made into floats and tokens."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.common.training_errors import DataError
from gputui.engine.trainer.data import batching, file_sources, source
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.data.batching import Elements

from tests.support.training import options
from tests.trainer.test_data import FLOATS, GOOD, image, records

pytestmark = pytest.mark.usefixtures("cpus")
SEEDS = range(40)


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


def test_brightness_is_another_for_each_image_by_up_to_a_fifth() -> None:
    images = np.full((400, 1, 2, 1), 0.5, "float32")
    shifts = changed(images, "brightness") - 0.5
    assert np.ptp(shifts, axis=2).max() < 1e-6
    assert (shifts.min(), shifts.max()) == pytest.approx((-0.2, 0.2), abs=0.01)
    assert abs(float(shifts.mean())) < 0.03


def test_contrast_is_stretched_or_shrunk_by_up_to_three_tenths_around_the_mean() -> None:
    image = np.array([0.4, 0.6], "float32").reshape(1, 1, 2, 1)
    factors = [float(np.diff(changed(image, "contrast", seed=seed)[0, 0, :, 0])[0]) / 0.2 for seed in SEEDS]
    assert 0.7 <= min(factors) < 0.8
    assert 1.2 < max(factors) <= 1.3


def test_images_are_moved_by_up_to_an_eighth_of_their_size_and_the_edge_is_black() -> None:
    """All of a batch by the same."""
    image = np.zeros((2, 16, 24, 1), "float32")
    image[:, 8, 12] = 1.0
    places = set()
    for seed in SEEDS:
        found = changed(image, "shift", seed=seed)
        np.testing.assert_array_equal(found[0], found[1])
        ((row, column),) = np.argwhere(found[0, :, :, 0] == 1.0)
        places.add((row - 8, column - 12))
    rows, columns = zip(*places, strict=True)
    assert (min(rows), max(rows), min(columns), max(columns)) == (-2, 2, -3, 3)
    full = changed(np.ones((1, 16, 24, 1), "float32"), "shift")
    assert set(np.unique(full)) <= {0.0, 1.0}
    small = {tuple(np.argwhere(changed(np.eye(3, dtype="float32")[None, :, :, None], "shift", seed=seed)[0])[0])
             for seed in SEEDS}  # fmt: skip
    assert len(small) > 1, "by a pixel if the image is small"


def test_noise_has_a_twentieth_as_its_standard_deviation_and_is_cut_to_the_range() -> None:
    images = np.full((50, 8, 8, 1), 0.5, "float32")
    found = changed(images, "noise")
    assert (found.mean(), found.std()) == pytest.approx((0.5, 0.05), abs=0.005)
    assert changed(np.ones((1, 8, 8, 1), "float32"), "noise").max() == 1.0
    assert changed(np.zeros((1, 8, 8, 1), "float32"), "noise").min() == 0.0


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


def test_the_bytes_of_a_batch_are_those_of_all_its_parts() -> None:
    spec = {"x": tf.TensorSpec((3, 2), tf.float64), "y": tf.TensorSpec((), tf.int16)}
    assert batching.batch_bytes(spec, 5) == 5 * (6 * 8 + 2)
    for open_ in (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((), tf.string),
                  tf.RaggedTensorSpec((2, None), tf.int32)):  # fmt: skip
        assert batching.batch_bytes((spec, open_), 5) == float("inf")


# ---- order and caches --------------------------------------------------------------------------


def order(data: Elements, *settings: str, number: int = 0, seed: int = 5) -> list[int]:
    pass_ = tf.constant(number, tf.int64)
    return [int(n) for n in batching.shuffled(data, seed, pass_, options(*settings))]


def test_arrays_of_a_user_are_shuffled_whole_whatever_the_buffer_also_from_a_cache() -> None:
    data = Elements(tf.data.Dataset.range(60), 60)
    whole = replace(data, whole=True)
    moved = [place - number for place, number in enumerate(order(data, "shuffle=2"))]
    assert max(moved) >= 0 > min(moved) >= -1, "by the buffer"
    kept = batching.kept(whole, "train", lambda name: name, options("cache=memory"))
    for each in (whole, kept):
        found = order(each, "shuffle=2")
        assert sorted(found) == list(range(60))
        assert min(place - number for place, number in enumerate(found)) < -20
        assert found == order(each, "shuffle=2") == order(each, "shuffle=50")
        assert found != order(each, "shuffle=2", number=1)
        assert found != order(each, "shuffle=2", seed=7)
        assert order(each, "shuffle=off") == list(range(60))


def test_only_what_is_done_once_is_kept_in_a_cache_and_samples_vary_after_it(tmp_path: Any) -> None:
    calls: list[int] = []

    def noted(number: Any) -> Any:
        calls.append(int(number))
        return number * 10

    def load(number: Any) -> Any:
        return tf.numpy_function(noted, [number], tf.int64)

    def vary(number: Any) -> Any:
        return number + 1

    data = Elements(tf.data.Dataset.range(4), 4, load, vary)
    for cache, name in (("memory", "train"), (str(tmp_path), "train")):
        calls.clear()
        asked = options(f"cache={cache}", "parallel_calls=off")
        made = batching.kept(data, name, lambda name: str(tmp_path / name), asked)
        assert (made.load, made.vary, made.samples) == (None, vary, 4)
        for _ in range(2):
            assert [int(n) for n in made.dataset] == [0, 10, 20, 30]
        assert calls == [0, 1, 2, 3]
    assert (tmp_path / "train.index").exists()


# ---- from arrays to samples --------------------------------------------------------------------


def test_arrays_become_floats_once_if_the_memory_allows_it_and_else_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.full((10, 2, 3), 51, "uint8"), np.arange(10) % 2
    monkeypatch.setattr(source, "MAX_FLOAT_BYTES", 4 * 60)

    def made(test: Any = None, keeps_bytes: bool = False) -> tuple[Any, Any, bool]:
        found = source.from_arrays(x, y, 0.3, 1, 1 / 255, 2, test, keeps_bytes)
        kinds = {part.elements.element_spec[0].dtype for part in (found.train, found.validation)}
        assert found.shape == (2, 3, 1)
        (value,) = {float(np.ravel(pixel)[0]) for pixel, _ in found.train.elements.take(1)}
        return kinds, pytest.approx(value * found.scale), found.bytes

    assert made() == ({tf.float32}, 0.2, True)
    assert made(keeps_bytes=True) == ({tf.uint8}, 0.2, True)
    assert made((x[:1], y[:1])) == ({tf.uint8}, 0.2, True), "with the test part it is more"
    monkeypatch.setattr(source, "MAX_FLOAT_BYTES", 4 * 60 - 1)
    assert made() == ({tf.uint8}, 0.2, True)


def test_the_split_takes_the_last_of_an_order_that_the_seed_draws() -> None:
    trained, held_out = source.split_order(10, 0.25, 3)
    order_ = np.random.default_rng(3).permutation(10)
    assert (len(trained), len(held_out)) == (8, 2)
    assert [*trained, *held_out] == order_.tolist()
    assert [len(part) for part in source.split_order(10, 0.0, 3)] == [10, 0]


def test_half_precision_that_is_not_finite_is_found_in_any_axis() -> None:
    x = np.zeros((4, 2, 2), "float16")
    x[3, 1, 0] = np.inf
    with pytest.raises(DataError) as raised:
        source.check_arrays(x, np.zeros(4, int), "a")
    told = "a: sample 3 of x is not finite (NaN or infinity)", "repair or remove such samples"
    assert (raised.value.message, raised.value.hint) == told
    assert source.check_arrays(np.zeros((4, 2)), np.array([0, 0, 5, 1], "uint8"), "a") == 6
    assert source.check_arrays(np.zeros((4, 2), "int8"), np.zeros((4, 1), int), "a") == 2, "at least two classes"


def test_a_generated_sample_is_the_mean_of_the_pattern_of_its_class_and_of_its_own_noise() -> None:
    for index, label in ((0, 0), (1, 1), (7, 1)):
        x, y = source.synthetic_sample(tf.constant(index, tf.int64), (2, 3), 3, 5)
        pattern = tf.random.stateless_uniform((2, 3), (5, label))
        noise = tf.random.stateless_uniform((2, 3), (6, index))
        assert (int(y), y.dtype) == (label, tf.int32)
        np.testing.assert_allclose(x, (pattern + noise) / 2, atol=1e-6)


def test_only_bytes_are_scaled(tmp_path: Path) -> None:
    for kind, scaled in (("uint8", 1.0), ("uint16", 255.0), ("int8", 100.0), ("float32", 255.0)):
        value = 100 if kind == "int8" else 255
        np.savez(tmp_path / "x.npz", x=np.full((4, 2), value, kind), y=np.arange(4))
        found = file_sources.npz(options(f"data=npz:{tmp_path}/x.npz", "validation_split=0"), 1)
        ((x, _),) = found.train.elements.take(1)
        assert float(x[0]) * found.scale == pytest.approx(scaled), kind


def test_batches_of_an_evaluation_come_again_for_the_next_one() -> None:
    pipe = pipelines.build(options("data=synthetic", "shape=[2]", "samples=20", "classes=20", "batch_size=4"), 1)
    assert pipe.validation_batches == 1
    labels = [y.numpy().tolist() for _, y in pipe.validation().take(3)]
    assert labels == [[18, 19]] * 3


# ---- files -------------------------------------------------------------------------------------


def test_the_first_image_of_each_class_is_looked_at_before_the_next_class_is_listed(tmp_path: Any) -> None:
    for name in ("b/2.PNG", "b/1.jpeg", "b/notes.txt", "a/9.gif", "c/5.bmp", ".git/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c" / "5.bmp").unlink()
    seen: list[Any] = []
    with pytest.raises(DataError) as raised:
        file_sources.listed_images(options(f"data=images:{tmp_path}", "shape=[2, 2, 3]"), 1, seen.append)
    assert seen == [[f"{tmp_path}/a/9.gif"], [f"{tmp_path}/b/1.jpeg"]]
    assert raised.value.message.startswith(f"{tmp_path}/c contains no images (.")
    assert raised.value.hint == "fill or remove it"
    (tmp_path / "c" / "5.bmp").touch()
    found = file_sources.listed_images(options(f"data=images:{tmp_path}", "shape=[2, 2, 3]"), 1, seen.append)
    assert (found.classes, found.shape, found.scale, found.bytes) == (3, (2, 2, 3), 1 / 255, True)
    assert found.train.samples + found.validation.samples == 4
    asked = options(f"data=tfrecord:{tmp_path}/*/*.gif", "shape=[2, 2]", "tfrecord_encoding=encoded")
    with pytest.raises(DataError, match=r"^workload\.shape is \[2, 2\]; images need \[height, width, 1 or 3\]$"):
        file_sources.tfrecord(asked, 1)


def test_a_resized_image_is_rounded_to_the_nearest_byte() -> None:
    pixels = np.array([[0, 0], [255, 255], [255, 255]], "uint8")[..., None]
    png = tf.io.encode_png(pixels)
    assert np.ravel(file_sources.image_sample(png, (1, 1, 1))).tolist() == [255]
    two = tf.io.encode_png(np.array([[10, 21], [10, 22]], "uint8")[..., None])
    assert np.ravel(file_sources.image_sample(two, (1, 1, 1))).tolist() == [16]
    assert file_sources.image_sample(two, (3, 4, 3)).shape == (3, 4, 3)


def test_records_are_read_from_at_most_sixteen_files_at_once_or_one_file_after_the_other(tmp_path: Any) -> None:
    paths = []
    for number in range(18):
        paths.append(str(tmp_path / f"{number:02}"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for letter in "ab":
                writer.write(f"{number}{letter}".encode())

    def read(*settings: str) -> list[str]:
        return [record.numpy().decode() for record in file_sources.record_stream(paths, options(*settings))]

    in_turn = [*(f"{n}a" for n in range(16)), *(f"{n}b" for n in range(16)), "16a", "17a", "16b", "17b"]
    assert read("parallel_reads=auto") == in_turn
    assert read("parallel_reads=off") == [f"{n}{letter}" for n in range(18) for letter in "ab"]
    assert read("parallel_reads=17")[16:18] == ["16a", "0b"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("{{function_node __wrapped__IteratorGetNext}} no\n such   file [Op:IteratorGetNext] name: x", "no such file"),
        ("bad [[{{node Decode}}]] image", "bad image"),
        ("y" * 200, "y" * 160),
    ],
)
def test_what_tensorflow_says_is_told_without_the_names_of_operations(message: str, told: str) -> None:
    assert file_sources.reason(tf.errors.NotFoundError(None, None, message)) == told


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
        pipe = replace(pipe, source=replace(pipe.source, stamp=stamp))
        return pipe._cache_file("train")

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
