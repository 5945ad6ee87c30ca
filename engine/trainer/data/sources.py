"""The data of a training as samples: gputui's own, arrays, images in class folders, TFRecords.

Faults are reported at once, with the name of the file. A source has small elements, and says how to load one.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...files.places import IMAGE_SUFFIXES, KERAS_FILES, keras_folder
from ...files.writing import without_nodes
from ...options import Options
from ...options.workload import BYTE_ENCODINGS
from ...plan import SAMPLES, trained_samples
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
    """A data set split in two, for training and validation."""

    train: Part
    validation: Part
    shape: tuple[int, ...]
    classes: int
    load: Callable[..., Batch] | None = None  # makes (input, label) of an element if that takes time
    vary: Callable[..., Any] | None = None  # changes a loaded training sample at random, differently in each pass
    scale: float = 1.0  # of inputs when a batch becomes float32
    stamp: str = ""  # changes when the files behind the data change
    find_fault: Callable[[], None] = lambda: None  # after an error, raises DataError for the sample at fault
    bytes: bool = False  # the inputs are uint8 before they become floats
    test: Part | None = None  # evaluated at the end, if it is not the validation


def split_order(samples: int, validation_split: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indexes of the training and of the validation samples, in an order drawn by the seed."""
    order = np.random.default_rng(seed).permutation(samples)
    trained = trained_samples(samples, validation_split)
    return order[:trained], order[trained:]


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    validation_split: float,
    seed: int,
    scale: float,
    classes: int,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    keeps_bytes: bool = False,
    validates_test: bool = True,
) -> Source:
    """Return the source of arrays in memory, in an order drawn by `seed`. x: (n, ...), y: (n,) integer labels. The
    last samples are for validation, or `test` if it is given and `validates_test`. `keeps_bytes`: uint8 is not
    converted to floats.
    """
    validation = test if validates_test else None
    trained, held_out = split_order(len(x), 0.0 if validation else validation_split, seed)
    arrays = [(x[trained], y[trained]), validation or (x[held_out], y[held_out])]
    arrays += [test] if test and not validation else []
    is_bytes = x.dtype == np.uint8
    fit = 4 * sum(part.size for part, _ in arrays) <= MAX_FLOAT_BYTES
    if fit and x.dtype.kind in "fiu" and not (is_bytes and keeps_bytes):
        # Done once if the memory allows it, instead of for each batch.
        arrays, scale = [(part.astype("float32") * np.float32(scale), labels) for part, labels in arrays], 1.0
    train, held_back, *at_end = (_part(*part) for part in arrays)
    shape = tuple(train.elements.element_spec[0].shape)
    return Source(train, held_back, shape, classes, scale=scale, bytes=is_bytes, test=at_end[0] if at_end else None)


def _part(x: np.ndarray, y: np.ndarray) -> Part:
    if x.ndim == 3:
        x = x[..., np.newaxis]
    with tf.device("/CPU:0"):
        return Part(tf.data.Dataset.from_tensor_slices((x, y.reshape(-1).astype("int32"))), len(x))


def check_arrays(x: np.ndarray, y: np.ndarray, name: str) -> int:
    """Return the number of classes, at least 2. Raises DataError for inputs or labels that cannot be trained on."""
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
    """1,797 8x8 images in 10 classes, which gputui contains. DIGITS.md says where they come from."""
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        x, y = file["x"], file["y"]
    return from_arrays(x, y, options.train.validation_split, seed, 1 / 16, 10, keeps_bytes=options.bytes_to_device)


def keras_dataset(options: Options, seed: int) -> Source:
    """mnist, fashion_mnist or cifar10, downloaded once by Keras. DataError if that fails."""
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
    held_out = test if options.train.reads_test else None
    split, keeps_bytes = options.train.validation_split, options.bytes_to_device
    validates = options.train.validation == "test"
    return from_arrays(x, y, split, seed, 1 / 255, classes, held_out, keeps_bytes, validates)


def synthetic(options: Options, seed: int) -> Source:
    """Return the source of samples that are generated from their index and `seed` when needed."""
    workload = options.workload
    samples = workload.samples or SAMPLES["synthetic"]
    train = trained_samples(samples, options.train.validation_split)
    shape, classes = tuple(workload.shape), workload.classes

    return Source(
        Part(tf.data.Dataset.range(train), train),
        Part(tf.data.Dataset.range(train, samples), samples - train),
        shape,
        classes,
        load=lambda index: synthetic_sample(index, shape, classes, seed),
    )


