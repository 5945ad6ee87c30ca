"""The commands that a process of `gputui prepare` obeys: open the samples, measure some, write a file, join files."""

from __future__ import annotations

import contextlib
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...files import writing
from ...files.writing import sync
from ...prepare.manifest import ARRAY_FILE, PARTS, RECORDS, TRAIN, VALIDATION, Shard, hash_of
from ..common.training_errors import DataError
from ..data import batching
from ..data.sources import reason
from .samples import Broken, EndedEarly, Request, Samples, of_entry, of_preset
from .samples import read as read

PROGRESS_SECONDS = 0.3
MEASURED_SECONDS, PASSES, BATCH = 1.0, 5, 16
RECORD_BYTES = 16  # that TFRecord adds to each record
DRAFT = ".{name}.{pid}.part"  # hidden, so that no pattern of a reader matches it

Answer = Callable[[Mapping[str, Any]], None]


def use_one_thread() -> None:
    """Let TensorFlow use one thread, as several processes share the CPUs."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def opened(request: Request) -> Samples:
    """Return the samples of the preset's data or of the user's code. Raises TrainerError."""
    return of_preset(request) if request.options.workload.entry is None else of_entry(request)


def described(samples: Samples) -> dict[str, Any]:
    return {"facts": dict(samples.facts), "one_process": samples.one_process}


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
    except EndedEarly as fault:
        raise DataError(str(fault), "the data must have the same samples in the same order each time") from None


def measure(samples: Samples, count: int, request: Request, reads: bool) -> dict[str, Any]:
    """Return how long the first `count` samples of the training part take: `load_seconds` of one thread to read and
    decode one, `bytes` the mean size in a file, and with `reads` the times of `_times`. Raises DataError.
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
    return figures | (_times(samples, part, count, request) if reads else {})


def _times(samples: Samples, part: str, count: int, request: Request) -> dict[str, float]:
    """CPU seconds for a sample in memory: to prepare it, to load it again by tf.data, and to read it then."""
    path, good = request.folder / "sample.tfrecord", 0
    used = time.process_time()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for sample in samples.loaded(part, 0, count):
            if not isinstance(sample, Broken):
                writer.write(samples.encode(sample))
                good += 1
    prepared = (time.process_time() - used) / count
    if samples.dataset is None:
        again = _seconds(lambda: sum(1 for _ in islice(samples.elements(part, 0), count)), 1)
    else:
        again = _pipeline_seconds(samples.dataset(part).take(count).ignore_errors())
    read = _pipeline_seconds(tf.data.TFRecordDataset(str(path)).map(samples.decode, tf.data.AUTOTUNE))
    return {"prepare_seconds": prepared, "again_seconds": again / count, "read_seconds": read / good}


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


class _Rows:
    """The inputs and labels of one part, from its files, which stay on the disk, with their numbers of samples."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, int]], row_bytes: int) -> None:
        files = [(name, count) for name, count in files if count]
        self._ends = np.cumsum([count for _, count in files])
        self._inputs = [
            np.memmap(folder / name, "uint8", "r", shape=(count, row_bytes)) if row_bytes else None
            for name, count in files
        ]
        labels = [np.fromfile(folder / name, "int64", offset=count * row_bytes) for name, count in files]
        self.labels = np.concatenate(labels) if labels else np.zeros(0, "int64")

    def input(self, number: int) -> bytes:
        at = int(np.searchsorted(self._ends, number, side="right"))
        first = int(self._ends[at - 1]) if at else 0
        inputs = self._inputs[at]
        return b"" if inputs is None else inputs[number - first].tobytes()


def join_files(given: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Join the files of samples into one, and return its entry in the manifest. A training draws the order by its seed:
    with that of the request it gets the order of the files, and the batches of the original data. Raises OSError.
    """
    assert request.options.train.seed is not None
    folder, dtype, shape = request.folder, np.dtype(given["dtype"]), tuple(given["shape"])
    row_bytes = dtype.itemsize * int(np.prod(shape))
    files = {part: [each for each in given["files"] if each["part"] == part] for part in (TRAIN, VALIDATION)}
    parts = {
        part: _Rows(folder, [(each["file"], each["samples"]) for each in of_part], row_bytes)
        for part, of_part in files.items()
    }
    sequences = {"": (TRAIN, VALIDATION)} if not given["test"] else {"_train": (TRAIN,), "_test": (VALIDATION,)}
    with (
        _complete(folder / ARRAY_FILE) as (draft, facts),
        zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as file,
    ):
        for name, of in sequences.items():
            places = [(parts[part], number) for part in of for number in range(len(parts[part].labels))]
            if TRAIN in of:  # the test part is not drawn
                order = np.argsort(np.random.default_rng(request.options.train.seed).permutation(len(places)))
                places = [places[place] for place in order]
            labels = np.array([rows.labels[number] for rows, number in places], "int64")
            inputs = (rows.input(number) for rows, number in places)
            _write_array(file, f"x{name}", dtype, (len(places), *shape), inputs)
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
