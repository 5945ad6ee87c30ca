"""Remedies for an input that is too slow: changes of options first, then advice on the data. The gain is at most the
wait, and only a change of the slowest stage may gain all of it, as stages run in parallel; of others there is an
estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..files.values import number, whole
from ..options.input import MOVED
from ..options.own_code import BATCHED
from ..units import share, size, times, with_unit
from .measurements import BYTE_SHARE, ROOM_FOR_CACHE, STAGE_WORTH, Measurements, stage_ms
from .remedies import Remedy, gain

READING = ("read",)  # stages that are faster when several files are read in parallel
LOADING = ("read", "load")  # stages that a cache saves
MAPPED = ("load", "prepare", "augment")  # stages that run in parallel
ADVICE: Mapping[str, str] = {
    "read": "keep the data on a local disk, in a few large files (TFRecord shards)",
    "load": "store the samples smaller, or already decoded",
    "shuffle": "shuffle the list of files instead, with a smaller input.shuffle",
    "batch": "pass fewer bytes: smaller samples, or uint8 that the model converts",
    "prepare": "do once what is the same in each epoch, and save the result",
    "augment": "move it into the model, as layers that run on the GPU, or do less of it",
}
SINGLE_SAMPLES = (
    "make its work cheaper, or return single samples with `map` in place of batches, so that input.cache and "
    "input.parallel_calls apply"
)
IN_SCRIPT = (
    "let `map` run in parallel (num_parallel_calls=tf.data.AUTOTUNE), keep what is the same in each epoch with "
    "`cache`, and end the data set with prefetch(tf.data.AUTOTUNE)"
)
SINGLE_SAMPLES_CODE = (
    "# at the end of build: samples is your Dataset without .batch(), .shuffle(), .cache(), .prefetch() and .map(read)",
    "return {",
    '    "model": model,',
    '    "train": samples,',
    '    "map": read,  # of one sample; None if there is nothing to map',
    '    "samples": 1000,  # their number, if TensorFlow does not know it, as of a generator',
    "}",
    "# gputui then calls read in parallel, and batches by input.batch_size of the preset",
)
ANY_STAGE = "make its work cheaper, or do it once and save the result"


def for_input(s: Measurements) -> Iterator[Remedy]:
    """Yield the remedies for a slow input, in the order in which they should be tried."""
    for maker in (_cache, _prepare, _reads, _parallel, _prefetch, _all_cpus, _disk, _less_augmenting):
        yield from maker(s)


def for_transfer(s: Measurements) -> Iterator[Remedy]:
    """Yield the remedies for slow copies of batches to the GPU, in the order in which they should be tried."""
    for maker in (_copy_ahead, _copy_bytes, _copy_less):
        yield from maker(s)


def _all_cpus(s: Measurements) -> Iterator[Remedy]:
    # pinned to the CPUs of the GPU's NUMA node, the pipeline can use only these
    if s.numa.startswith("on CPUs"):
        yield Remedy(
            step="input",
            changes={"device.numa": "off"},
            reason=f"the input pipeline runs only {s.numa}; off lets it use all CPUs",
        )


def in_the_data(s: Measurements) -> Remedy:
    """Return advice on the slowest stage of the input, if no option can speed it up."""
    cores = "all CPU cores are busy; " if s.cores_busy else ""
    if s.crowded:
        cores = f"other programs use {share(s.others_cpu)} of the CPU; "
    stage = s.slowest_stage
    if stage is None and s.of_script:
        return Remedy(step="input", reason=f"{cores}{IN_SCRIPT}")
    if stage is None:
        return Remedy(step="input", reason=f"{cores}no option is left that could speed up the input: {ANY_STAGE}")
    name = str(stage["name"])
    if s.of_script or s.inapplicable.get("input.parallel_calls") == BATCHED:
        slow = f"the slowest stage of your pipeline is {name} ({with_unit(stage_ms(stage), 'ms')} per batch)"
        if s.of_script:
            return Remedy(step="input", reason=f"{cores}{slow}: {IN_SCRIPT}")
        return Remedy(step="input", reason=f"{cores}{slow}: {SINGLE_SAMPLES}", code=SINGLE_SAMPLES_CODE)
    advice = next((text for stage_name, text in ADVICE.items() if name.startswith(stage_name)), ANY_STAGE)
    slowest = f"its slowest stage is {name} ({with_unit(stage_ms(stage), 'ms')} per batch)"
    return Remedy(step="input", reason=f"{cores}no option is left that could speed up the input; {slowest}: {advice}")


# ---- options ----------------------------------------------------------------------------------


def _cache(s: Measurements) -> Iterator[Remedy]:
    if s.option("input.cache") != "off" or _share(s, LOADING) < STAGE_WORTH or _passes(s) < 1.5:
        return
    needed = (s.train_samples or 0) * (s.sample_bytes or 0)
    free = s.host_memory_free_bytes
    if free is not None and needed > ROOM_FOR_CACHE * free:
        yield Remedy(
            step="input",
            reason=f"a cache would save reading, but {size(needed)} do not fit into {size(free)} of free memory: "
            "set input.cache to a folder on a fast disk",
        )
        return
    most, about = _expected(s, LOADING)
    yield Remedy(
        step="input",
        changes={"input.cache": "memory"},
        reason=f"each epoch reads and decodes the same samples again; decoded they take {size(needed)}{about}",
        expected_gain=most,
    )


def _prepare(s: Measurements) -> Iterator[Remedy]:
    """After how many epochs that pays, only the command's --estimate measures."""
    if s.option("input.cache") != "off" or not _decodes(s) or _share(s, LOADING) < STAGE_WORTH or _passes(s) < 1.5:
        return
    ms = sum(stage_ms(stage) or 0.0 for stage in s.stages if _is_one_of(stage, LOADING))
    each = f" ({with_unit(ms, 'ms')} per batch)" if ms else ""
    yield Remedy(
        step="input",
        reason=f"each epoch reads and decodes the same samples again{each}; gputui prepare --preset PRESET -o FOLDER "
        "does it once for all runs, and with --estimate measures after how many epochs that pays",
    )


