"""Remedies for a training that computes too slowly: changes of options, or advice, with a reason and the greatest
possible gain, if known. Only a measurement decides if they help (proof/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..files.values import number, whole
from ..interpreter.compatibility import xla_aborts
from ..telemetry.chips import BFLOAT16_CAPABILITY, FLOAT16_CAPABILITY
from ..units import counted
from .measurements import FEW_STEPS, GPU_FULL, MUCH_PYTHON, ROOM_FOR_BATCH, Measurements

Step = Literal["input", "device", "precision", "xla", "gpus"]
_CANNOT = "XLA cannot compile"  # the beginning of the reason if a layer does not support XLA


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of options, or advice without changes. `expected_gain` is the greatest possible speed-up (1.05: 5 %
    faster), None if only measuring shows it. `changes_learning`: to another trained model. `step` is the part of the
    training. `code` are lines that the user writes.
    """

    step: Step
    changes: Mapping[str, Any] = field(default_factory=dict)
    reason: str
    expected_gain: float | None = None
    changes_learning: bool = False
    code: Sequence[str] = ()


def gain(saved: float) -> float | None:
    """Return the speed-up (1.05: 5 % faster) if the share `saved` is saved. None for 0 or at least 0.99."""
    return round(1 / (1 - saved), 2) if 0 < saved < 0.99 else None


# ---- one device -------------------------------------------------------------------------------


def python_overhead(s: Measurements) -> Iterator[Remedy]:
    """Yield remedies for time that Python takes between steps, with much of it on a GPU first a larger batch:
    TensorFlow waits at each step for copies between host and device, also within one call of several.
    """
    much = (s.python_share or 0.0) >= MUCH_PYTHON
    if s.on_gpu and much:
        yield from larger_batch(s)
    yield from _steps(s)
    if much and _steps_per_execution(s) >= FEW_STEPS:
        yield from larger_batch(s)


def _steps(s: Measurements) -> Iterator[Remedy]:
    if _steps_per_execution(s) < FEW_STEPS:
        yield Remedy(
            step="device",
            changes={"compile.steps_per_execution": FEW_STEPS},
            reason=f"{FEW_STEPS} steps in one call share its cost in Python and in TensorFlow",
        )  # no bound: the cost of a call within TensorFlow is not measured apart from the step


def _steps_per_execution(s: Measurements) -> float:
    return number(s.option("compile.steps_per_execution")) or 1


def underfilled(s: Measurements) -> Iterator[Remedy]:
    yield from _xla(s)
    yield from larger_batch(s)
    if s.option("device.gpu_thread_mode") == "global" and (s.busy_mean is None or s.busy_mean < GPU_FULL):
        yield Remedy(
            step="device",
            changes={"device.gpu_thread_mode": "gpu_private"},
            reason="the input pipeline may delay kernel launches; this gives them threads of their own",
        )
    yield from _steps(s)


