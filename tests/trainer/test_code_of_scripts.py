"""What exported scripts have of their own: callbacks for Keras' fit, equal parts of batches, how data is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.doors.trainer import exported

X, Y = np.arange(24, dtype="float32").reshape(6, 4), np.arange(6)


# ---- data --------------------------------------------------------------------------------------


def values(data: tf.data.Dataset) -> list[Any]:
    """The labels of each batch."""
    return [y.tolist() for _, y in data.as_numpy_iterator()]


def test_as_many_elements_of_a_generator_are_kept_as_an_evaluation_needs() -> None:
    again = exported.first_again(iter(range(9)), 3)
    assert next(again()) == 0
    assert [list(again()), list(again())] == [[0, 1, 2]] * 2, "also if its end was not read"


def test_arrays_are_samples_that_can_be_gathered_by_index_unless_they_are_ragged() -> None:
    load, vary = object(), object()
    made: Any = exported.samples_of([X.astype("float64"), Y, None], load, vary)  # type: ignore[arg-type]
    assert (made.samples, made.load, made.vary, made.whole) == (6, load, vary, True)
    assert [(part.dtype, part.shape.as_list()) for part in made.arrays] == [(tf.float32, [6, 4]), (tf.int64, [6])]
    assert values(made.dataset) == list(range(6))
    ragged: Any = exported.samples_of(tf.ragged.constant([[1], [2, 3]]), None, None)
    assert (ragged.samples, ragged.arrays, ragged.whole) == (2, None, True)
