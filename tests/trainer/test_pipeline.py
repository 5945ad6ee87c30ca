"""From samples to batches: each option of `input` acts, and the stream can be begun at any step."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import Pipeline, TrainerError
from tests.doors.trainer import pipeline as pipelines
from tests.support.cases import all_hold
from tests.support.front_door import until
from tests.support.training import options, source_of, with_source

pytestmark = pytest.mark.usefixtures("cpus")

# Each label is the number of its sample, so that labels tell which samples came, and in which order.
NUMBERED = ("data=synthetic", "shape=[2, 2, 1]", "samples=22", "classes=22", "validation_split=0", "batch_size=4")


def numbered(*settings: str, replicas: int = 1) -> Pipeline:
    return pipelines.build(options(*NUMBERED, *settings), replicas)


def labels(dataset: tf.data.Dataset, number: int) -> list[list[int]]:
    """The labels of the first batches."""
    return [[int(label) for label in y] for _, y in dataset.take(number)]


def watched(pipe: Pipeline, seen: Callable[[int], None]) -> Pipeline:
    """The pipeline with `seen` called in Python for each sample that is loaded."""
    load = source_of(pipe).load
    assert load is not None

    def tell(index: np.int64) -> np.int64:
        seen(int(index))
        return index

    def calling(index: Any) -> Any:
        number = tf.numpy_function(tell, [index], tf.int64)
        number.set_shape([])
        return load(number)

    return with_source(pipe, dataclasses.replace(source_of(pipe), load=calling))


def settled(loaded: list[int]) -> int:
    """How many samples are loaded, once no more come."""
    before = -1
    while before != len(loaded):
        before = len(loaded)
        time.sleep(0.1)
    return before


# ---- order ------------------------------------------------------------------------------------


def test_shuffle_off_keeps_the_order_in_each_pass() -> None:
    pipe = numbered("shuffle=off")
    assert pipe.batches_per_pass == 6
    flat = list(itertools.chain(*labels(pipe.stream(), 12)))
    assert flat == [*range(22), *range(22)]


def test_shuffle_moves_samples_no_further_forward_than_its_buffer() -> None:
    flat = list(itertools.chain(*labels(numbered("shuffle=3").stream(), 6)))
    assert flat != sorted(flat)
    assert all(number - place < 3 for place, number in enumerate(flat))


def test_a_full_shuffle_mixes_all_and_each_pass_anew() -> None:
    found = list(itertools.chain(*labels(numbered("shuffle=1000").stream(), 12)))
    first, second = found[:22], found[22:]
    assert sorted(first) == sorted(second) == list(range(22))
    assert first != second
    assert max(first[:4]) > 8


def test_the_seed_decides_the_order() -> None:
    def order(seed: int) -> list[list[int]]:
        return labels(numbered("shuffle=1000", f"seed={seed}", "parallel_calls=4").stream(), 12)

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize(
    ("replicas", "drop", "cache"),
    [(1, "true", "memory"), (1, "false", "off"), (2, "true", "off"), (2, "false", "memory")],
)
def test_no_sample_comes_twice_in_a_pass(replicas: int, drop: str, cache: str) -> None:
    pipe = numbered("shuffle=7", f"drop_remainder={drop}", f"cache={cache}", replicas=replicas)
    elements = pipe.batches_per_pass * replicas
    found = labels(pipe.stream(), 3 * elements)
    for number in range(3):
        flat = list(itertools.chain(*found[number * elements : (number + 1) * elements]))
        assert len(set(flat)) == len(flat)
        assert len(flat) == (22 if drop == "false" else 22 // (4 * replicas) * (4 * replicas))


def test_the_last_batch_is_smaller_or_left_out() -> None:
    assert [len(batch) for batch in labels(numbered().stream(), 7)] == [4, 4, 4, 4, 4, 2, 4]
    assert [len(batch) for batch in labels(numbered("drop_remainder=true").stream(), 7)] == [4] * 7


def test_with_drop_remainder_the_batch_has_a_fixed_shape_for_xla() -> None:
    (x, y) = numbered("drop_remainder=true").stream().element_spec
    assert x.shape == (4, 2, 2, 1)
    assert y.shape == (4,)


def test_a_global_batch_is_split_evenly_over_the_replicas() -> None:
    sizes = [len(batch) for batch in labels(numbered(replicas=2).stream(), 6)]
    assert sizes == [4, 4, 4, 4, 3, 3]


def test_data_too_few_for_one_batch_are_refused() -> None:
    with pytest.raises(TrainerError, match="22 training samples do not fill one global batch of 32"):
        numbered("batch_size=32", "drop_remainder=true")


# ---- beginning at any step --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "settings"),
    [
        (1, ("shuffle=9", "augment=flip,brightness")),
        (2, ("shuffle=1000", "augment=heavy", "cache=memory", "drop_remainder=true")),
        (1, ("shuffle=1000", "parallel_calls=off", "prefetch=off", "cache=memory")),
    ],
)
def test_a_stream_begun_at_any_step_gives_what_the_whole_stream_gives_there(
    replicas: int, settings: tuple[str, ...]
) -> None:
    pipe = numbered("shape=[8, 8, 1]", *settings, replicas=replicas)
    steps = 2 * pipe.batches_per_pass + 2
    whole = [(x.numpy(), y.numpy()) for x, y in pipe.stream().take(steps * replicas)]
    a_pass = pipe.batches_per_pass
    for first in (1, a_pass - 1, a_pass, a_pass + 2) if replicas == 1 else (a_pass - 1, a_pass + 2):
        expected = whole[first * replicas :]
        found = pipe.stream(first).take(len(expected))
        for (x, y), (expected_x, expected_y) in zip(found, expected, strict=True):
            np.testing.assert_array_equal(y.numpy(), expected_y)
            np.testing.assert_array_equal(x.numpy(), expected_x)


# ---- cache ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "samples"), [(("shuffle=5",), 20), (("drop_remainder=true",), 22)])
def test_with_cache_memory_the_second_pass_loads_nothing(settings: tuple[str, ...], samples: int) -> None:
    loaded: list[int] = []
    pipe = watched(numbered("cache=memory", f"samples={samples}", *settings), loaded.append)
    labels(pipe.stream(), 3 * pipe.batches_per_pass)
    assert sorted(loaded) == list(range(samples))


def test_a_cache_on_disk_is_read_by_the_next_run(tmp_path: Path) -> None:
    loaded: list[int] = []
    settings = ("cache=" + str(tmp_path / "deep" / "cache"), "shuffle=5")
    pipe = watched(numbered(*settings), loaded.append)
    first = labels(pipe.stream(), 12)
    assert sorted(loaded) == list(range(22))
    again = watched(numbered(*settings), loaded.append)
    assert labels(again.stream(), 12) == first
    assert len(loaded) == 22


def test_a_cache_on_disk_is_not_read_for_other_data(tmp_path: Path) -> None:
    cache = f"cache={tmp_path}"
    labels(numbered(cache).stream(), 12)
    with all_hold() as cases:
        for other in ("samples=23", "shape=[2, 3, 1]", "seed=8", "data=digits"):
            with cases.case(other):
                cached, plain = numbered(cache, other), numbered(other)
                for ours, expected in zip(cached.stream().take(3), plain.stream().take(3), strict=True):
                    np.testing.assert_array_equal(ours[0].numpy(), expected[0].numpy())
                    np.testing.assert_array_equal(ours[1].numpy(), expected[1].numpy())


def test_a_cache_is_not_read_for_a_file_that_has_changed(tmp_path: Path) -> None:
    def first_input(value: float) -> float:
        np.savez(tmp_path / "a.npz", x=np.full((8, 3), value), y=np.arange(8) % 2)
        pipe = numbered(f"data=npz:{tmp_path / 'a.npz'}", f"cache={tmp_path / 'cache'}")
        return float(next(x for x, _ in pipe.stream().take(4))[0, 0])

    assert first_input(0.25) == 0.25
    assert first_input(0.5) == 0.5


def test_what_a_killed_run_left_in_the_cache_folder_does_no_harm(tmp_path: Path) -> None:
    pipe = numbered(f"cache={tmp_path}", "prefetch=off")
    iterator = iter(pipe.stream())
    next(iterator)  # a writer that never comes to its end
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert left
    del iterator
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    assert len(labels(numbered(f"cache={tmp_path}").stream(), 12)) == 12


def test_a_cache_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"input.cache: .*file/cache cannot be created: Not a directory"):
        numbered(f"cache={tmp_path}/file/cache").stream()


# ---- one batch --------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [("augment=heavy",), ("cache=memory",)], ids=" ".join)
def test_one_batch_comes_again_and_again_and_is_prepared_once(settings: tuple[str, ...]) -> None:
    loaded: list[int] = []
    pipe = watched(numbered("one_batch=true", "shuffle=5", "shape=[8, 8, 1]", "samples=200", *settings), loaded.append)
    iterator = iter(pipe.stream())
    x, y = next(iterator)
    for _ in range(2 * pipe.batches_per_pass):
        again, label = next(iterator)
        np.testing.assert_array_equal(again, x)
        np.testing.assert_array_equal(label, y)
    assert len(loaded) < 200, "less than a pass, although batches of two passes have come"
    plain = numbered("shuffle=5", "shape=[8, 8, 1]", "samples=200", *settings)
    np.testing.assert_array_equal(next(iter(plain.stream()))[0], x)


def test_one_batch_is_one_for_each_replica() -> None:
    first, second, *again = labels(numbered("one_batch=true", "shuffle=7", replicas=2).stream(), 6)
    assert first != second
    assert again == [first, second] * 2


# ---- prefetch and parallel calls ---------------------------------------------------------------


def loaded_ahead(pipe: Pipeline, batches: tf.data.Dataset | Any, loaded: list[int], took: int, least: int = 0) -> int:
    """Samples loaded beyond those taken, once so many are and no more come."""
    iterator = iter(batches)
    for _ in range(took):
        next(iterator)
    until(lambda: len(loaded) - took * pipe.global_batch_size >= least)
    return settled(loaded) - took * pipe.global_batch_size


# Of 20 batches AUTOTUNE would prepare a few, as nobody waits for them.
@pytest.mark.parametrize(("prefetch", "ahead"), [("off", 0), ("20", 80)])
def test_prefetch_prepares_just_so_many_batches_ahead(prefetch: str, ahead: int) -> None:
    loaded: list[int] = []
    alone = ("samples=2000", "shuffle=off", "parallel_calls=off")
    pipe = watched(numbered(f"prefetch={prefetch}", *alone), loaded.append)
    assert loaded_ahead(pipe, pipe.stream(), loaded, 3, ahead) == ahead


def stages(batches: tf.data.Dataset) -> set[str]:
    """The stages of the graph that really runs, after TensorFlow has rewritten it.

    They are read several times: between two passes those of a pass are not there.
    """
    iterator, found = iter(batches), set[str]()
    for _ in range(10):
        next(iterator)
        found |= {node.name for node in tf.data.experimental.get_model_proto(iterator).nodes.values()}
    return found


@pytest.mark.parametrize(("calls", "there"), [("off", False), ("2", True), ("auto", True)])
def test_the_graph_that_runs_has_parallel_maps_only_where_they_are_asked_for(calls: str, there: bool) -> None:
    found = stages(numbered("samples=2000", f"parallel_calls={calls}", "augment=light").stream())
    assert any("Parallel" in name for name in found) is there


@pytest.mark.parametrize(("calls", "batch", "there"), [("auto", 64, False), ("auto", 4000, True), ("2", 64, True)])
def test_only_large_batches_are_copied_together_unless_a_number_is_asked_for(
    calls: str, batch: int, there: bool
) -> None:
    wanted = options("data=digits", f"batch_size={batch}", f"parallel_calls={calls}")
    assert ("ParallelBatch" in stages(pipelines.build(wanted, 1).stream())) is there


def most_at_once(wanted: int, *settings: str) -> int:
    """How many samples are loaded at the same time at most, in ten batches or until as many are as are wanted."""
    now, most, lock, met = 0, 0, threading.Lock(), threading.Event()

    def load(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            if most >= wanted > 1:
                met.set()
        met.wait(0.005)
        with lock:
            now -= 1

    iterator = iter(watched(numbered("samples=2000", "shuffle=off", *settings), load).stream())
    deadline = time.monotonic() + 60
    batches = 0
    while batches < 10 or (most < wanted and time.monotonic() < deadline):
        next(iterator)
        batches += 1
    return most


def test_parallel_calls_load_that_many_samples_at_once() -> None:
    # Their own pool, so that a machine with few cores has threads enough.
    threads = ("private_threads=10", "prefetch=off")
    assert most_at_once(1, "parallel_calls=off", *threads) == 1
    assert most_at_once(8, "parallel_calls=8", *threads) == 8
    assert most_at_once(2, "parallel_calls=auto", *threads) >= 2


@pytest.mark.parametrize("keeps", ["true", "false"])
def test_deterministic_order_off_lets_ready_samples_overtake_a_slow_one(keeps: str) -> None:
    others, overtaken = threading.Semaphore(0), threading.Event()

    def slow_first(index: int) -> None:
        if index:
            others.release()
        elif keeps == "true":  # until others are ready
            assert all(others.acquire(timeout=60) for _ in range(8))
        else:
            assert overtaken.wait(60)

    settings = ("samples=2000", "classes=2000", "shuffle=off", "parallel_calls=12", "private_threads=16")
    iterator = iter(watched(numbered(*settings, f"deterministic_order={keeps}"), slow_first).stream())
    first = next(iterator)[1].numpy().tolist()
    overtaken.set()
    assert (first == [0, 1, 2, 3]) is (keeps == "true")


# ---- augmentation -----------------------------------------------------------------------------


def first_images(strength: str, seed: int = 7) -> np.ndarray:
    pipe = pipelines.build(options("shuffle=off", f"augment={strength}", f"seed={seed}", "validation_split=0"), 1)
    # Without a split the order of digits depends on the seed; sort, so that only augmentation differs.
    return np.concatenate([x.numpy() for x, _ in pipe.stream().take(4)])


def test_augmentation_changes_images_within_their_range_the_same_for_a_seed() -> None:
    plain, changed = first_images("off"), first_images("heavy")
    assert changed.shape == plain.shape
    assert np.mean(np.any(plain != changed, axis=(1, 2, 3))) > 0.5
    assert changed.min() >= 0
    assert changed.max() <= 1
    np.testing.assert_array_equal(changed, first_images("heavy"))


def test_each_augmentation_alone_makes_its_change_and_no_other() -> None:
    plain = first_images("off")
    flipped, moved, contrast, bright = (first_images(name) for name in ("flip", "shift", "contrast", "brightness"))
    mirrored = [bool(np.any(a != b)) for a, b in zip(plain, flipped, strict=True)]
    np.testing.assert_array_equal(flipped[mirrored], plain[mirrored][:, :, ::-1])
    assert 0.2 < np.mean(mirrored) < 0.8
    assert set(np.unique(moved)) <= set(np.unique(plain))
    assert np.any(moved != plain)
    inside = (bright > 0) & (bright < 1)  # the others are cut
    differences = np.where(inside, bright - plain, np.nan)
    assert np.nanmax(np.nanmax(differences, axis=(1, 2, 3)) - np.nanmin(differences, axis=(1, 2, 3))) < 1e-5
    assert np.nanstd(np.nanmean(differences, axis=(1, 2, 3))) > 0.05, "each image by an amount of its own"
    # Contrast keeps the mean of an image where nothing is cut, and stretches or shrinks its range.
    assert np.any(contrast.std(axis=(1, 2, 3)) > 1.02 * plain.std(axis=(1, 2, 3)))
    noisy, blurred = first_images("noise"), first_images("blur")
    assert np.std((noisy - plain)[(noisy > 0) & (noisy < 1)]) == pytest.approx(0.05, rel=0.1)
    assert np.abs(np.diff(blurred, axis=1)).mean() < 0.7 * np.abs(np.diff(plain, axis=1)).mean()


def test_validation_data_are_neither_augmented_nor_shuffled() -> None:
    held = ("validation_split=0.2", "shuffle=1000")
    plain = [x.numpy() for x, _ in numbered(*held).validation().take(1)]
    np.testing.assert_array_equal(plain, [x.numpy() for x, _ in numbered(*held, "augment=heavy").validation().take(1)])
    assert labels(numbered(*held).validation(), 1) == [[18, 19, 20, 21]]
