"""Converts arrays that a user's code nests (lists, tuples, dicts) to the forms that TensorFlow and Keras take."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def as_array(value: Any) -> np.ndarray:
    """NumPy's view of an array of any library."""
    return value.numpy() if isinstance(value, tf.Tensor) else np.asarray(value)


def as_tuples(nest: Any) -> Any:
    """Lists as tuples, as Keras takes them, without trailing None."""
    if isinstance(nest, dict):
        return {key: as_tuples(item) for key, item in nest.items()}
    if isinstance(nest, list | tuple) and not hasattr(nest, "_fields"):
        items = tuple(as_tuples(item) for item in nest)
        while items and items[-1] is None:
            items = items[:-1]
        return items
    if isinstance(nest, np.ndarray) and nest.dtype == np.float64:
        return nest.astype("float32")  # what Keras does with arrays
    return nest


def as_fitted(data: Any) -> Any:
    """Arrays as a step of `fit(x)`, `fit(x, y)` or `fit(x, y, sample_weight)` gets them: x alone is not in a tuple."""
    nest = as_tuples(data)
    alone = isinstance(nest, tuple) and len(nest) == 1 and not isinstance(nest[0], tuple)
    return nest[0] if alone else nest


def as_tensors(nest: Any) -> Any:
    """Tensors in host memory, where the pipeline reads them; the originals may lie on a GPU."""
    kept = (tf.RaggedTensor, tf.SparseTensor)
    with tf.device("/CPU:0"):
        return tf.nest.map_structure(lambda leaf: leaf if isinstance(leaf, kept) else tf.identity(leaf), nest)
