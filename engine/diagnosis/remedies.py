"""Changes of options that could make a training faster, in the order in which they are worth trying.

Each remedy has a reason and, where the figures show it, the greatest possible gain. Whether it helps is decided only by
measuring (proof/). The order is that of TensorFlow's guide to GPU performance: input, one device, precision, XLA,
several GPUs; one change at a time. For a GPU that has too little to do XLA comes first: it makes few kernels of many
small ones, and changes nothing that is learnt. A remedy without changes is advice for the user. Remedies for the input
are in remedies_input.py, those for the exchange between machines in exchange.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..files.values import number, whole
from ..interpreter.compatibility import xla_aborts
from ..telemetry.chips import BFLOAT16_CAPABILITY, FLOAT16_CAPABILITY
from ..units import counted
from . import clocks
from .exchange import for_exchange
from .measurements import GPU_FULL, Measurements
from .remedies_input import for_input, for_transfer, in_the_data
from .remedy import ROOM_FOR_BATCH, Remedy

ORDER = ("input", "device", "precision", "xla", "gpus")
UNDERFILLED_ORDER = ("input", "xla", "device", "precision", "gpus")
FEW_STEPS = 16  # steps in one execution: more hardly shorten a step (gputui's mlp on a CPU: 622 us at 1, 228 us at 50)
MUCH_PYTHON = 0.15  # share of the step from which Python decides
_CANNOT = "XLA cannot compile"  # the beginning of the reason where a layer does not support XLA


def remedies(measured: Measurements, verdicts: Sequence[str]) -> list[Remedy]:
    """The remedies for all verdicts, the most important first; each change once, in the order of trying."""
    makers: dict[str, Callable[[Measurements], Iterator[Remedy]]] = {
        "input_bound": for_input,
        "transfer_bound": for_transfer,
        "python_overhead": _python,
        "underfilled": _underfilled,
        "compute_bound": _computing,
        "low_clocks": clocks.remedies,
        "bandwidth_bound": _bandwidth,
        "memory_limit": _memory,
        "stalls": _stalls,
        "communication_bound": _communication,
        "retracing": _retracing,
        "throttled": _throttled,
        "memory_growing": _growing,
        "imbalance": _imbalance,
        "slow_worker": _slow_worker,
    }
    found: list[Remedy] = []
    for verdict in verdicts:
        for remedy in makers.get(verdict, _none)(measured):
            if remedy.changes not in [known.changes for known in found if known.changes]:
                found.append(remedy)
    if verdicts[:1] == ["input_bound"] and not any(remedy.step == "input" for remedy in found):
        found.append(in_the_data(measured))
    found = [_within_reach(remedy, measured.inapplicable) for remedy in found]
    order = UNDERFILLED_ORDER if verdicts[:1] == ["underfilled"] else ORDER
    return sorted(found, key=lambda remedy: (order.index(remedy.step), not remedy.changes))


def _within_reach(remedy: Remedy, inapplicable: Mapping[str, str]) -> Remedy:
    """Turns an option that has no effect on a user's own code into advice on that code."""
    out_of_reach = [inapplicable[key] for key in remedy.changes if key in inapplicable]
    if not out_of_reach:
        return remedy
    return Remedy(step=remedy.step, reason=f"in your code ({out_of_reach[0]}): {remedy.reason}")


def for_computing(measured: Measurements) -> list[Remedy]:
    """What is left to try where computing itself limits the speed."""
    return [remedy for remedy in _computing(measured) if remedy.changes]


def _none(_s: Measurements) -> Iterator[Remedy]:
    yield from ()


# ---- one device -------------------------------------------------------------------------------


def _python(s: Measurements) -> Iterator[Remedy]:
    """On a GPU a larger batch comes first: also within one call of several steps TensorFlow waits at each step for what
    passes between host and device.
    """
    much = (s.python_share or 0.0) >= MUCH_PYTHON
    if s.on_gpu and much:
        yield from _larger_batch(s)
    yield from _steps(s)
    if much and _steps_per_execution(s) >= FEW_STEPS:
        yield from _larger_batch(s)


def _steps(s: Measurements) -> Iterator[Remedy]:
    if _steps_per_execution(s) < FEW_STEPS:
        yield Remedy(
            step="device",
            changes={"compile.steps_per_execution": FEW_STEPS},
            reason=f"{FEW_STEPS} steps in one call share its cost in Python and in TensorFlow",
        )  # no bound: what a call costs within TensorFlow is not measured apart from the step


def _steps_per_execution(s: Measurements) -> float:
    return number(s.option("compile.steps_per_execution")) or 1


def _underfilled(s: Measurements) -> Iterator[Remedy]:
    yield from _xla(s)
    yield from _larger_batch(s)
    if s.option("device.gpu_thread_mode") == "global" and (s.busy_mean is None or s.busy_mean < GPU_FULL):
        yield Remedy(
            step="device",
            changes={"device.gpu_thread_mode": "gpu_private"},
            reason="the input pipeline may delay kernel launches; this gives them threads of their own",
        )
    yield from _steps(s)


