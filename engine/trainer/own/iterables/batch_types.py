"""The batches of a user's iterator as TensorFlow takes them, and the type that several batches have in common.

Exported scripts contain these functions as text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

LOOKED_AT = 2  # the number of batches whose shapes show which axes differ, as in Keras
TENSORS = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


def as_batch(value: Any) -> Any:
    """Return a batch as nested tuples and dicts of arrays. Lists become tuples, None at the end is left out, and
    tensors of other libraries become arrays.
    """
    if isinstance(value, dict):
        return {key: as_batch(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        items = tuple(as_batch(item) for item in value)
        while items and items[-1] is None:
            items = items[:-1]
        return items
    if value is None or isinstance(value, (np.ndarray, *TENSORS)):
        return value
    if hasattr(value, "tocoo"):  # a sparse matrix of SciPy
        matrix = value.tocoo()
        indices = np.stack([matrix.row, matrix.col], axis=1).astype("int64")
        return tf.sparse.reorder(tf.SparseTensor(indices, matrix.data, matrix.shape))
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def type_of(leaves: tuple[Any, ...], batched: bool) -> Any:
    """Return the common type of these tensors or arrays, in which axes of different sizes may have any size.

    If they are `batched`, the first axis may have any size, too. Raises TypeError for arrays of objects.
    """
    first = leaves[0]
    sizes = [axis[0] if len(set(axis)) == 1 else None for axis in zip(*(leaf.shape for leaf in leaves), strict=True)]
    shape = [None, *sizes[1:]] if batched else sizes
    if isinstance(first, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, first.dtype, first.ragged_rank, first.row_splits.dtype)
    if isinstance(first, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, first.dtype)
    return tf.TensorSpec(shape, dtype_of(first))


def dtype_of(array: Any) -> tf.DType:
    return tf.string if getattr(array.dtype, "kind", "") in ("U", "S") else tf.as_dtype(array.dtype)


def copied(leaf: Any) -> Any:
    """Return a copy of an array. Over several replicas TensorFlow may write into arrays that it is given."""
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
