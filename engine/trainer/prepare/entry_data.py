"""The samples of a user's own code (workload.entry): the data that its function returns, before they are batched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import keras
import tensorflow as tf

from ...options import Options
from ...prepare import manifest
from ...prepare.manifest import PARTS, TRAIN, VALIDATION
from ..own import returned
from ..own.building import context_of
from ..own.dataset_facts import reshuffles, unshuffled
from ..own.iterated import data_set_of, passes_of, seed_torch
from ..own.returned import Returned
from ..own.streams import as_array, as_fitted, as_tensors, as_tuples
from ..own.user_code import UserCode, UserError
from ..own.user_pipeline import split
from .samples import Broken, Request, Samples

SAME = 32  # samples at the beginning that must be the same each time
SAME_EACH_TIME = "leave random changes out of the data and of `map`: `augment` makes them in the training"


@dataclass(frozen=True)
class _Part:
    """One of the user's data sets: its number of samples, its elements from a number on, and the user's `map`."""

    count: int
    elements: Callable[[int], Iterator[Any]]
    spec: Any  # the type of a sample
    load: Callable[..., Any] | None = None
    skips: bool = True  # earlier elements are skipped without the work of making them
    data: tf.data.Dataset | None = None  # with the elements, unless Python makes them


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
        parts = _parts(given, options)
        counts = manifest.limited({name: parts[name].count if name in parts else 0 for name in PARTS}, request.limit)
        loads = {name: _load(part) for name, part in parts.items()}
        loaded = {
            name: part.data if part.data is None or part.load is None else part.data.map(part.load)
            for name, part in parts.items()
        }
        samples = Samples(
            counts,
            lambda part, first: parts[part].elements(first),
            lambda part, element: loads[part](element),
            _name,
            encode,
            lambda record: _decoded(record, parts[TRAIN].spec),
            {**counts, "structure": {name: _described(part.spec) for name, part in parts.items()}},
            None if loaded[TRAIN] is None else loaded.get,
            one_process=not all(part.skips for part in parts.values()),
            error_of=code.error_of,
        )
        if _reshuffles(given) or _stamp(samples) != _stamp(samples):
            raise UserError(f"the data of {workload.entry} are not the same each time", SAME_EACH_TIME)
        samples.facts = {**samples.facts, "stamp": _stamp(samples), "shuffle_left_out": left_out}
    return samples


def _reshuffles(given: Returned) -> bool:
    return reshuffles(given.train) or reshuffles(given.validation)


def _parts(given: Returned, options: Options) -> dict[str, _Part]:
    # Arrays without validation are split as in a training.
    train, validation = given.train, given.validation
    share = options.train.validation_split
    if validation is None and share > 0 and not isinstance(train, tf.data.Dataset | keras.utils.PyDataset):
        train, validation = split(train, options)
    parts = {TRAIN: _part(train, TRAIN, given.map, given.samples, given.mapped)}
    if validation is not None:
        parts[VALIDATION] = _part(validation, VALIDATION, given.validation_map, given.validation_samples, given.mapped)
    return parts


def _part(data: Any, role: str, load: Callable[..., Any] | None, samples: int | None, mapped: bool) -> _Part:
    if isinstance(data, keras.utils.PyDataset):
        return _of_batches(data)
    if not isinstance(data, tf.data.Dataset):
        with tf.device("/CPU:0"):
            data, mapped = tf.data.Dataset.from_tensor_slices(as_tensors(as_fitted(data))), True
    elif not mapped:
        load, data = None, data.unbatch()
    count = _count(data, role, samples)
    spec = (data if load is None else data.map(load)).element_spec
    return _Part(count, lambda first: iter(data.skip(first)), spec, load, mapped, data)


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
    return _Part((len(data) - 1) * size + last, elements, spec)


def _rows(batch: Any) -> int:
    return int(tf.nest.flatten(as_tuples(batch))[0].shape[0])


def _load(part: _Part) -> Callable[[Any], tuple[Any, ...]]:
    load = part.load
    if load is None:
        return lambda element: tuple(tf.nest.flatten(element))
    traced = tf.function(load)
    return lambda element: tuple(tf.nest.flatten(traced(*element) if isinstance(element, tuple) else traced(element)))


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


def _name(element: Any, part: str, number: int) -> str:
    first = tf.nest.flatten(element)[0]
    if first.dtype == tf.string and first.shape.rank == 0:
        return str(first.numpy().decode("utf-8", "replace"))
    return f"sample {number} of {part}"


def encode(sample: tuple[Any, ...]) -> bytes:
    """Return a sample as a serialised tf.train.Example with a feature for each tensor, named by its number."""
    feature = {
        str(number): tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.serialize_tensor(tensor).numpy()]))
        for number, tensor in enumerate(sample)
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString(deterministic=True))


def _decoded(record: Any, spec: Any) -> list[Any]:
    leaves = tf.nest.flatten(spec)
    features = {str(number): tf.io.FixedLenFeature([], tf.string) for number in range(len(leaves))}
    example = tf.io.parse_single_example(record, features)
    return [tf.io.parse_tensor(example[str(number)], leaf.dtype) for number, leaf in enumerate(leaves)]


def _stamp(samples: Samples) -> str:
    digest = hashlib.sha256(repr(sorted(samples.counts.items())).encode())
    for part, count in samples.counts.items():
        for sample in islice(samples.fresh(part), min(SAME, count)):
            digest.update(sample.sample.encode() if isinstance(sample, Broken) else encode(sample))
    return digest.hexdigest()