def _larger_batch(s: Measurements) -> Iterator[Remedy]:
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


def _computing(s: Measurements) -> Iterator[Remedy]:
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


def _bandwidth(s: Measurements) -> Iterator[Remedy]:
    """16-bit numbers are half the bytes; XLA makes one kernel of several that pass data on through the memory."""
    yield from precision(s)
    yield from _xla(s)
    yield Remedy(
        step="xla",
        reason="kernels that compute little for each number wait for the GPU's memory: fuse activations and "
        "normalization, leave out copies and transpositions; a larger batch does not help",
    )


def _visible(s: Measurements) -> dict[str, Any]:
    """The change that makes the GPUs that train and the idle ones visible, and no others; "all" stays within the
    allocation of the job.
    """
    if s.given_gpus is None and s.usable_gpus is None:
        return {"device.visible": "all"}
    if s.usable_gpus in (None, s.given_gpus) and s.option("device.visible") == "all":
        return {}
    return {"device.visible": list(s.usable_gpus or s.given_gpus or ())}


def precision(s: Measurements) -> Iterator[Remedy]:
    """Formats that the device multiplies faster, and that are not used."""
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
    """The 16-bit format that the device supports best."""
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


def _memory(s: Measurements) -> Iterator[Remedy]:
    yield from precision(s)
    yield Remedy(step="device", reason="no larger batch fits; 16-bit precision halves what the layers keep")
    if s.gpu_neighbours:
        yield Remedy(step="device", reason=f"other programs take memory of this GPU: {', '.join(s.gpu_neighbours)}")
    yield Remedy(
        step="device",
        reason="train.micro_batches computes a larger batch in parts, each in the memory of one; run.on_oom=accumulate "
        "does so by itself where the memory runs out",
    )


def _stalls(s: Measurements) -> Iterator[Remedy]:
    every = s.option("run.checkpoint")
    if isinstance(every, int):
        often = counted(every, "steps") if every > 1 else "step"
        yield Remedy(step="device", reason=f"checkpoints are written every {often}: write them less often")
    if (s.pauses or 0) >= 0.15 and (number(s.option("train.validation_split")) or 0) > 0:
        yield Remedy(step="device", reason="evaluation takes long: lower train.validation_split, or make epochs longer")


def _communication(s: Measurements) -> Iterator[Remedy]:
    if s.option("strategy.kind") == "multi_worker":
        yield from for_exchange(s)
        return
    if s.option("strategy.communication") in ("auto", "nccl") and s.nvlink is False:
        yield Remedy(
            step="gpus",
            changes={"strategy.communication": "hierarchical_copy"},
            reason="these GPUs exchange nothing over NVLink: hierarchical copies can be faster than NCCL",
        )
    yield from _larger_batch(s)
    yield Remedy(
        step="gpus",
        reason="gradients are exchanged once per step: with a larger batch for each GPU they are exchanged less often; "
        "train.gradient_accumulation cannot do this: it works only with strategy.kind=single",
    )
    yield Remedy(
        step="gpus",
        reason="set NCCL_DEBUG=INFO in the environment: engine.log then shows how NCCL copies: P2P directly between "
        "GPUs, SHM through the host's memory",
    )


def _retracing(_s: Measurements) -> Iterator[Remedy]:
    reason = "inputs change their shape or Python values from step to step: pad or bucket them, pass tensors"
    yield Remedy(step="device", reason=reason)


def _throttled(s: Measurements) -> Iterator[Remedy]:
    yield Remedy(step="device", reason=f"check the machine's cooling and power supply ({', '.join(s.throttle)})")


def _growing(_s: Measurements) -> Iterator[Remedy]:
    yield Remedy(step="device", reason="look for lists that keep tensors, and for functions that are traced repeatedly")


def _imbalance(s: Measurements) -> Iterator[Remedy]:
    if s.slow_gpu is None or not s.slow_gpu_causes:
        which = "the busier GPUs" if s.slow_gpu is None else f"GPU {s.slow_gpu}, which the others wait for"
        about = f"look for other processes on {which}, for GPUs of different models, and for a narrow PCIe link"
        yield Remedy(step="gpus", reason=f"{about} (gputui doctor)")
        return
    yield Remedy(
        step="gpus",
        reason=f"GPU {s.slow_gpu} is slower than the others: {'; '.join(s.slow_gpu_causes)}; remove the cause, or "
        "leave it out with strategy.devices where it costs more than it computes",
    )


def _slow_worker(s: Measurements) -> Iterator[Remedy]:
    yield Remedy(
        step="input",
        reason=f"compare the machine of {s.slow_worker} with the others: its CPUs, other programs on them, and the "
        "disk or network that it reads from; gputui diagnose of its own run names the slowest stage of its input",
    )