def _decodes(s: Measurements) -> bool:
    data = str(s.option("workload.data"))
    if s.option("workload.entry"):
        return any(_is_one_of(stage, ("load",)) for stage in s.stages)
    encoded = data.startswith("tfrecord:") and s.option("workload.tfrecord_encoding") == "encoded"
    return data.startswith("images:") or encoded


def _reads(s: Measurements) -> Iterator[Remedy]:
    """Only TFRecord files have a stage for reading; others are read by the stage `load`."""
    if s.option("input.parallel_reads") != "off" or not str(s.option("workload.data")).startswith("tfrecord:"):
        return
    if _share(s, READING) >= STAGE_WORTH:
        most, about = _expected(s, READING)
        yield Remedy(
            step="input",
            changes={"input.parallel_reads": "auto"},
            reason=f"the TFRecord files are read one by one; reading several in parallel hides the disk's delay{about}",
            expected_gain=most,
            changes_learning=True,
        )


def _parallel(s: Measurements) -> Iterator[Remedy]:
    calls, threads = s.option("input.parallel_calls"), _threads(s)
    at_once = max(1, whole(calls) or 1)
    if calls in ("auto", None) or 1 < threads <= at_once or _share(s, MAPPED) < STAGE_WORTH:
        return
    most, about = _expected(s, MAPPED)
    left = _waited(s) * _share(s, MAPPED) * at_once / threads  # share of the step, when all threads share this work
    yield Remedy(
        step="input",
        changes={"input.parallel_calls": "auto"},
        reason=f"samples are prepared {_at_a_time(calls)}; this machine has {s.cpus or 1} CPUs{about}",
        expected_gain=None if most is None else min(most, round(1 / left, 2)),
    )


