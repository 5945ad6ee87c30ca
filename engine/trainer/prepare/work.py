"""The samples of a process of `gputui prepare`, elements that are cheap to skip and a function that loads one, and the
commands that it obeys: measure some samples, write a file, join files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...files import writing
from ...files.writing import refusal, sync
from ...options import Options, options_json
from ...prepare.manifest import ARRAY_FILE, INPUT, LABEL, PARTS, RECORDS, TRAIN, VALIDATION, Shard, hash_of, limited
from ...prepare.manifest import Broken as Broken
from ..common.training_errors import DataError, TrainerError
from ..data import batching, sources
from ..data.pipeline import SOURCES
from ..data.sources import reason
from ..own import returned
from ..own.building import context_of
from ..own.dataset_facts import reshuffles, unshuffled
from ..own.iterated import data_set_of, passes_of, seed_torch
from ..own.streams import as_array, as_fitted, as_tensors, as_tuples
from ..own.user_code import UserCode, UserError
from ..own.user_pipeline import split

PROGRESS_SECONDS = 0.3
MEASURED_SECONDS, PASSES, BATCH = 1.0, 5, 16
RECORD_BYTES = 16  # that TFRecord adds to each record
DRAFT = ".{name}.{pid}.part"  # hidden, so that no pattern of a reader matches it

Answer = Callable[[Mapping[str, Any]], None]


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
        follow the last call are read on. Raises tf.errors.OpError if elements cannot be read, and DataError if there
        are fewer than when they were counted.
        """
        if self._at != (part, first):
            self._iterator = self.elements(part, first)
        self._at = ("", 0)  # unknown until all were yielded
        for number in range(first, first + count):
            try:
                element = next(self._iterator)
            except StopIteration:
                what = f"the {part} data ended at sample {number}, earlier than when it was counted"
                raise DataError(what, "the data must have the same samples in the same order each time") from None
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


def opened(request: Request) -> Samples:
    """Return the samples of the preset's data or of the user's code. Raises TrainerError."""
    return of_preset(request) if request.options.workload.entry is None else of_entry(request)


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
        given = returned.checked(code.load()(context_of(options, 1)), str(code.entry.function))
        passes = {name: passes_of(getattr(given, name)) for name in (TRAIN, VALIDATION)}
        made = {name: data_set_of(each, not given.mapped) for name, each in passes.items() if each is not None}
        given = replace(given, **made)
        # Shuffles that give another order each time are left out: the training on the prepared data shuffles.
        left_out = reshuffles(given.train) or reshuffles(given.validation)
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
        if reshuffles(given.train) or reshuffles(given.validation) or _stamp(samples) != _stamp(samples):
            raise UserError(f"the data of {workload.entry} are not the same each time", SAME_EACH_TIME)
        samples.facts = {**samples.facts, "stamp": _stamp(samples), "shuffle_left_out": left_out}
    return samples


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


# ---- commands -------------------------------------------------------------------------------------


def obey(command: Mapping[str, Any], samples: Samples, request: Request, answer: Answer) -> None:
    """Do what a command asks for, and answer it, or why the disk has refused a file. Raises TrainerError."""
    due = 0.0

    def at(number: int) -> None:
        """`number` samples of the file were read: an answer at most every PROGRESS_SECONDS."""
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + PROGRESS_SECONDS
            answer({"at": number})

    try:
        if "shard" in command:
            answer({"written": write_file(samples, Shard(**command["shard"]), request, at)})
        elif "measure" in command:
            answer({"measured": measure(samples, int(command["measure"]), request, "reads" in command)})
        else:
            answer({"output": join_files(command["join"], request)})
    except (OSError, tf.errors.OpError) as fault:
        if (number := writing.refusal(fault)) is not None:
            answer({"disk": writing.describe(number, request.folder), "remedy": writing.remedy(number)})
        elif isinstance(fault, OSError):
            raise DataError(f"{fault.filename or request.folder}: {fault.strerror or fault}") from None
        elif "shard" in command:
            what = f"the {command['shard']['part']} data cannot be read: {reason(fault)}"
            raise samples.error_of(fault) or DataError(what) from None
        else:
            raise


def measure(samples: Samples, count: int, request: Request, reads: bool) -> dict[str, Any]:
    """Return how long the first `count` samples of the training part take: `load_seconds` of one thread to read and
    decode one, `bytes` the mean size in a file, and with `reads` three more times. Raises DataError.
    """
    part = TRAIN if samples.counts[TRAIN] else PARTS[0]
    count = min(count, samples.counts[part])
    for _ in samples.loaded(part, 0, 1):  # the first one is traced
        pass
    begun = time.perf_counter()
    good = [each for each in samples.loaded(part, 0, count) if not isinstance(each, Broken)]
    loaded = time.perf_counter() - begun
    if not good:
        raise DataError(f"none of the first {count} samples can be read", "check workload.data, or your code")
    sizes = [RECORD_BYTES + len(samples.encode(each)) for each in good]
    figures = {
        "samples": count,
        "broken": count - len(good),
        "load_seconds": loaded / count,
        "bytes": sum(sizes) / len(good),
    }
    if not reads:
        return figures
    # CPU seconds for a sample in memory: to prepare it, to load it again by tf.data, and to read it then
    path, used = request.folder / "sample.tfrecord", time.process_time()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for sample in samples.loaded(part, 0, count):
            if not isinstance(sample, Broken):
                writer.write(samples.encode(sample))
    prepared = (time.process_time() - used) / count
    if samples.dataset is None:
        again = _seconds(lambda: sum(1 for _ in islice(samples.elements(part, 0), count)), 1)
    else:
        again = _pipeline_seconds(samples.dataset(part).take(count).ignore_errors())
    read = _pipeline_seconds(tf.data.TFRecordDataset(str(path)).map(samples.decode, tf.data.AUTOTUNE))
    return figures | {"prepare_seconds": prepared, "again_seconds": again / count, "read_seconds": read / len(good)}