def larger_batch(s: Measurements) -> Iterator[Remedy]:
    batch = whole(s.option("input.batch_size"))
    fits = not s.on_gpu if s.memory_peak is None else s.memory_peak <= ROOM_FOR_BATCH
    enough = (s.global_batch_size or 0) * 4 <= (s.train_samples or 0)
    parts = whole(s.option("train.micro_batches")) or 1
    if parts > 1 and fits:
        yield Remedy(
            step="device",
            changes={"train.micro_batches": -(-parts // 2)},
            reason=f"each batch is computed in {parts} parts; the memory allows parts of twice the size",
            expected_gain=2.0,
        )
    elif batch is not None and fits and enough:
        yield Remedy(
            step="device",
            changes={"input.batch_size": 2 * batch},
            reason="a step has too little work; the memory allows twice the batch",
            expected_gain=2.0,
            changes_learning=True,
        )


# ---- computing --------------------------------------------------------------------------------


def computing(s: Measurements) -> Iterator[Remedy]:
    yield from precision(s)
    yield from _xla(s)
    if s.on_gpu and s.idle_gpus and s.option("strategy.kind") == "single":
        gpus = s.gpus + s.idle_gpus
        yield Remedy(
            step="gpus",
            changes=_visible(s) | {"strategy.kind": "mirrored"},
            reason=f"{s.idle_gpus} more GPU(s) are idle; the global batch grows with them",
            expected_gain=float(gpus),
            changes_learning=True,
        )


def bandwidth(s: Measurements) -> Iterator[Remedy]:
    """Yield remedies for a GPU that waits for its memory: 16-bit numbers need half the bytes, and XLA joins kernels
    that would pass data on through it.
    """
    yield from precision(s)
    yield from _xla(s)
    yield Remedy(
        step="xla",
        reason="kernels that compute little for each number wait for the GPU's memory: fuse activations and "
        "normalization, leave out copies and transpositions; a larger batch does not help",
    )


def _visible(s: Measurements) -> dict[str, Any]:
    # empty if "all" shows exactly these GPUs, as only they are allocated to the job
    if s.given_gpus is None and s.usable_gpus is None:
        return {"device.visible": "all"}
    if s.usable_gpus in (None, s.given_gpus) and s.option("device.visible") == "all":
        return {}
    return {"device.visible": list(s.usable_gpus or s.given_gpus or ())}


def precision(s: Measurements) -> Iterator[Remedy]:
    """Yield remedies that use number formats which the device multiplies faster. Nothing if precision.policy is not
    float32.
    """
    if s.option("precision.policy") != "float32":
        return
    if s.on_gpu and s.option("precision.tf32") is False and (s.compute_capability or (0, 0)) >= BFLOAT16_CAPABILITY:
        yield Remedy(
            step="precision",
            changes={"precision.tf32": True},
            reason="this GPU multiplies float32 several times faster in TensorFloat-32",
            changes_learning=True,
        )
    policy = _sixteen_bits(s)
    if policy:
        yield Remedy(
            step="precision",
            changes={"precision.policy": policy},
            reason=f"the device supports {policy.removeprefix('mixed_')}, which is not used",
            changes_learning=True,
        )


def _sixteen_bits(s: Measurements) -> str | None:
    if not s.on_gpu:
        return "mixed_bfloat16" if s.cpu_bfloat16 else None
    capability = s.compute_capability or (0, 0)
    if capability >= BFLOAT16_CAPABILITY:
        return "mixed_bfloat16"
    return "mixed_float16" if capability >= FLOAT16_CAPABILITY else None


def _xla(s: Measurements) -> Iterator[Remedy]:
    never = s.xla_reason.startswith(_CANNOT) or (s.on_gpu and xla_aborts(s.newest_capability))
    if s.uses_xla or s.option("train.deterministic") or never:
        return
    changes: dict[str, Any] = {"compile.xla": True}
    if s.option("input.drop_remainder") is False and (s.train_samples or 0) % (s.global_batch_size or 1):
        changes["input.drop_remainder"] = True
    both = ", and steps of one shape compile only once" if len(changes) > 1 else ""
    off = f"; auto leaves it off here: {s.xla_reason}" if s.option("compile.xla") == "auto" and s.xla_reason else ""
    yield Remedy(
        step="xla",
        changes=changes,
        reason=f"XLA fuses small operations into few kernels{both}; some models get faster{off}",
    )


# ---- advice -----------------------------------------------------------------------------------


def advice(reason: str) -> Callable[[Measurements], Iterator[Remedy]]:
    """Return a function that yields one remedy without changes, with this reason."""

    def remedies(_s: Measurements) -> Iterator[Remedy]:
        yield Remedy(step="device", reason=reason)

    return remedies


def memory_limit(s: Measurements) -> Iterator[Remedy]:
    yield from precision(s)
    yield Remedy(step="device", reason="no larger batch fits; 16-bit precision halves what the layers keep")
    if s.gpu_neighbours:
        yield Remedy(step="device", reason=f"other programs take memory of this GPU: {', '.join(s.gpu_neighbours)}")
    yield Remedy(
        step="device",
        reason="train.micro_batches computes a larger batch in parts, each in the memory of one; run.on_oom=accumulate "
        "does so by itself if memory runs out",
    )


def stalls(s: Measurements) -> Iterator[Remedy]:
    every = s.option("run.checkpoint")
    if isinstance(every, int):
        often = counted(every, "steps") if every > 1 else "step"
        yield Remedy(step="device", reason=f"checkpoints are written every {often}: write them less often")
    if (s.pauses or 0) >= 0.15 and (number(s.option("train.validation_split")) or 0) > 0:
        yield Remedy(step="device", reason="evaluation takes long: lower train.validation_split, or make epochs longer")


def throttled(s: Measurements) -> Iterator[Remedy]:
    yield Remedy(step="device", reason=f"check the machine's cooling and power supply ({', '.join(s.throttle)})")
