"""Finds the straggler: the GPU or the worker that the others wait for in each step, and why it is slow.

All replicas have the same work in a step, so a step takes as long as on the slowest one (Chen et al. 2016, Revisiting
Distributed Synchronous SGD, on stragglers). Of several GPUs in one machine, the slow one is busy for longer than the
waiting ones; NCCL's kernels count as busy while they wait, which hides this, but its lower clock still shows. Of
several workers, the shares of their steps that they wait for their own input are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..files.values import number, whole
from ..runs.events import WorkerReadings
from ..units import share
from .accumulators import Reading, mean

# Throttle reasons (telemetry/questions.py) that somebody could remove; the power cap is the chip's normal
# limit at full load.
SLOWING = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
POWER_CAP = "power cap"
BUSY_APART, CLOCK_APART = 0.20, 0.10  # from here on GPUs differ, of the time and of the clock (gputui)
OFTEN = 0.10  # more of its readings than of the others': then a reason is its own
WORKS = 0.5  # an idle GPU lowers its clock
LEAST_READINGS = 5
SCREEN_BYTES = 1024**3  # a screen and its programs take less of a GPU's memory


def gpu_figures(gpus: Sequence[Collection[Reading]]) -> dict[str, Any]:
    """The gaps between GPUs, given the readings of each, and the slow one with what is known of its cause."""
    busy = [mean(readings, "busy") for readings in gpus]
    clocks = [_clock(readings) for readings in gpus]
    busy_gap, clock_gap = _gap(busy), _clock_gap(clocks)
    slow = None
    if clock_gap is not None and clock_gap >= CLOCK_APART:
        slow = min(range(len(gpus)), key=lambda place: clocks[place] or 0.0)
    elif busy_gap is not None and busy_gap >= BUSY_APART:
        slow = max(range(len(gpus)), key=lambda place: busy[place] or 0.0)
    told: dict[str, Any] = {"busy_gap": busy_gap, "clock_gap": clock_gap}
    if slow is None:
        return told
    others = [readings for place, readings in enumerate(gpus) if place != slow]
    return told | {
        "slow_gpu": whole(_latest(gpus[slow]).get("index")),
        "slow_gpu_busy": busy[slow],
        "slow_gpu_causes": tuple(_causes(gpus[slow], others)),
    }


def _gap(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) - min(known) if len(known) > 1 else None


def _clock(readings: Collection[Reading]) -> float | None:
    """The mean clock while it works; None where there are too few readings of that."""
    found = [clock for one in readings if (number(one.get("busy")) or 0.0) >= WORKS
             and (clock := number(one.get("sm_clock_mhz"))) is not None]  # fmt: skip
    return statistics.fmean(found) if len(found) >= LEAST_READINGS else None


def _clock_gap(clocks: Sequence[float | None]) -> float | None:
    """How much lower the lowest clock is than the median of the others; only where all are known."""
    known = sorted(clock for clock in clocks if clock)
    if len(known) < 2 or len(known) < len(clocks):
        return None
    return 1 - known[0] / statistics.median(known[1:])


def _causes(slow: Collection[Reading], others: Sequence[Collection[Reading]]) -> Iterator[str]:
    """What the readings of the slow GPU have that those of the others have not, in words."""
    for reason in (*SLOWING, POWER_CAP):
        own = _often(slow, reason)
        if own >= max((_often(one, reason) for one in others), default=0.0) + OFTEN:
            yield f"it is slowed down in {share(own)} of its readings ({reason})"
    elsewhere = {name for readings in others for one in readings for name in neighbours(one)}
    if foreign := dict.fromkeys(name for one in slow for name in neighbours(one) if name not in elsewhere):
        yield f"another program uses it ({', '.join(foreign)})"
    if set_by := [word for word in _latest(slow).get("clocks_set_by") or () if isinstance(word, str)]:
        yield f"its clocks were set by somebody ({', '.join(set_by)})"
    model, models = _latest(slow).get("name"), {_latest(one).get("name") for one in others}
    if isinstance(model, str) and model not in models and None not in models:
        yield f"it is another model ({model})"


def _often(readings: Collection[Reading], reason: str) -> float:
    """The share of the readings with this throttle reason."""
    return sum(reason in (one.get("throttle") or ()) for one in readings) / len(readings) if readings else 0.0


def neighbours(gpu: Reading) -> list[str]:
    """Other programs on a GPU of the run, with more memory than a screen takes."""
    return [
        str(process.get("name") or f"process {process.get('pid')}")
        for process in gpu.get("processes") or ()
        if isinstance(process, Mapping)
        and process.get("own") is False
        and (number(process.get("memory_used_bytes")) or 0) >= SCREEN_BYTES
    ]


def _latest(readings: Collection[Reading]) -> Reading:
    return list(readings)[-1] if readings else {}


# ---- workers of several machines ---------------------------------------------------------------


WAITS_APART = 0.10  # of the step, from which on a worker is said to wait longer than the others (gputui)


def worker_figures(readings: Collection[WorkerReadings]) -> dict[str, Any]:
    """By how much more of its steps one worker waits than the others do, and which; nothing without two of them."""
    waits: dict[int, list[float]] = {}
    addresses: dict[int, str] = {}
    for one in (one for reading in readings for one in reading.workers):
        index, wait = whole(one.get("index")), number(one.get("input_wait"))
        if index is not None and wait is not None:
            waits.setdefault(index, []).append(wait)
            addresses[index] = str(one.get("address", ""))
    means = {index: statistics.fmean(found) for index, found in waits.items()}
    if len(means) < 2:
        return {}
    last = max(means, key=lambda index: means[index])
    gap = means[last] - statistics.median(wait for index, wait in means.items() if index != last)
    told = {"worker_gap": gap}
    if gap < WAITS_APART:
        return told
    return told | {"slow_worker": f"worker {last} ({addresses[last]})", "slow_worker_wait": means[last]}
