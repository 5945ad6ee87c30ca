"""What exported scripts have of their own: callbacks for Keras' fit, equal parts of batches, how data is opened."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gputui.engine.trainer import exported

X, Y = np.arange(24, dtype="float32").reshape(6, 4), np.arange(6)


# ---- callbacks ---------------------------------------------------------------------------------


# ---- several replicas --------------------------------------------------------------------------


# ---- models ------------------------------------------------------------------------------------


class WithoutCall(keras.Model):  # type: ignore[misc]
    """Gets its variables in its first step."""


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
