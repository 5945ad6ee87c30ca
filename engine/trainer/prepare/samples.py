"""The samples that are prepared, as elements that are cheap to skip and a function that loads one, and the request
for them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...files.writing import refusal
from ...options import Options, options_json
from ...prepare.manifest import INPUT, LABEL, TRAIN, VALIDATION, limited
from ...prepare.manifest import Broken as Broken
from ..common.training_errors import DataError, TrainerError
from ..data import sources
from ..data.pipeline import SOURCES
from ..data.sources import reason


@dataclass
class Samples:
    """All samples of the data."""

    counts: Mapping[str, int]  # by part
    elements: Callable[[str, int], Iterator[Any]]  # of a part, from a number on
    load: Callable[[str, Any], tuple[Any, ...]]  # makes a sample (tensors) of an element of a part
    name: Callable[[Any, str, int], str]  # of an element, by its part and number
    encode: Callable[[tuple[Any, ...]], bytes]  # a sample as it is stored
    decode: Callable[[Any], Any]  # the tensors of a stored one
    facts: Mapping[str, Any]  # about the stored samples, for the manifest
    dataset: Callable[[str], tf.data.Dataset] | None  # as tf.data loads a part in a training; None: Python loads it
    one_process: bool = False  # elements cannot be skipped without the work of making them
    error_of: Callable[[BaseException], TrainerError | None] = lambda _fault: None  # that of the user's code
    _at: tuple[str, int] = ("", 0)
    _iterator: Iterator[Any] = field(default_factory=lambda: iter(()))

    def loaded(self, part: str, first: int, count: int) -> Iterator[tuple[Any, ...] | Broken]:
        """Yield `count` samples of a part from `first` on, and Broken for each that cannot be read. Those that
        follow the last call are read on. Raises tf.errors.OpError if the elements cannot be read, and EndedEarly.
        """
        if self._at != (part, first):
            self._iterator = self.elements(part, first)
        self._at = ("", 0)  # unknown until all were yielded
        for number in range(first, first + count):
            try:
                element = next(self._iterator)
            except StopIteration:
                raise EndedEarly(part, number) from None
            yield self._sample(element, part, number)
        self._at = (part, first + count)

    def fresh(self, part: str) -> Iterator[tuple[Any, ...] | Broken]:
        for number, element in enumerate(self.elements(part, 0)):
            yield self._sample(element, part, number)

    def _sample(self, element: Any, part: str, number: int) -> tuple[Any, ...] | Broken:
        try:
            return self.load(part, element)
        except (tf.errors.ResourceExhaustedError, tf.errors.CancelledError):
            raise  # this machine is at fault, and not the sample
        except tf.errors.OpError as fault:
            if refusal(fault) is not None:
                raise
            return Broken(self.name(element, part, number), reason(fault))


class EndedEarly(Exception):
    """The data has fewer samples than it had when they were counted."""

    def __init__(self, part: str, number: int) -> None:
        super().__init__(f"the {part} data ended at sample {number}, earlier than when it was counted")


@dataclass(frozen=True)
class Request:
    """The preset's options, the folder to write to, and the settings of the command. None: not given."""

    options: Options
    folder: Path
    format: str
    dtype: str | None
    size: tuple[int, int] | None
    limit: int | None


def read(line: str) -> Request:
    given = json.loads(line)
    size = tuple(given["size"]) if given["size"] else None
    options = options_json.from_json(json.dumps(given["options"]))
    return Request(**given | {"options": options, "folder": Path(given["folder"]), "size": size})


BYTE_SCALE = 1 / 255  # that gputui applies to uint8 of records and arrays


def of_preset(request: Request) -> Samples:
    """Return the samples of the data that the options name, decoded, resized and in the type to be stored. The order
    is that of a training with the same seed, which gets the same batches. Raises DataError.
    """
    options = request.options
    kind, of = options.workload.source
    seed = options.train.seed
    assert seed is not None
    resized_while_read = kind == "images" or (kind == "tfrecord" and options.workload.tfrecord_encoding == "encoded")
    workload = dataclasses.replace(options.workload, model="mlp")
    if request.size is not None and resized_while_read:
        workload = dataclasses.replace(workload, shape=[*request.size, *workload.shape[2:]])
    # so that a source does not make floats of all samples at once
    in_bytes = dataclasses.replace(options.input, cast="device", augment="off")
    read = dataclasses.replace(options, input=in_bytes, workload=workload)
    # Images are listed without opening the first ones, as those may be broken.
    source = sources.images(read, seed, lambda _paths: None) if kind == "images" else SOURCES[kind](read, seed)
    if request.size is not None and len(source.shape) != 3:
        raise DataError(f"--size needs images; a sample of this data has the shape {list(source.shape)}")
    size = None if resized_while_read else request.size
    shape = (*(size or source.shape[:2]), *source.shape[2:]) if len(source.shape) > 2 else source.shape
    are_bytes = source.bytes and source.scale == BYTE_SCALE
    if request.dtype == "uint8" and not are_bytes:
        raise DataError("the inputs of this data are not bytes from 0 to 255", "use --dtype float32 or float16")
    stored = request.dtype or ("uint8" if are_bytes else "float32")
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

    def convert(element: Any) -> tuple[Any, Any]:
        given = element if isinstance(element, tuple) else (element,)
        x, label = source.load(*given) if source.load is not None else given
        if size is not None:
            resized = tf.image.resize(x, size)
            x = tf.cast(tf.round(resized), x.dtype) if x.dtype == tf.uint8 else resized
        if stored != "uint8":
            x = tf.cast(tf.cast(x, tf.float32) * source.scale, stored)
        return tf.reshape(x, shape), tf.cast(label, tf.int64)

    def name(element: Any, part: str, number: int) -> str:
        path = os.fsdecode(element[0].numpy()[0]) if kind == "images" else ""
        return os.path.relpath(path, of) if path else f"sample {number} of {part}"

    traced = tf.function(lambda element: convert(element))  # by a name, TensorFlow adds places to its errors
    return Samples(
        counts,
        lambda part, first: iter(parts[part].elements.skip(first)),
        lambda _part, element: traced(element),
        name,
        encode,
        lambda record: _decoded(record, stored, shape),
        facts,
        lambda part: parts[part].elements.map(lambda *element: traced(element), tf.data.AUTOTUNE),
    )


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
