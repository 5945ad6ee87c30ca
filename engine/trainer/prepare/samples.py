"""The samples that are prepared, as elements that are cheap to skip and a function that loads one, and the request
for them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...files.writing import refusal
from ...options import Options, options_json
from ...prepare.manifest import INPUT, LABEL, PARTS, TRAIN, VALIDATION, limited
from ...prepare.manifest import Broken as Broken
from ..common.training_errors import DataError, TrainerError
from ..data import sources
from ..data.pipeline import SOURCES
from ..data.sources import reason
from ..own import returned
from ..own.building import context_of
from ..own.dataset_facts import reshuffles, unshuffled
from ..own.iterated import data_set_of, passes_of, seed_torch
from ..own.returned import Returned
from ..own.streams import as_array, as_fitted, as_tensors, as_tuples
from ..own.user_code import UserCode, UserError
from ..own.user_pipeline import split


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
    workload = replace(options.workload, model="mlp")
    if request.size is not None and resized_while_read:
        workload = replace(workload, shape=[*request.size, *workload.shape[2:]])
    # so that a source does not make floats of all samples at once
    in_bytes = replace(options.input, cast="device", augment="off")
    read = replace(options, input=in_bytes, workload=workload)
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


SAME = 32  # samples at the beginning that must be the same each time
SAME_EACH_TIME = "leave random changes out of the data and of `map`: `augment` makes them in the training"


@dataclass(frozen=True)
class _Part:
    """One of the user's data sets: its number of samples, its elements from a number on, and a sample of an element."""

    count: int
    elements: Callable[[int], Iterator[Any]]
    spec: Any  # the type of a sample
    load: Callable[[Any], tuple[Any, ...]]  # by the user's `map`, if there is one
    skips: bool = True  # earlier elements are skipped without the work of making them
    samples: tf.data.Dataset | None = None  # unless Python makes the elements


def of_entry(request: Request) -> Samples:
    """Return the samples of the user's code, after its `map` and before its `augment`. Raises UserError."""
    options = request.options
    workload = options.workload
    assert workload.entry is not None
    assert options.train.seed is not None
    keras.utils.set_random_seed(options.train.seed)  # as before a training
    code = UserCode(workload.entry, workload.folder or ".")
    seed_torch(options.train.seed)
    with code.blamed():
        given = returned.checked(code.function(context_of(options, 1)), code.entry.function)
        passes = {name: passes_of(getattr(given, name)) for name in (TRAIN, VALIDATION)}
        made = {name: data_set_of(each, not given.mapped) for name, each in passes.items() if each is not None}
        given = replace(given, **made)
        # Shuffles that give another order each time are left out: the training on the prepared data shuffles.
        left_out = _reshuffles(given)
        for name in (TRAIN, VALIDATION) if left_out else ():
            if isinstance(data := getattr(given, name), tf.data.Dataset):
                given = replace(given, **{name: unshuffled(data, keep_fixed=True)})
        train, validation = given.train, given.validation
        may_be_split = validation is None and not isinstance(train, tf.data.Dataset | keras.utils.PyDataset)
        if may_be_split and options.train.validation_split > 0:  # as in a training
            train, validation = split(train, options)
        parts = {TRAIN: _part(train, TRAIN, given.map, given.samples, given.mapped)}
        if validation is not None:
            samples_of, load = given.validation_samples, given.validation_map
            parts[VALIDATION] = _part(validation, VALIDATION, load, samples_of, given.mapped)
        counts = limited({name: parts[name].count if name in parts else 0 for name in PARTS}, request.limit)
        samples = Samples(
            counts,
            lambda part, first: parts[part].elements(first),
            lambda part, element: parts[part].load(element),
            _name_of,
            encode_tensors,
            lambda record: _decoded_tensors(record, parts[TRAIN].spec),
            {**counts, "structure": {name: _described(part.spec) for name, part in parts.items()}},
            None if parts[TRAIN].samples is None else lambda part: parts[part].samples,
            one_process=not all(part.skips for part in parts.values()),
            error_of=code.error_of,
        )
        if _reshuffles(given) or _stamp(samples) != _stamp(samples):
            raise UserError(f"the data of {workload.entry} are not the same each time", SAME_EACH_TIME)
        samples.facts = {**samples.facts, "stamp": _stamp(samples), "shuffle_left_out": left_out}
    return samples


def _reshuffles(given: Returned) -> bool:
    return reshuffles(given.train) or reshuffles(given.validation)