def synthetic_sample(index: Any, shape: tuple[int, ...], classes: int, seed: int) -> Batch:
    """Return the sample with this index, an input of this shape and its class: a pattern for the class plus noise,
    drawn by `seed`, float32 from 0 to 1.
    """
    label = tf.cast(index % classes, tf.int32)
    # Two seeds of two numbers each: one stream for the patterns, one for the noise.
    pattern = tf.random.stateless_uniform(shape, (seed, tf.cast(label, tf.int64)))
    noise = tf.random.stateless_uniform(shape, (seed + 1, index))
    return (pattern + noise) / 2, label


_NO_NPZ = (ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error)
MAX_READS = 16  # the number of files that `auto` reads in parallel


def npz(options: Options, seed: int) -> Source:
    """Return the data of a .npz file with arrays x (samples first) and y (class numbers), or x_train and y_train, of
    which x_test and y_test are the validation if train.validation is `test`. Raises DataError.
    """
    path, test = options.workload.source[1], None
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            x, y = _named(path, file, "x", "x_train"), _named(path, file, "y", "y_train")
            if options.train.reads_test:
                test = _named(path, file, "x_test"), _named(path, file, "y_test")
    except OSError as fault:
        raise DataError(f"{path} cannot be read: {fault.strerror or fault}") from None
    except _NO_NPZ as fault:
        raise DataError(f"{path} is not a .npz file of plain arrays ({type(fault).__name__})") from None
    name = os.path.basename(path)
    classes = check_arrays(x, y, name)
    if test:
        classes = max(classes, check_arrays(*test, f"{name} (test)"))
        if test[0].shape[1:] != x.shape[1:] or test[0].dtype != x.dtype:
            of_test = f"{name}: x_test is {test[0].dtype} of shape {test[0].shape}"
            what = f"{of_test}, the training part {x.dtype} of {x.shape}"
            raise DataError(what, "samples of both parts need the same shape and type")
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    split, keeps_bytes = options.train.validation_split, options.bytes_to_device
    validates = options.train.validation == "test"
    source = from_arrays(x, y, split, seed, scale, classes, test, keeps_bytes, validates)
    return dataclasses.replace(source, stamp=_stamp([path]))


