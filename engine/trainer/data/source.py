"""The interface of every kind of data to the pipeline: small elements, how to load one, and how to prepare a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...files.places import KERAS_FILES, keras_folder
from ...options import Options
from ...plan import SAMPLES, split_counts
from ...units import counted
from ..common.training_errors import DataError

MAX_FLOAT_BYTES = 2**30
MAX_CLASSES = 1_000_000
Batch = tuple[Any, Any]  # inputs and labels, as tensors


@dataclass(frozen=True)
class Part:
    """Training or validation data: `elements` are cheap to shuffle, `samples` is their number."""

    elements: tf.data.Dataset
    samples: int


@dataclass(frozen=True)
class Source:
    """A data set split in two, for training and validation.

    `load` turns one element into (input, label) if that takes time (decoding, generating). `vary` changes one loaded
    training sample at random, differently in each pass. `scale` is the factor for inputs when a batch becomes float32.
    `stamp` changes when the files behind the data change. `find_fault` is called after a TensorFlow error in the data,
    and raises DataError if it finds the sample at fault. `bytes`: the inputs are uint8 before they become floats.
    """

    train: Part
    validation: Part
    shape: tuple[int, ...]
    classes: int
    load: Callable[..., Batch] | None = None
    vary: Callable[..., Any] | None = None
    scale: float = 1.0
    stamp: str = ""
    find_fault: Callable[[], None] = lambda: None
    bytes: bool = False


def split_order(samples: int, validation_split: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indexes of the training samples and of the validation samples, in an order drawn by the seed.

    `validation_split` is the share for validation, from 0 to 1.
    """
    order = np.random.default_rng(seed).permutation(samples)
    kept, _ = split_counts(samples, validation_split)
    return order[:kept], order[kept:]


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    validation_split: float,
    seed: int,
    scale: float,
    classes: int,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    keeps_bytes: bool = False,
) -> Source:
    """Return the source of arrays in memory, in an order drawn by `seed`. x: (n, ...), y: (n,) integer labels.

    The last samples are for validation (the share `validation_split`, 0 to 1), or `test` if it is given. `scale` is the
    factor of the inputs, and `classes` the number of classes. `keeps_bytes`: uint8 is not converted to floats.
    """
    trained, held_out = split_order(len(x), 0.0 if test else validation_split, seed)
    arrays = [(x[trained], y[trained]), test or (x[held_out], y[held_out])]
    is_bytes = x.dtype == np.uint8
    fit = 4 * sum(part.size for part, _ in arrays) <= MAX_FLOAT_BYTES
    if fit and x.dtype.kind in "fiu" and not (is_bytes and keeps_bytes):
        # Done once if the memory allows it, instead of for each batch.
        arrays, scale = [(part.astype("float32") * np.float32(scale), labels) for part, labels in arrays], 1.0
    train, validation = (_part(*part) for part in arrays)
    return Source(train, validation, tuple(train.elements.element_spec[0].shape), classes, scale=scale, bytes=is_bytes)


def _part(x: np.ndarray, y: np.ndarray) -> Part:
    if x.ndim == 3:
        x = x[..., np.newaxis]
    with tf.device("/CPU:0"):
        return Part(tf.data.Dataset.from_tensor_slices((x, y.reshape(-1).astype("int32"))), len(x))


def check_test_part(x: np.ndarray, test: tuple[np.ndarray, np.ndarray], classes: int, name: str) -> int:
    """Return the number of classes of both parts. Raises DataError if the test part does not match the training part.

    `classes` is the number of classes of the training part, and `name` the name of the data in messages.
    """
    x_test, y_test = test
    classes_of_test = check_arrays(x_test, y_test, f"{name} (test)")
    if x_test.shape[1:] != x.shape[1:] or x_test.dtype != x.dtype:
        raise DataError(
            f"{name}: x_test is {x_test.dtype} of shape {x_test.shape}, the training part {x.dtype} of {x.shape}",
            "samples of both parts need the same shape and type",
        )
    return max(classes, classes_of_test)


