"""The commands that a process of `gputui prepare` obeys: open the samples, measure some, write a file, join files."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import tensorflow as tf

from ...files import writing
from ...prepare.manifest import PARTS, TRAIN, Shard
from ..common.training_errors import DataError
from ..data import batching
from ..data.sources import reason
from . import preset_data, sample_files
from .samples import Broken, EndedEarly, Request, Samples
from .samples import read as read

PROGRESS_SECONDS = 0.3
MEASURED_SECONDS, PASSES, BATCH = 1.0, 5, 16
RECORD_BYTES = 16  # that TFRecord adds to each record


Answer = Callable[[Mapping[str, Any]], None]


def use_one_thread() -> None:
    """Let TensorFlow use one thread, as several processes share the CPUs."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def opened(request: Request) -> Samples:
    """Return the samples of the preset's data or of the user's code. Raises TrainerError."""
    if request.options.workload.entry is not None:
        from . import entry_data  # only needed for a user's code

        return entry_data.of_entry(request)
    return preset_data.of_preset(request)


def described(samples: Samples) -> dict[str, Any]:
    return {"facts": dict(samples.facts), "one_process": samples.one_process}


def obey(command: Mapping[str, Any], samples: Samples, request: Request, answer: Answer) -> None:
    """Do what a command asks for, and answer it. Raises TrainerError."""
    if "shard" in command:
        answer(write(samples, Shard(**command["shard"]), request, _Progress(answer).at))
    elif "measure" in command:
        answer({"measured": measure(samples, int(command["measure"]), request, "reads" in command)})
    else:
        answer(join(command["join"], request))


class _Progress:
    """Sends the number of samples of the present file that were read, at most every PROGRESS_SECONDS."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._due = answer, 0.0

    def at(self, number: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PROGRESS_SECONDS
            self._answer({"at": number})


def write(samples: Samples, shard: Shard, request: Request, at: Callable[[int], None]) -> dict[str, Any]:
    """Write the file of a shard. Return its entry in the manifest, or the reason why the disk has refused it."""
    try:
        return _unless_full(
            lambda: {"written": sample_files.write(samples, shard, request.folder, request.format, at)}, request
        )
    except tf.errors.OpError as fault:
        raise samples.error_of(fault) or DataError(f"the {shard.part} data cannot be read: {reason(fault)}") from None
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


def join(given: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Join the files of samples into one. Return its entry in the manifest, or why the disk has refused it."""
    seed = request.options.train.seed
    assert seed is not None
    return _unless_full(lambda: {"output": sample_files.join(given, request.folder, seed)}, request)


def _unless_full(work: Callable[[], dict[str, Any]], request: Request) -> dict[str, Any]:
    """Return the result of `work`, or the reason why the disk has refused a file. Raises DataError."""
    try:
        return work()
    except (OSError, tf.errors.OpError) as fault:
        if (number := writing.refusal(fault)) is not None:
            return {"disk": writing.describe(number, request.folder), "remedy": writing.remedy(number)}
        if isinstance(fault, OSError):
            raise DataError(f"{fault.filename or request.folder}: {fault.strerror or fault}") from None
        raise
