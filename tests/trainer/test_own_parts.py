"""Parts of what a user's code returns: arguments of fit, types of batches, roles, callbacks, and lengths."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import (
    UserError,
    building,
    model_checks,
    pipeline,
)
from tests.doors.trainer import returned as fit_arguments
from tests.support.training import options


def refused(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(UserError) as raised:
        call()
    return raised.value.message, raised.value.hint


# ---- arguments of fit --------------------------------------------------------------------------


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
