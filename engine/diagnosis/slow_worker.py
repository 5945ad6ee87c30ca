"""Which worker of a training on several machines the others wait for, as it waits for its own input.

All workers take each step together, so that a step takes as long as on the slowest (Chen et al. 2016, Revisiting
Distributed Synchronous SGD, on stragglers). What is compared is the share of its steps that each waits for its input.
How long the exchange between the workers takes is told apart from it (worker_exchange.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from typing import Any

from ..files.values import number, whole
from ..runs.events import WorkerReadings

WAITS_APART = 0.10  # of the step, from which on a worker is said to wait longer than the others (gputui)


def figures(readings: Collection[WorkerReadings]) -> dict[str, Any]:
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