def _stamp(paths: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        state = os.stat(path)
        digest.update(f"{path}:{state.st_size}:{state.st_mtime_ns};".encode())
    return digest.hexdigest()


def _named(path: str, file: Any, *names: str) -> np.ndarray:
    for name in names:
        if name in file:
            return np.asarray(file[name])
    either = " or ".join(map(repr, names))
    raise DataError(f"{os.path.basename(path)} has no array {either} (it has: {', '.join(file) or 'none'})")


def images(options: Options, seed: int, look: Callable[[Sequence[str]], None] | None = None) -> Source:
    """A folder with one folder of images for each class, resized to workload.shape. Raises DataError, also of `look`,
    which gets the first image of each class before the next class is listed; by default it must be readable.
    """
    root, look = Path(options.workload.source[1]), look or _readable
    if not root.is_dir():
        raise DataError(f"{root} is not a folder")
    names = class_names(root)
    if len(names) < 2:
        raise DataError(f"{root} has {counted(len(names), 'class folders')}; at least 2 are needed, one for each class")
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        images_of_class = class_images(root / name)
        if not images_of_class:
            raise DataError(f"{root / name} contains no images ({', '.join(IMAGE_SUFFIXES)})", "fill or remove it")
        look(images_of_class[:1])
        paths += images_of_class
        labels += [label] * len(images_of_class)
    shape = _image_shape(options)
    source = from_arrays(
        np.array(paths).reshape(-1, 1), np.array(labels), options.train.validation_split, seed, 1 / 255, len(names)
    )
    return dataclasses.replace(
        source,
        shape=shape,
        load=lambda path, label: (image_sample(tf.io.read_file(path[0]), shape), label),
        stamp=_stamp(paths),
        find_fault=lambda: _readable(paths),
        bytes=True,
    )


def class_names(root: Path) -> list[str]:
    """Return the sorted names of the folders in a folder of images, one for each class."""
    return sorted(folder.name for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def class_images(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def image_sample(encoded: Any, shape: tuple[int, ...]) -> Any:
    """Return an encoded image as uint8, resized to `shape` (height, width, channels)."""
    image = tf.io.decode_image(encoded, channels=shape[2], expand_animations=False)
    return tf.cast(tf.round(tf.image.resize(image, shape[:2])), tf.uint8)


def _readable(paths: Iterable[str]) -> None:
    for path in paths:
        try:
            tf.io.decode_image(tf.io.read_file(path), expand_animations=False)
        except tf.errors.OpError as fault:
            hint = "repair or remove it; gputui prepare leaves such files out"
            raise DataError(f"{path} cannot be read as an image: {reason(fault)}", hint) from None


def _image_shape(options: Options) -> tuple[int, int, int]:
    shape = options.workload.shape
    if len(shape) != 3 or shape[2] not in (1, 3):
        raise DataError(f"workload.shape is {shape}; images need [height, width, 1 or 3]")
    return shape[0], shape[1], shape[2]


def tfrecord(options: Options, _seed: int) -> Source:
    """tf.train.Example records; the first are for validation. Raises DataError."""
    workload = options.workload
    pattern = workload.source[1]
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise DataError(f"no file matches {pattern}")
    if workload.tfrecord_encoding == "encoded":
        _image_shape(options)
    records = record_stream(paths, options)
    try:
        if (record := next(iter(records), None)) is None:
            raise DataError(f"{paths[0]} contains no records")
        record_sample(record, options)
    except tf.errors.OpError as fault:
        of_record = "the first record does not match workload.shape, tfrecord_* and classes"
        hint = "check the feature names, the encoding and the shape"
        raise DataError(f"{paths[0]}: {of_record}: {reason(fault)}", hint) from None
    samples = workload.samples or _count(records, options)
    kept = trained_samples(samples, options.train.validation_split)
    validation = samples - kept
    shape = tuple(workload.shape)
    encoding = workload.tfrecord_encoding
    return Source(
        # Raises an error at the end of the first pass if workload.samples is more than there are.
        Part(records.skip(validation).take(kept).apply(tf.data.experimental.assert_cardinality(kept)), kept),
        Part(records.take(validation), validation),
        shape,
        workload.classes,
        load=lambda record: record_sample(record, options),
        scale=1 / 255 if encoding in BYTE_ENCODINGS else 1.0,
        stamp=_stamp(paths),
        bytes=encoding in BYTE_ENCODINGS,
    )


def record_stream(paths: list[str], options: Options) -> tf.data.Dataset:
    """Return the records of the files, one file after the other, or one record of each of several files in turn. The
    order is always the same: the first records are for validation, and no record may be in both parts.
    """
    given = options.input
    if given.parallel_reads == "off" or len(paths) < 2:
        return tf.data.TFRecordDataset(paths)
    files = min(len(paths), MAX_READS if given.parallel_reads == "auto" else given.parallel_reads)
    names = tf.data.Dataset.from_tensor_slices(paths)
    return names.interleave(tf.data.TFRecordDataset, cycle_length=files, num_parallel_calls=files, deterministic=True)


def record_sample(record: Any, options: Options) -> Batch:
    """An Example (`record`) as (input of workload.shape, label as int32); a label outside classes is an error."""
    workload = options.workload
    shape: tuple[int, ...] = tuple(workload.shape)
    stored = tf.io.FixedLenFeature([], tf.string)
    if workload.tfrecord_encoding == "float_list":
        stored = tf.io.FixedLenFeature([math.prod(shape)], tf.float32)
    elif workload.tfrecord_encoding == "int64_list":
        stored = tf.io.FixedLenFeature([math.prod(shape)], tf.int64)
    features = {
        workload.tfrecord_input: stored,
        workload.tfrecord_label: tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    value, label = example[workload.tfrecord_input], example[workload.tfrecord_label]
    if workload.tfrecord_encoding == "encoded":
        value = image_sample(value, shape)
    elif workload.tfrecord_encoding in ("uint8", "float16", "float32"):
        value = tf.io.decode_raw(value, workload.tfrecord_encoding)
    classes, outside = tf.constant(workload.classes, tf.int64), "label outside workload.classes"
    within = [
        tf.debugging.assert_less(label, classes, message=outside),
        tf.debugging.assert_non_negative(label, message=outside),
    ]
    with tf.control_dependencies(within):
        return tf.reshape(value, shape), tf.cast(label, tf.int32)


def _count(records: tf.data.Dataset, options: Options) -> int:
    """Return the number of records, all of which are read once. Raises DataError for a label that is not a class."""
    name, classes = options.workload.tfrecord_label, options.workload.classes

    def tally(seen: Any, batch: Any) -> Any:
        count, lowest, highest = seen
        labels = tf.io.parse_example(batch, {name: tf.io.FixedLenFeature([], tf.int64)})[name]
        lowest, highest = tf.minimum(lowest, tf.reduce_min(labels)), tf.maximum(highest, tf.reduce_max(labels))
        return count + tf.size(labels, tf.int64), lowest, highest

    try:
        count, *labels = records.batch(1024).reduce((np.int64(0),) * 3, tally)
    except tf.errors.OpError as fault:
        raise DataError(f"the TFRecord files cannot be read to their end: {reason(fault)}") from None
    for label in labels:
        if not 0 <= int(label) < classes:
            raise DataError(f"the TFRecord files contain the label {int(label)}, but workload.classes is {classes}")
    return int(count)


def reason(fault: tf.errors.OpError) -> str:
    """Return TensorFlow's message in at most 160 characters, without the names of its operations."""
    return " ".join(without_nodes(fault.message).split())[:160]