def _prefetch(s: Measurements) -> Iterator[Remedy]:
    # with prefetching, a step still takes as long as the longer one of input and computing
    if s.option("input.prefetch") == "off":
        yield Remedy(
            step="input",
            changes={"input.prefetch": "auto"},
            reason="nothing is prepared while the model computes",
            expected_gain=gain(min(_waited(s), 1 - _waited(s))),
        )


def _disk(s: Measurements) -> Iterator[Remedy]:
    if s.disk_waited_for:
        yield Remedy(step="input", reason="the disk is slow: copy the data to a local one, or write TFRecord shards")


def _less_augmenting(s: Measurements) -> Iterator[Remedy]:
    given = s.option("input.augment")
    costly = given == "heavy" or (isinstance(given, list) and not set(given) <= set(MOVED))
    if costly and _share(s, ("augment",)) >= 0.5:
        named = "heavy" if given == "heavy" else ",".join(given)
        yield Remedy(step="input", reason=f"most of the input's work is augment={named}; light takes far less time")


# ---- copies to the GPU ------------------------------------------------------------------------


def _copy_ahead(s: Measurements) -> Iterator[Remedy]:
    if s.device_batches:
        return
    copying = s.transfer or 0.0
    yield Remedy(
        step="input",
        changes={"input.prefetch_to_device": "auto" if s.option("input.prefetch") != "off" else 2},
        reason="each step waits for the copy of its batch; copies made in advance overlap with computing",
        expected_gain=gain(min(copying, 1 - copying)),
    )


def _copy_bytes(s: Measurements) -> Iterator[Remedy]:
    if s.option("input.cast") == "host" and "input.cast" not in s.inapplicable:
        yield Remedy(
            step="input",
            changes={"input.cast": "device"},
            reason="uint8 images are copied to the GPU as float32; as bytes they are a quarter of the size",
            expected_gain=gain((1 - BYTE_SHARE) * (s.transfer or 0.0)),
        )


def _copy_less(s: Measurements) -> Iterator[Remedy]:
    if s.device_batches or "input.cast" in s.inapplicable:
        yield Remedy(step="input", reason="copy fewer bytes: 16-bit numbers, or uint8 that the model converts")


# ---- possible gains -----------------------------------------------------------------------------


def _waited(s: Measurements) -> float:
    return max(s.input_wait or 0.0, s.ablation or 0.0)


def _expected(s: Measurements, names: Sequence[str]) -> tuple[float | None, str]:
    # if another stage is slower, the factor is None and there is an estimate in words
    slowest = s.slowest_stage
    if slowest is None or _is_one_of(slowest, names):
        return gain(_waited(s)), ""
    about = gain(_waited(s) * _share(s, names))
    words = f"about {times(about)} as fast" if about else "little to gain"
    return None, f"; {words}, as {slowest['name']} is slower"


def _share(s: Measurements, names: Sequence[str]) -> float:
    whole = sum(stage_ms(stage) or 0.0 for stage in s.stages)
    if not whole:
        return 1.0
    return sum(stage_ms(stage) or 0.0 for stage in s.stages if _is_one_of(stage, names)) / whole


def _is_one_of(stage: Mapping[str, object], names: Sequence[str]) -> bool:
    return str(stage["name"]).startswith(tuple(names))


def _threads(s: Measurements) -> int:
    return max(1, whole(s.option("input.private_threads")) or s.cpus or 1)


def _passes(s: Measurements) -> float:
    steps = (number(s.option("train.epochs")) or 1) * (s.steps_per_epoch or 0)
    return steps / math.ceil(s.train_samples / s.global_batch_size) if s.train_samples and s.global_batch_size else 1.0


def _at_a_time(calls: object) -> str:
    return "one at a time" if calls == "off" else f"{calls} at a time"
