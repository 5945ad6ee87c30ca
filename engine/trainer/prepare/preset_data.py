"""The samples of gputui's own data (workload.data), as a training with the same options reads them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from ...options import Options
from ...prepare.manifest import INPUT, LABEL, TRAIN, VALIDATION, limited
from ..common.training_errors import DataError
from ..data import sources
from ..data.pipeline import SOURCES
from ..data.sources import Source
from .samples import Request, Samples

BYTE_SCALE = 1 / 255  # that gputui applies to uint8 of records and arrays


def of_preset(request: Request) -> Samples:
    """Return the samples of the data that the options name, decoded, resized and in the type to be stored. The order
    is that of a training with the same seed, which gets the same batches. Raises DataError.
    """
    options = request.options
    kind = options.workload.source[0]
    seed = options.train.seed
    assert seed is not None
    resized_while_read = kind == "images" or (kind == "tfrecord" and options.workload.tfrecord_encoding == "encoded")
    if request.size is not None and resized_while_read:
        resized = [*request.size, *options.workload.shape[2:]]
        options = dataclasses.replace(options, workload=dataclasses.replace(options.workload, shape=resized))
    source = _source(_keeping_bytes(options), seed)
    if request.size is not None and len(source.shape) != 3:
        raise DataError(f"--size needs images; a sample of this data has the shape {list(source.shape)}")
    size = None if resized_while_read else request.size
    shape = (*(size or source.shape[:2]), *source.shape[2:]) if len(source.shape) > 2 else source.shape
    stored = _stored(request.dtype, source)
    counts = limited({VALIDATION: source.validation.samples, TRAIN: source.train.samples}, request.limit)
    parts = {VALIDATION: source.validation, TRAIN: source.train}
    facts = {
        **counts,
        "stamp": source.stamp,
        "shape": list(shape),
        "dtype": stored,
        "classes": source.classes,
        "test": options.train.validation == "test",
    }
    convert = tf.function(lambda element: _converted(source, element, shape, size, stored))
    return Samples(
        counts,
        lambda part, first: iter(parts[part].elements.skip(first)),
        lambda _part, element: convert(element),
        lambda element, part, number: _name(kind, options, element, part, number),
        encode,
        lambda record: _decoded(record, stored, shape),
        facts,
        lambda part: parts[part].elements.map(lambda *element: convert(element), tf.data.AUTOTUNE),
    )


def _source(options: Options, seed: int) -> Source:
    # Images are listed without opening the first ones, as those may be broken.
    kind = options.workload.source[0]
    if kind == "images":
        return sources.listed_images(options, seed, lambda _paths: None)
    return SOURCES[kind](options, seed)


def _keeping_bytes(options: Options) -> Options:
    # a source would make floats of all samples at once
    return dataclasses.replace(
        options,
        input=dataclasses.replace(options.input, cast="device", augment="off"),
        workload=dataclasses.replace(options.workload, model="mlp"),
    )


def _stored(asked: str | None, source: Source) -> str:
    are_bytes = source.bytes and source.scale == BYTE_SCALE
    if asked == "uint8" and not are_bytes:
        raise DataError("the inputs of this data are not bytes from 0 to 255", "use --dtype float32 or float16")
    return asked or ("uint8" if are_bytes else "float32")


def _converted(
    source: Source, element: Any, shape: tuple[int, ...], size: tuple[int, int] | None, stored: str
) -> tuple[Any, Any]:
    """Return one element as (input, label): decoded, resized to `size` if it is given, in the type `stored`."""
    given = element if isinstance(element, tuple) else (element,)
    x, label = source.load(*given) if source.load is not None else given
    if size is not None:
        resized = tf.image.resize(x, size)
        x = tf.cast(tf.round(resized), x.dtype) if x.dtype == tf.uint8 else resized
    if stored != "uint8":
        x = tf.cast(tf.cast(x, tf.float32) * source.scale, stored)
    return tf.reshape(x, shape), tf.cast(label, tf.int64)


def _name(kind: str, options: Options, element: Any, part: str, number: int) -> str:
    if kind == "images":
        return os.path.relpath(os.fsdecode(element[0].numpy()[0]), options.workload.source[1])
    return f"sample {number} of {part}"


def encode(sample: tuple[Any, ...]) -> bytes:
    x, label = sample
    feature = {
        INPUT: tf.train.Feature(bytes_list=tf.train.BytesList(value=[x.numpy().tobytes()])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString(deterministic=True))


def _decoded(record: Any, stored: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    features = {
        INPUT: tf.io.FixedLenFeature([], tf.string),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return tf.reshape(tf.io.decode_raw(example[INPUT], stored), shape), example[LABEL]


def as_row(sample: tuple[Any, ...]) -> tuple[bytes, int]:
    """Return a sample as the bytes of its input and its label, for an array file."""
    x, label = sample
    return np.asarray(x).tobytes(), int(label)
