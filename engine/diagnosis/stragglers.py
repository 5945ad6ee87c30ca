"""Finds the GPU or worker that the others wait for in each step (Chen et al. 2016, Revisiting Distributed Synchronous
SGD), and low clocks, with causes and remedies. A slow GPU is busy for longer; NCCL's kernels count as busy while they
wait, which hides this, but its lower clock still shows. Workers are compared by their waits for input.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from .. import figures as declared
from ..files.values import whole
from ..gpu import Gpu
from ..plan import MULTI_WORKER
from ..runs.events import GradientExchange, Remedy, Started, WorkerReadings
from ..telemetry.gpu_totals import GpuTotals
from ..units import rate, share, size
from .measurements import HOT, ROOM_FOR_BATCH, SCREEN_BYTES, Measurements, mean, numbers
from .remedies import gain, larger_batch

# Throttle reasons (telemetry/nvml/queries.py) whose cause can be removed; the power cap is the chip's normal limit at
# full load.
SLOWING = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
POWER_CAP = "power cap"
BUSY_APART, CLOCK_APART = 0.20, 0.10  # differences between GPUs, of the busy time and of the clock
CAUSE_APART = 0.10  # a throttle reason that a GPU has in more of its readings than the others is a cause of its own
CLOCK_COUNTS = 0.5  # busy share of a reading from which its clock counts: an idle GPU lowers its clock
LEAST_CLOCKS = 5  # readings for a mean clock
WAITS_APART = 0.10  # share of the step by which one worker waits longer for its input than the others
POWER_EXPLAINS = 0.50  # share of the time at the power limit, from which the limit explains a low clock
LOWERED = 0.95  # of the default power limit; a limit below it was set by a person


# ---- GPUs -------------------------------------------------------------------------------------


def gpu_figures(gpus: Sequence[Sequence[Gpu]]) -> dict[str, Any]:
    """Return the gaps between the GPUs and, if one is slow, which and why, as fields of Measurements."""
    busy = [mean(readings, "busy") for readings in gpus]
    shares = [share for share in busy if share is not None]
    busy_gap = max(shares) - min(shares) if len(shares) > 1 else None
    clocks = list[float | None]()  # over the readings in which the GPU works
    for readings in gpus:
        at_work = numbers((gpu for gpu in readings if (gpu.busy or 0.0) >= CLOCK_COUNTS), "sm_clock_mhz")
        clocks.append(statistics.fmean(at_work) if len(at_work) >= LEAST_CLOCKS else None)
    rising = sorted(clock for clock in clocks if clock)
    # how much the lowest clock is below the median of the others (0 to 1)
    clock_gap = 1 - rising[0] / statistics.median(rising[1:]) if len(rising) == len(clocks) > 1 else None
    slow = None
    if clock_gap is not None and clock_gap >= CLOCK_APART:
        slow = min(range(len(gpus)), key=lambda place: clocks[place] or 0.0)
    elif busy_gap is not None and busy_gap >= BUSY_APART:
        slow = max(range(len(gpus)), key=lambda place: busy[place] or 0.0)
    gaps: dict[str, Any] = {"busy_gap": busy_gap, "clock_gap": clock_gap}
    if slow is None:
        return gaps
    others = [readings for place, readings in enumerate(gpus) if place != slow]
    return gaps | {
        "slow_gpu": gpus[slow][-1].index,
        "slow_gpu_busy": busy[slow],
        "slow_gpu_causes": tuple(_causes(gpus[slow], others)),
    }


def _causes(slow: Sequence[Gpu], others: Sequence[Sequence[Gpu]]) -> Iterator[str]:
    """Properties that the slow GPU has in its readings and the other GPUs do not have."""
    for reason in (*SLOWING, POWER_CAP):
        own = _often(slow, reason)
        if own >= max((_often(readings, reason) for readings in others), default=0.0) + CAUSE_APART:
            yield f"it is slowed down in {share(own)} of its readings ({reason})"
    elsewhere = {name for readings in others for reading in readings for name in neighbours(reading)}
    if foreign := dict.fromkeys(name for reading in slow for name in neighbours(reading) if name not in elsewhere):
        yield f"another program uses it ({', '.join(foreign)})"
    if set_by := slow[-1].clocks_set_by:
        yield f"its clocks were set by somebody ({', '.join(set_by)})"
    model, models = slow[-1].name, {readings[-1].name for readings in others}
    if model is not None and model not in models and None not in models:
        yield f"it is another model ({model})"


def _often(readings: Sequence[Gpu], reason: str) -> float:
    return sum(reason in (gpu.throttle or ()) for gpu in readings) / len(readings)


def neighbours(gpu: Gpu) -> list[str]:
    """Return the names of other programs on a GPU of the run that use more memory than drawing a screen takes."""
    return [
        process.name or f"process {process.pid}"
        for process in gpu.processes or ()
        if process.own is False and (process.memory_used_bytes or 0) >= SCREEN_BYTES
    ]


def gpu_remedies(s: Measurements) -> Iterator[str]:
    if s.slow_gpu is None or not s.slow_gpu_causes:
        which = "the busier GPUs" if s.slow_gpu is None else f"GPU {s.slow_gpu}, which the others wait for"
        about = f"look for other processes on {which}, for GPUs of different models, and for a narrow PCIe link"
        yield f"{about} (gputui doctor)"
        return
    yield (
        f"GPU {s.slow_gpu} is slower than the others: {'; '.join(s.slow_gpu_causes)}; remove the cause, or "
        "leave it out with strategy.devices if it costs more than it computes"
    )


# ---- workers of several machines --------------------------------------------------------------


def worker_figures(readings: Collection[WorkerReadings]) -> dict[str, Any]:
    """Return the worker that waits most for input as fields of Measurements, named from WAITS_APART on."""
    waits: dict[int, list[float]] = {}
    addresses: dict[int, str] = {}
    for worker in (worker for reading in readings for worker in reading.workers):
        if (wait := worker.get("input_wait")) is not None:
            waits.setdefault(worker["index"], []).append(wait)
            addresses[worker["index"]] = worker["address"]
    means = {index: statistics.fmean(shares) for index, shares in waits.items()}
    if len(means) < 2:
        return {}
    slowest = max(means, key=lambda index: means[index])
    gap = means[slowest] - statistics.median(wait for index, wait in means.items() if index != slowest)
    if gap < WAITS_APART:
        return {"worker_gap": gap}
    name = f"worker {slowest} ({addresses[slowest]})"
    return {"worker_gap": gap, "slow_worker": name, "slow_worker_wait": means[slowest]}


# ---- the exchange of gradients --------------------------------------------------------------------


def figures(exchange: GradientExchange | None, started: Started | None, step_ms: float | None) -> dict[str, Any]:
    """Return time, share, size and rate of the gradient exchange, and the hosts. Empty if it was not timed."""
    if exchange is None or not exchange.ms or not step_ms:
        return {}
    hosts = list(dict.fromkeys(str(worker.get("host")) for worker in started.workers)) if started else []
    return {
        "worker_exchange": min(1.0, exchange.ms / step_ms),
        "exchange_ms": exchange.ms,
        "exchanged": f"{size(exchange.bytes)} of gradients",
        "exchange_rate": rate(1000 * exchange.bytes / exchange.ms),
        "hosts": tuple(hosts),
    }


# ---- remedies ---------------------------------------------------------------------------------


def remedies(s: Measurements) -> Iterator[Remedy | str]:
    """Yield remedies for the exchange of gradients, which is once in a step, however many samples and parts it has."""
    if s.option("strategy.kind") == MULTI_WORKER:
        batch, parts = whole(s.option("input.batch_size")), whole(s.option("train.micro_batches")) or 1
        if batch is not None and (s.global_batch_size or 0) * 4 <= (s.train_samples or 0):
            fits = not s.on_gpu if s.memory_peak is None else s.memory_peak <= ROOM_FOR_BATCH
            in_parts = {} if fits else {"train.micro_batches": 2 * parts}
            so = "" if fits else "; computed in twice as many parts it needs no more memory"
            why = f"gradients are exchanged once per step: with twice the batch on each worker half as often{so}"
            saved, changes = gain((s.worker_exchange or 0.0) / 2), {"input.batch_size": 2 * batch} | in_parts
            yield Remedy("gpus", changes, why, expected_gain=saved, changes_learning=True)
        if len(s.hosts) < 2:
            where, single = s.hosts[0] if s.hosts else "one machine", "a single process with strategy.kind=mirrored"
            yield f"all workers run on {where}: {single} exchanges without a network"
            return
        between = " and ".join(s.hosts) if len(s.hosts) == 2 else f"{len(s.hosts)} machines"
        choice = "; the addresses of the workers (--cluster, TF_CONFIG) choose the network"
        if s.on_gpu:
            choice = (
                ", or NCCL's choice of another: NCCL_DEBUG=INFO writes it into the log, NCCL_SOCKET_IFNAME and "
                "NCCL_IB_HCA name the one to use"
            )
        yield f"{s.exchanged} pass between {between} at {s.exchange_rate}: a faster network would help{choice}"
        return
    if s.option("strategy.communication") in ("auto", "nccl") and s.nvlink is False:
        why = "these GPUs exchange nothing over NVLink: sums on one device can be faster than NCCL"
        yield Remedy("gpus", {"strategy.communication": "reduction_to_one_device"}, why)
    yield from larger_batch(s)
    yield (
        "gradients are exchanged once per step: with a larger batch for each GPU they are exchanged less often; "
        "train.gradient_accumulation cannot do this: it works only with strategy.kind=single"
    )
    yield (
        "set NCCL_DEBUG=INFO in the environment: the log then shows how NCCL copies: P2P directly between "
        "GPUs, SHM through the host's memory"
    )


# ---- low clocks of training GPUs ------------------------------------------------------------------

# A chip at its default power limit lowers its clock under full load by design (an L4 or T4 to half); a lowered limit,
# set clocks and low clocks without a reason are faults.


def clock_figures(gpus: Sequence[Gpu], totals: GpuTotals) -> dict[str, Any]:
    """Return the clock figures of the training GPUs, from last readings and sums, as fields of Measurements."""
    limits = [(gpu.power_limit_w, gpu.power_limit_default_w) for gpu in gpus
              if gpu.power_limit_w is not None and gpu.power_limit_default_w]  # fmt: skip
    lowest = min(limits, key=lambda pair: pair[0] / pair[1], default=(None, None))
    set_by = [word for gpu in gpus for word in gpu.clocks_set_by or ()]
    return {
        "clock_share": totals.mean("clock_share"),
        "sm_clock_mhz": totals.mean("sm_clock_mhz"),
        "max_sm_clock_mhz": totals.mean("max_sm_clock_mhz"),
        "power_capped": totals.slowed_by("power"),
        "power_limit_w": lowest[0],
        "power_limit_default_w": lowest[1],
        "clocks_set_by": tuple(dict.fromkeys(set_by)),
        "gpu_indexes": tuple(gpu.index for gpu in gpus),
    }


def limit_is_low(s: Measurements) -> bool:
    """Return True if the power limit was set clearly (5 %) below the default. False if one of them is unknown."""
    limit, default = s.power_limit_w, s.power_limit_default_w
    return limit is not None and default is not None and limit < LOWERED * default


def clock_is_held(s: Measurements) -> bool:
    """Return True if the GPU works, and a low clock has a removable cause (not heat or the default power limit)."""
    works = s.on_gpu and s.gpu_works and (s.throttled or 0.0) < HOT
    return works and (limit_is_low(s) or (s.power_capped or 0.0) < POWER_EXPLAINS)


def clock_cause(s: Measurements) -> str:
    """Return the cause of the low clock: a lowered power limit, or clocks that were set. Empty if unknown."""
    if limit_is_low(s):
        return f"power limit {_watts(s.power_limit_w)} of {_watts(s.power_limit_default_w)}"
    return f"set: {', '.join(s.clocks_set_by)}" if s.clocks_set_by else ""


def clock_evidence(s: Measurements) -> str:
    """Return the end of a sentence about the clock, with `{}` for its value. Empty if the highest clock is unknown."""
    if s.max_sm_clock_mhz is None:
        return ""
    most = declared.measurement("max_sm_clock_mhz").text(s.max_sm_clock_mhz)
    held = ""
    if (s.power_capped or 0.0) >= POWER_EXPLAINS and not limit_is_low(s):
        default = f" of {_watts(s.power_limit_w)}, the default," if s.power_limit_w else ""
        held = f"; its power limit{default} holds it there, which is usual at full load"
    return f"its clock is {{}} of at most {most}{held}"


def clock_remedies(s: Measurements) -> Iterator[str]:
    gpus = ",".join(map(str, s.gpu_indexes))
    command = f"nvidia-smi -i {gpus}" if gpus else "nvidia-smi"
    if limit_is_low(s):
        yield (
            f"the power limit is {_watts(s.power_limit_w)}, and the default {_watts(s.power_limit_default_w)}: "
            f"as root {command} -pl {round(s.power_limit_default_w or 0)}, unless somebody has lowered it on purpose"
        )
    elif s.clocks_set_by:
        yield (
            f"somebody has set the clocks ({', '.join(s.clocks_set_by)}): as root {command} -rac resets "
            f"application clocks, and {command} -rgc releases locked ones"
        )
    else:
        yield (
            f"the driver gives no reason for the low clock: as root {command} -rgc releases locked clocks; "
            f"{command} -q -d CLOCK,POWER,PERFORMANCE shows its limits"
        )


def _watts(value: float | None) -> str:
    return declared.measurement("power_limit_w").text(value)