def _pipeline_seconds(data: tf.data.Dataset) -> float:
    # Passes are made within TensorFlow, without Python, in batches if the samples have one shape.
    if math.isfinite(batching.batch_bytes(data.element_spec, BATCH)):
        data = data.batch(BATCH)
    passes = tf.function(lambda number: data.repeat(number).reduce(0, lambda seen, *_: seen + 1))
    return _seconds(lambda: int(passes(tf.constant(PASSES, tf.int64))), PASSES)


def _seconds(work: Callable[[], int], passes: int) -> float:
    # It is repeated for MEASURED_SECONDS after a first time that does not count. Other programs do not change CPU time.
    work()
    begun, used, times = time.perf_counter(), time.process_time(), 0
    while times == 0 or time.perf_counter() - begun < MEASURED_SECONDS:
        work()
        times += passes
    return (time.process_time() - used) / times


# ---- files: complete, or not at all ---------------------------------------------------------------


def write_file(samples: Samples, shard: Shard, request: Request, at: Callable[[int], None]) -> dict[str, Any]:
    """Write the file of a shard, and return its entry in the manifest. `at` gets the number of samples read until now.
    Raises OSError or tf.errors.OpError.
    """
    name, as_records = shard.file(request.format), request.format == RECORDS
    broken: list[Broken] = []
    labels: list[int] = []
    with (
        _complete(request.folder / name) as (draft, facts),
        tf.io.TFRecordWriter(str(draft)) if as_records else draft.open("wb") as stream,
    ):
        for number, sample in enumerate(samples.loaded(shard.part, shard.first, shard.samples), 1):
            if isinstance(sample, Broken):
                broken.append(sample)
            elif as_records:
                stream.write(samples.encode(sample))
            else:  # the inputs one after the other, then the labels as int64
                stream.write(np.asarray(sample[0]).tobytes())
                labels.append(int(sample[1]))
            at(number)
        if not as_records:
            stream.write(np.array(labels, "int64").tobytes())
    entry = {"number": shard.number, "part": shard.part, "file": name, "samples": shard.samples - len(broken), **facts}
    return entry | {"broken": [asdict(each) for each in broken]}


@contextlib.contextmanager
def _complete(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A context with a draft of the file, which gets its name at the end, and with facts on it, which are then known.
    After an error it leaves nothing.
    """
    draft, facts = path.with_name(DRAFT.format(name=path.name, pid=os.getpid())), dict[str, Any]()
    try:
        yield draft, facts
        sync(draft)
        facts |= {"bytes": draft.stat().st_size, "sha256": hash_of(draft)}
        draft.rename(path)
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def join_files(given: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Join the files of samples into one, and return its entry in the manifest. A training draws the order by its seed:
    with that of the request it gets the order of the files, and the batches of the original data. Raises OSError.
    """
    assert request.options.train.seed is not None
    folder, dtype, shape = request.folder, np.dtype(given["dtype"]), tuple(given["shape"])
    row_bytes = dtype.itemsize * int(np.prod(shape))

    def rows(part: str) -> Iterator[tuple[Any, int, int]]:
        """Yield the inputs of a file, which stay on the disk, a number in it, and the label of this sample."""
        for count, path in (
            (each["samples"], folder / each["file"]) for each in given["files"] if each["part"] == part
        ):
            inputs = np.memmap(path, "uint8", "r", shape=(count, row_bytes)) if count and row_bytes else None
            labels = np.fromfile(path, "int64", offset=count * row_bytes)
            yield from ((inputs, number, label) for number, label in enumerate(labels))

    sequences = {"": (TRAIN, VALIDATION)} if not given["test"] else {"_train": (TRAIN,), "_test": (VALIDATION,)}
    with (
        _complete(folder / ARRAY_FILE) as (draft, facts),
        zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as file,
    ):
        for name, parts in sequences.items():
            samples = [each for part in parts for each in rows(part)]
            if TRAIN in parts:  # the test part is not drawn
                order = np.argsort(np.random.default_rng(request.options.train.seed).permutation(len(samples)))
                samples = [samples[place] for place in order]
            labels = np.array([label for *_, label in samples], "int64")
            inputs = (b"" if inputs is None else inputs[number].tobytes() for inputs, number, _ in samples)
            _write_array(file, f"x{name}", dtype, (len(samples), *shape), inputs)
            _write_array(file, f"y{name}", labels.dtype, labels.shape, [labels.tobytes()])
    return {"file": ARRAY_FILE, **facts}


def _write_array(
    file: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], rows: Iterator[bytes] | list[bytes]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:  # without a date: always the same
        np.lib.format.write_array_header_1_0(stream, header)
        for row in rows:
            stream.write(row)
