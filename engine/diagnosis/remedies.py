"""Remedies of a slow training: changes with a reason and the greatest possible gain, if known, or advice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..files.values import number, whole
from ..interpreter.compatibility import xla_aborts
from ..options.input import MOVED
from ..options.own_code import BATCHED
from ..runs.events import Remedy
from ..telemetry.chips import BFLOAT16_CAPABILITY, fast_policies
from ..units import counted, share, size, times, with_unit
from .measurements import GPU_FULL, MUCH_PYTHON, ROOM_FOR_BATCH, ROOM_FOR_CACHE, Measurements, stage_ms

FEW_STEPS = 16  # steps in one execution: more hardly shorten a step (gputui's mlp on a CPU: 622 us at 1, 228 us at 50)
STAGE_WORTH = 0.05  # share of the input's time from which a stage is worth a remedy
BYTE_SHARE = 0.25  # of float32: the size of a sample that is copied as bytes
_CANNOT = "XLA cannot compile"  # the beginning of the reason if a layer does not support XLA


def gain(saved: float) -> float | None:
    """Return the speed-up (1.05: 5 % faster) if the share `saved` is saved. None for 0 or at least 0.99."""
    return round(1 / (1 - saved), 2) if 0 < saved < 0.99 else None


# ---- one device -------------------------------------------------------------------------------


def python_overhead(s: Measurements) -> Iterator[Remedy]:
    """Yield remedies for Python's time between steps; TensorFlow also waits at each for copies, even in a loop."""
    much = (s.python_share or 0.0) >= MUCH_PYTHON
    if s.on_gpu and much:
        yield from larger_batch(s)
    yield from _steps(s)
    if much and _steps_per_execution(s) >= FEW_STEPS:
        yield from larger_batch(s)


def _steps(s: Measurements) -> Iterator[Remedy]:
    if _steps_per_execution(s) < FEW_STEPS:
        # no bound of the gain: the cost of a call within TensorFlow is not measured apart from the step
        why = f"{FEW_STEPS} steps in one call share its cost in Python and in TensorFlow"
        yield Remedy("device", {"compile.steps_per_execution": FEW_STEPS}, why)


def _steps_per_execution(s: Measurements) -> float:
    return number(s.option("compile.steps_per_execution")) or 1


def underfilled(s: Measurements) -> Iterator[Remedy]:
    yield from _xla(s)
    yield from larger_batch(s)
    if s.option("device.gpu_thread_mode") == "global" and (s.busy_mean is None or s.busy_mean < GPU_FULL):
        why = "the input pipeline may delay kernel launches; this gives them threads of their own"
        yield Remedy("device", {"device.gpu_thread_mode": "gpu_private"}, why)
    yield from _steps(s)