def _part(data: Any, role: str, load: Callable[..., Any] | None, samples: int | None, mapped: bool) -> _Part:
    if isinstance(data, keras.utils.PyDataset):
        return _of_batches(data)
    if not isinstance(data, tf.data.Dataset):
        with tf.device("/CPU:0"):
            data, mapped = tf.data.Dataset.from_tensor_slices(as_tensors(as_fitted(data))), True
    elif not mapped:
        load, data = None, data.unbatch()
    count, loaded, traced = _count(data, role, samples), data, None
    if load is not None:
        loaded, traced = data.map(load), tf.function(load)

    def sample(element: Any) -> tuple[Any, ...]:
        if traced is not None:
            element = traced(*element) if isinstance(element, tuple) else traced(element)
        return tuple(tf.nest.flatten(element))

    return _Part(count, lambda first: iter(data.skip(first)), loaded.element_spec, sample, mapped, loaded)


def _count(data: tf.data.Dataset, role: str, samples: int | None) -> int:
    cardinality = int(data.cardinality())
    if samples is not None:
        return min(samples, cardinality) if cardinality >= 0 else samples
    if cardinality == tf.data.INFINITE_CARDINALITY:
        key = "samples" if role == TRAIN else "validation_samples"
        raise UserError(f"{role} has no end", f"return {key} next to it")
    return cardinality if cardinality >= 0 else int(data.reduce(0, lambda number, *_: number + 1))


def _of_batches(data: keras.utils.PyDataset) -> _Part:
    """Return the samples of a PyDataset, whose batches have one size except the last. Raises UserError."""
    size, last = (_rows(data[number]) for number in (0, len(data) - 1))

    def elements(first: int) -> Iterator[Any]:
        for number in range(first // size, len(data)):
            batch = as_tuples(data[number])
            if _rows(batch) != (size if number < len(data) - 1 else last):
                what = f"batch {number} of your PyDataset has {_rows(batch)} samples, and the first has {size}"
                raise UserError(what, "all batches but the last need the same size here")
            for row in range(first % size if number == first // size else 0, _rows(batch)):
                yield tf.nest.map_structure(lambda array, at=row: tf.convert_to_tensor(as_array(array)[at]), batch)

    spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, next(elements(0)))
    return _Part((len(data) - 1) * size + last, elements, spec, lambda element: tuple(tf.nest.flatten(element)))


def _rows(batch: Any) -> int:
    return int(tf.nest.flatten(as_tuples(batch))[0].shape[0])


def _described(spec: Any) -> Any:
    """Return a sample's structure as JSON: a tensor has number, type and shape. Raises UserError for a ragged one."""
    numbers = iter(range(len(tf.nest.flatten(spec))))

    def described(each: Any) -> Any:
        if isinstance(each, Mapping):  # tf.nest numbers the entries of a mapping by their sorted names
            return {"dict": {str(key): described(each[key]) for key in sorted(each)}}
        if isinstance(each, tuple):
            return {"tuple": [described(item) for item in each]}
        if not isinstance(each, tf.TensorSpec):
            raise UserError(f"a sample contains {type(each).__name__}", "only tensors can be stored: make it dense")
        shape = None if each.shape.rank is None else list(each.shape)
        return {"number": next(numbers), "dtype": each.dtype.name, "shape": shape}

    return described(spec)


def _name_of(element: Any, part: str, number: int) -> str:
    first = tf.nest.flatten(element)[0]
    if first.dtype == tf.string and first.shape.rank == 0:
        return str(first.numpy().decode("utf-8", "replace"))
    return f"sample {number} of {part}"


def encode_tensors(sample: tuple[Any, ...]) -> bytes:
    """Return a sample as a serialised tf.train.Example with a feature for each tensor, named by its number."""
    feature = {
        str(number): tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.serialize_tensor(tensor).numpy()]))
        for number, tensor in enumerate(sample)
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString(deterministic=True))


def _decoded_tensors(record: Any, spec: Any) -> list[Any]:
    leaves = tf.nest.flatten(spec)
    features = {str(number): tf.io.FixedLenFeature([], tf.string) for number in range(len(leaves))}
    example = tf.io.parse_single_example(record, features)
    return [tf.io.parse_tensor(example[str(number)], leaf.dtype) for number, leaf in enumerate(leaves)]


def _stamp(samples: Samples) -> str:
    digest = hashlib.sha256(repr(sorted(samples.counts.items())).encode())
    for part, count in samples.counts.items():
        for sample in islice(samples.fresh(part), min(SAME, count)):
            digest.update(sample.sample.encode() if isinstance(sample, Broken) else encode_tensors(sample))
    return digest.hexdigest()
