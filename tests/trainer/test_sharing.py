"""Several machines share the data out: each sample is trained by one of them in a pass, whatever the data is."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import Run
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer.data import pipeline as pipelines
from gputui.engine.trainer.data.batches import Share
from gputui.engine.trainer.data.pipeline import Pipeline
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.own.returned import Returned
from gputui.engine.trainer.own.user_pipeline import OwnPipeline, opened

from tests.support.cases import all_hold
from tests.support.training import options

pytestmark = pytest.mark.usefixtures("cpus")

EACH = 4  # samples in a batch of one replica
# Each label is the number of its sample. The last batch of a pass has 7 samples, or 3.
NUMBERED = ("data=synthetic", "shape=[1]", "classes=55", f"batch_size={EACH}")
WORKERS = ((2, 1), (3, 1), (2, 2))  # and the replicas of each
# Samples, and settings.
SHARED: tuple[tuple[int, tuple[str, ...]], ...] = (
    (55, ("shuffle=10",)),
    (54, ("shuffle=off", "cache=memory")),
    (49, ("shuffle=1000", "drop_remainder=true")),
    (55, ("shuffle=10", "cache=memory", "parallel_calls=off")),
)


def in_order(batches: tf.data.Dataset, count: int) -> list[list[int]]:
    """The labels of the first batches."""
    return [batch[1].numpy().tolist() for batch in batches.take(count)]


def joined(parts: Sequence[Pipeline | OwnPipeline], batches: int, validation: bool = False) -> list[list[int]]:
    """The global batches that the workers make together, from what each of their replicas gets."""
    found = []
    for part in parts:
        stream = part.validation() if validation else part.stream()
        here = part.replicas_here
        flat = in_order(stream, batches * here)
        found.append([list(itertools.chain(*flat[first : first + here])) for first in range(0, len(flat), here)])
    return [list(itertools.chain(*rows)) for rows in zip(*found, strict=True)]


def sorted_in(batches: list[list[int]]) -> list[list[int]]:
    """Each batch with its samples in one order: which worker trains which of them makes no difference."""
    return [sorted(batch) for batch in batches]


def test_workers_train_together_what_one_machine_trains() -> None:
    with all_hold() as cases:
        for (workers, replicas), (samples, settings) in itertools.product(WORKERS, SHARED):
            with cases.case((workers, replicas, samples, *settings)):
                _train_the_same(workers, replicas, samples, *settings)


def _train_the_same(workers: int, replicas: int, samples: int, *settings: str) -> None:
    total = workers * replicas
    wanted = options(*NUMBERED, *settings, f"samples={samples}", "validation_split=0.2")
    one = pipelines.build(wanted, total)
    parts = [pipelines.build(wanted, total, Share(workers, index)) for index in range(workers)]
    batches = one.batches_per_pass
    beyond = 2 * batches + 1
    together = joined(parts, beyond)
    assert sorted_in(together) == sorted_in(in_order(one.global_batches(0), beyond))
    seen = sorted(itertools.chain(*together[:batches]))
    assert len(set(seen)) == len(seen), "none twice"
    if not wanted.input.drop_remainder:
        assert seen == list(range(one.train_samples))
    held_out = sorted(itertools.chain(*joined(parts, one.validation_batches, validation=True)))
    assert held_out == list(range(one.train_samples, samples))


def test_a_resumed_worker_goes_on_with_its_next_rows() -> None:
    parts = [pipelines.build(options(*NUMBERED, "samples=55", "validation_split=0"), 2, Share(2, i)) for i in (0, 1)]
    for part in parts:
        assert in_order(part.stream(9), 5) == in_order(part.stream(), 14)[9:]


def test_each_worker_changes_its_rows_in_its_own_way() -> None:
    """The same image is all that they load."""
    size = ("data=synthetic", "shape=[8, 8, 1]", "classes=3", "samples=48", "validation_split=0", "batch_size=4")

    def first(way: str, index: int) -> np.ndarray[Any, Any]:
        part = pipelines.build(options(*size, f"augment={way}"), 2, Share(2, index))
        load = part.source.load
        assert load is not None
        source = dataclasses.replace(part.source, load=lambda _: load(tf.constant(0, tf.int64)))
        ((x, _),) = dataclasses.replace(part, source=source).stream().take(1)
        return np.asarray(x)

    np.testing.assert_array_equal(first("off", 0), first("off", 1))
    np.testing.assert_array_equal(first("heavy", 1), first("heavy", 1))
    assert np.any(first("heavy", 0) != first("heavy", 1))


def test_a_worker_loads_only_its_own_samples() -> None:
    wanted = options(*NUMBERED, "samples=48", "validation_split=0", "prefetch=off", "parallel_calls=off")
    part = pipelines.build(wanted, 2, Share(2, 1))
    loads: list[int] = []
    load = part.source.load
    assert load is not None

    def noted(index: np.int64) -> np.int64:
        loads.append(int(index))
        return index

    def counting(index: Any) -> Any:
        number = tf.numpy_function(noted, [index], tf.int64)
        number.set_shape([])
        return load(number)

    object.__setattr__(part.source, "load", counting)
    trained = list(itertools.chain(*in_order(part.stream(), part.batches_per_pass)))
    assert len(trained) == 24
    assert loads[:24] == trained


class Numbered(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of 8 numbers."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> Any:
        numbers = np.arange(8 * at, min(8 * at + 8, 21))
        return numbers[:, None].astype("float32"), numbers


@pytest.mark.parametrize("kind", ["arrays", "single samples", "batches", "PyDataset"])
def test_data_of_a_users_code_is_shared_out_as_well(kind: str, tmp_path: Path) -> None:
    numbers = np.arange(21)
    x = numbers[:, None].astype("float32")
    single = tf.data.Dataset.from_tensor_slices((x, numbers))
    kinds = {"arrays": (x, numbers), "single samples": single, "batches": single.batch(8), "PyDataset": Numbered(1)}
    data: Any = kinds[kind]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    returned = Returned(model, data, validation=data, mapped=kind == "single samples")
    wanted = options("batch_size=4", "validation_split=0", "shuffle=10", "augment=off")
    (tmp_path / "train.py").touch()
    with contextlib.closing(EventWriter(tmp_path / "events.jsonl", "run")) as writer:
        report = RunReport(Run(tmp_path), writer)
        parts = [opened(wanted, 2, returned, tmp_path / "train.py", report, Share(2, index)) for index in (0, 1)]
        for validation in (False, True):
            batches = joined(parts, 3, validation)
            assert [len(batch) for batch in batches] in ([8, 8, 5], [8, 5, 8], [5, 8, 8])
            assert sorted(itertools.chain(*batches)) == list(range(21))
        assert all("by element" in part.sharing for part in parts)