def larger_batch(s: Measurements) -> Iterator[Remedy]:
    batch = whole(s.option("input.batch_size"))
    fits = not s.on_gpu if s.memory_peak is None else s.memory_peak <= ROOM_FOR_BATCH
    enough = (s.global_batch_size or 0) * 4 <= (s.train_samples or 0)
    parts = whole(s.option("train.micro_batches")) or 1
    if parts > 1 and fits:
        why = f"each batch is computed in {parts} parts; the memory allows parts of twice the size"
        yield Remedy("device", {"train.micro_batches": -(-parts // 2)}, why, expected_gain=2.0)
    elif batch is not None and fits and enough:
        why = "a step has too little work; the memory allows twice the batch"
        yield Remedy("device", {"input.batch_size": 2 * batch}, why, expected_gain=2.0, changes_learning=True)


# ---- computing --------------------------------------------------------------------------------


def computing(s: Measurements) -> Iterator[Remedy]:
    yield from precision(s)
    yield from _xla(s)
    if s.on_gpu and s.idle_gpus and s.option("strategy.kind") == "single":
        gpus = s.gpus + s.idle_gpus
        yield Remedy(
            "gpus",
            _visible(s) | {"strategy.kind": "mirrored"},
            f"{s.idle_gpus} more GPU(s) are idle; the global batch grows with them",
            expected_gain=float(gpus),
            changes_learning=True,
        )


def bandwidth(s: Measurements) -> Iterator[Remedy | str]:
    """Yield remedies for a GPU that waits for its memory: 16-bit numbers need half, and XLA joins kernels."""
    yield from precision(s)
    yield from _xla(s)
    yield (
        "kernels that compute little for each number wait for the GPU's memory: fuse activations and normalization, "
        "leave out copies and transpositions; a larger batch does not help"
    )


def _visible(s: Measurements) -> dict[str, Any]:
    # empty if "all" shows exactly these GPUs, as only they are allocated to the job
    if s.given_gpus is None and s.usable_gpus is None:
        return {"device.visible": "all"}
    if s.usable_gpus in (None, s.given_gpus) and s.option("device.visible") == "all":
        return {}
    return {"device.visible": list(s.usable_gpus or s.given_gpus or ())}


def precision(s: Measurements) -> Iterator[Remedy]:
    """Yield remedies by number formats that the device multiplies faster, if precision.policy is float32."""
    if s.option("precision.policy") != "float32":
        return
    if s.on_gpu and s.option("precision.tf32") is False and (s.compute_capability or (0, 0)) >= BFLOAT16_CAPABILITY:
        why = "this GPU multiplies float32 several times faster in TensorFloat-32"
        yield Remedy("precision", {"precision.tf32": True}, why, changes_learning=True)
    if policies := fast_policies((s.compute_capability or (0, 0)) if s.on_gpu else None, s.cpu_bfloat16):
        why = f"the device supports {policies[-1].removeprefix('mixed_')}, which is not used"
        yield Remedy("precision", {"precision.policy": policies[-1]}, why, changes_learning=True)


def _xla(s: Measurements) -> Iterator[Remedy]:
    never = s.xla_reason.startswith(_CANNOT) or (s.on_gpu and xla_aborts(s.newest_capability))
    uses_xla = s.option("compile.xla") is True if s.jit_compile is None else s.jit_compile
    if uses_xla or s.option("train.deterministic") or never:
        return
    changes: dict[str, Any] = {"compile.xla": True}
    if s.option("input.drop_remainder") is False and (s.train_samples or 0) % (s.global_batch_size or 1):
        changes["input.drop_remainder"] = True
    both = ", and steps of one shape compile only once" if len(changes) > 1 else ""
    off = f"; auto leaves it off here: {s.xla_reason}" if s.option("compile.xla") == "auto" and s.xla_reason else ""
    yield Remedy("xla", changes, f"XLA fuses small operations into few kernels{both}; some models get faster{off}")


# ---- advice -----------------------------------------------------------------------------------


def memory_limit(s: Measurements) -> Iterator[Remedy | str]:
    yield from precision(s)
    yield "no larger batch fits; 16-bit precision halves what the layers keep"
    if s.gpu_neighbours:
        yield f"other programs take memory of this GPU: {', '.join(s.gpu_neighbours)}"
    if not s.option("compile.recompute"):
        yield "compile.recompute=true keeps few activations: a larger batch fits, and steps take up to a third longer"
    yield (
        "train.micro_batches computes a larger batch in parts, each in the memory of one; run.on_oom=accumulate "
        "does so by itself if memory runs out"
    )


def stalls(s: Measurements) -> Iterator[str]:
    every = s.option("run.checkpoint")
    if isinstance(every, int):
        often = counted(every, "steps") if every > 1 else "step"
        yield f"checkpoints are written every {often}: write them less often"
    if (s.pauses or 0) >= 0.15 and (number(s.option("train.validation_split")) or 0) > 0:
        yield "evaluation takes long: lower train.validation_split, or make epochs longer"


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


# The gain is at most the wait, and only a change of the slowest stage may gain all of it, as stages run in parallel;
# of other stages there is an estimate.
def for_input(s: Measurements) -> Iterator[Remedy | str]:
    data = str(s.option("workload.data"))
    if s.option("input.cache") == "off" and _share(s, LOADING) >= STAGE_WORTH and _passes(s) >= 1.5:
        needed, free = (s.train_samples or 0) * (s.sample_bytes or 0), s.host_memory_free_bytes
        if free is not None and needed > ROOM_FOR_CACHE * free:
            yield (
                f"a cache would save reading, but {size(needed)} do not fit into {size(free)} of free memory: "
                "set input.cache to a folder on a fast disk"
            )
        else:
            most, about = _expected(s, LOADING)
            takes = f"; decoded they take {size(needed)}" if needed else ""  # not known of every code
            why = f"each epoch reads and decodes the same samples again{takes}{about}"
            yield Remedy("input", {"input.cache": "memory"}, why, expected_gain=most)
        encoded = data.startswith("tfrecord:") and s.option("workload.tfrecord_encoding") == "encoded"
        decodes = data.startswith("images:") or encoded
        if s.option("workload.entry"):
            decodes = any(_is_one_of(stage, ("load",)) for stage in s.stages)
        if decodes:  # after how many epochs that pays, only the command's --estimate measures
            ms = sum(stage_ms(stage) or 0.0 for stage in s.stages if _is_one_of(stage, LOADING))
            each = f" ({with_unit(ms, 'ms')} per batch)" if ms else ""
            yield (
                f"each epoch reads and decodes the same samples again{each}; gputui prepare --preset PRESET -o FOLDER "
                "does it once for all runs, and with --estimate measures after how many epochs that pays"
            )
    # only TFRecord files have a stage for reading; others are read by the stage `load`
    one_by_one = s.option("input.parallel_reads") == "off" and data.startswith("tfrecord:")
    if one_by_one and _share(s, READING) >= STAGE_WORTH:
        most, about = _expected(s, READING)
        why = f"the TFRecord files are read one by one; reading several in parallel hides the disk's delay{about}"
        yield Remedy("input", {"input.parallel_reads": "auto"}, why, expected_gain=most, changes_learning=True)
    calls, threads = s.option("input.parallel_calls"), max(1, whole(s.option("input.private_threads")) or s.cpus or 1)
    at_once = max(1, whole(calls) or 1)
    if calls not in ("auto", None) and not 1 < threads <= at_once and _share(s, MAPPED) >= STAGE_WORTH:
        most, about = _expected(s, MAPPED)
        number_of = "one" if calls == "off" else calls
        why = f"samples are prepared {number_of} at a time; this machine has {s.cpus or 1} CPUs{about}"
        left = _waited(s) * _share(s, MAPPED) * at_once / threads  # share of the step, if all threads share this work
        most = None if most is None else min(most, round(1 / left, 2))
        yield Remedy("input", {"input.parallel_calls": "auto"}, why, expected_gain=most)
    # with prefetching, a step still takes as long as the longer one of input and computing
    if s.option("input.prefetch") == "off":
        why = "nothing is prepared while the model computes"
        yield Remedy("input", {"input.prefetch": "auto"}, why, expected_gain=gain(min(_waited(s), 1 - _waited(s))))
    # pinned to the CPUs of the GPU's NUMA node, the pipeline can use only these
    if s.numa.startswith("on CPUs"):
        why = f"the input pipeline runs only {s.numa}; off lets it use all CPUs"
        yield Remedy("input", {"device.numa": "off"}, why)
    if s.disk_waited_for:
        yield "the disk is slow: copy the data to a local one, or write TFRecord shards"
    given = s.option("input.augment")
    costly = given == "heavy" or (isinstance(given, list) and not set(given) <= set(MOVED))
    if costly and _share(s, ("augment",)) >= 0.5:
        named = "heavy" if given == "heavy" else ",".join(given)
        yield f"most of the input's work is augment={named}; light takes far less time"


def for_transfer(s: Measurements) -> Iterator[Remedy | str]:
    """Yield remedies for copies to the GPU."""
    copying = s.transfer or 0.0
    if not s.device_batches:
        ahead = {"input.prefetch_to_device": "auto" if s.option("input.prefetch") != "off" else 2}
        why = "each step waits for the copy of its batch; copies made in advance overlap with computing"
        yield Remedy("input", ahead, why, expected_gain=gain(min(copying, 1 - copying)))
    if s.option("input.cast") == "host" and "input.cast" not in s.inapplicable:
        why = "uint8 images are copied to the GPU as float32; as bytes they are a quarter of the size"
        yield Remedy("input", {"input.cast": "device"}, why, expected_gain=gain((1 - BYTE_SHARE) * copying))
    if s.device_batches or "input.cast" in s.inapplicable:
        yield "copy fewer bytes: 16-bit numbers, or uint8 that the model converts"


def in_the_data(s: Measurements) -> Remedy:
    cores = "all CPU cores are busy; " if s.cores_busy else ""
    if s.crowded:
        cores = f"other programs use {share(s.others_cpu)} of the CPU; "
    stage = s.slowest_stage
    if stage is None and s.in_script:
        return Remedy("input", {}, f"{cores}{IN_SCRIPT}")
    if stage is None:
        return Remedy("input", {}, f"{cores}no option is left that could speed up the input: {ANY_STAGE}")
    name = str(stage["name"])
    if s.of_script or s.inapplicable.get("input.parallel_calls") == BATCHED:
        slow = f"the slowest stage of your pipeline is {name} ({with_unit(stage_ms(stage), 'ms')} per batch)"
        if s.in_script:
            return Remedy("input", {}, f"{cores}{slow}: {IN_SCRIPT}")
        return Remedy("input", {}, f"{cores}{slow}: {SINGLE_SAMPLES}", code=SINGLE_SAMPLES_CODE)
    advice = next((text for stage_name, text in ADVICE.items() if name.startswith(stage_name)), ANY_STAGE)
    slowest = f"its slowest stage is {name} ({with_unit(stage_ms(stage), 'ms')} per batch)"
    return Remedy("input", {}, f"{cores}no option is left that could speed up the input; {slowest}: {advice}")


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
    return sum(stage_ms(stage) or 0.0 for stage in s.stages if _is_one_of(stage, names)) / whole if whole else 1.0


def _is_one_of(stage: Mapping[str, object], names: Sequence[str]) -> bool:
    return str(stage["name"]).startswith(tuple(names))


def _passes(s: Measurements) -> float:
    steps = (number(s.option("train.epochs")) or 1) * (s.steps_per_epoch or 0)
    return steps / math.ceil(s.train_samples / s.global_batch_size) if s.train_samples and s.global_batch_size else 1.0