def check_arrays(x: np.ndarray, y: np.ndarray, name: str) -> int:
    """Return the number of classes, at least 2. Raises DataError for inputs or labels that cannot be trained on.

    `name` is the name of the data in messages.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if x.ndim < 2 or x.size == 0:
        raise DataError(
            f"{name}: x has shape {x.shape}; the first axis must be the samples, the others the shape of a sample"
        )
    if y.ndim != 1 or len(y) != len(x):
        has = counted(len(x), "samples")
        raise DataError(f"{name}: x has {has}, but y has shape {y.shape}; each sample needs one label")
    if x.dtype.kind not in "fiu":
        raise DataError(f"{name}: x contains {x.dtype}, but must contain numbers")
    if y.dtype.kind not in "iu":
        raise DataError(f"{name}: y contains {y.dtype}, but must contain whole class numbers from 0")
    for label in (int(y.min()), int(y.max())):
        if not 0 <= label < MAX_CLASSES:
            raise DataError(
                f"{name}: y has the label {label}; classes are numbered from 0 to at most {MAX_CLASSES - 1}"
            )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = int(np.argwhere(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0][0])
        raise DataError(f"{name}: sample {bad} of x is not finite (NaN or infinity)", "repair or remove such samples")
    return max(2, int(y.max()) + 1)


# ---- data sets by name ----------------------------------------------------------------------------


def digits(options: Options, seed: int) -> Source:
    """Return the source of 1,797 8x8 images in 10 classes, which gputui contains, in an order drawn by `seed`.
    DIGITS.md says where they come from.
    """
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        x, y = file["x"], file["y"]
    return from_arrays(x, y, options.train.validation_split, seed, 1 / 16, 10, keeps_bytes=options.bytes_to_device)


def keras_dataset(options: Options, seed: int) -> Source:
    """Return the source of mnist, fashion_mnist or cifar10, downloaded once by Keras, in an order drawn by `seed`.

    Raises DataError if the download fails.
    """
    name = options.workload.data
    try:
        (x, y), test = getattr(keras.datasets, name).load_data()
    except Exception as fault:  # noqa: BLE001 - Keras raises a bare Exception when the download fails
        raise DataError(
            f"{name} is not on this machine and cannot be downloaded ({type(fault).__name__})",
            f"put {KERAS_FILES[name][0]} into {keras_folder()}, or use workload.data=digits",
        ) from None
    y = y.reshape(-1)
    classes = check_arrays(x, y, name)
    held_out = test if options.train.validation == "test" else None
    split, keeps_bytes = options.train.validation_split, options.bytes_to_device
    return from_arrays(x, y, split, seed, 1 / 255, classes, held_out, keeps_bytes)


def synthetic(options: Options, seed: int) -> Source:
    """Return the source of samples that are generated from their index and `seed` when needed.

    A sample is a pattern for each class plus noise, so that a model can learn them.
    """
    workload = options.workload
    samples = workload.samples or SAMPLES["synthetic"]
    train, validation = split_counts(samples, options.train.validation_split)
    shape, classes = tuple(workload.shape), workload.classes

    return Source(
        Part(tf.data.Dataset.range(train), train),
        Part(tf.data.Dataset.range(train, samples), validation),
        shape,
        classes,
        load=lambda index: synthetic_sample(index, shape, classes, seed),
    )


def synthetic_sample(index: Any, shape: tuple[int, ...], classes: int, seed: int) -> Batch:
    """Return the sample with this index, an input of this shape and its class: a pattern for the class plus noise,
    drawn by `seed`.

    The inputs are float32 from 0 to 1, and the class is below `classes`.
    """
    label = tf.cast(index % classes, tf.int32)
    # Two seeds of two numbers each: one stream for the patterns, one for the noise.
    pattern = tf.random.stateless_uniform(shape, (seed, tf.cast(label, tf.int64)))
    noise = tf.random.stateless_uniform(shape, (seed + 1, index))
    return (pattern + noise) / 2, label
