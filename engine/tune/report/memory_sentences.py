"""What is said about the memory of batch sizes in whole sentences, shared by all views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import units
from ...files.values import number
from .findings import limits_of, listed, memory_of

Told = Mapping[str, Any]
FAR = 8  # a prediction for a batch so many times larger than the measured ones is a guess
NEAR = 1.1  # a batch that is larger by less is as good as the one that was tried
_LIMITS = {
    "allocator": "that TensorFlow may take of a device",
    "process": "that the host has free",
    "address_space": "that ulimit -v allows of address space",
}


def prediction(memory: Told) -> str:
    """What a preset will take and the largest batch that fits: `batch 256 will take 11.3 GiB of the 14.6 GiB that ...`.

    `memory` is `search.memory` of a search that has only predicted.
    """
    size, failed = number(memory.get("batch_size")), number(memory.get("too_large"))
    if size is None:
        peaks = [peak for point in listed(memory.get("points")) if (peak := number(point.get("peak_bytes")))]
        own = "your code makes its own batches, so that other sizes are not predicted"
        return f"it takes {units.size(max(peaks, default=None))}{_of_limit(memory)}; {own}"
    if failed is not None and failed <= size:
        return f"{_batch(memory, size)} does not fit: {units.count(failed)} has run out of memory{_largest(memory)}"
    told = number(memory.get("predicted_bytes"))
    if told is None:
        return f"{_batch(memory, size)} cannot be predicted from one batch size{_largest(memory)}"
    verb = _will_take(memory, size, told)
    return f"{_batch(memory, size)} {verb} {units.size(told)}{_of_limit(memory)}{_first_step(memory)}{_largest(memory)}"


def _first_step(memory: Told) -> str:
    """A warning where the batch fits, but not what cuDNN takes in the first step to try its algorithms."""
    limit, later = number(memory.get("limit_bytes")), number(memory.get("predicted_bytes"))
    first = number(memory.get("first_step_bytes"))
    if limit is None or first is None or first <= limit or later is None or later > limit:
        return ""
    return (
        f"; its first step, in which cuDNN tries its algorithms, would take {units.size(first)}: it may run out of "
        "memory, or take slower ones"
    )


def _batch(memory: Told, size: float) -> str:
    replicas = number(memory.get("replicas")) or 1
    return f"batch {units.count(size)}" + (f" on each of {units.count(replicas)} devices" if replicas > 1 else "")


def _of_limit(memory: Told) -> str:
    limit, whose = number(memory.get("limit_bytes")), _LIMITS.get(str(memory.get("of")), "that there are")
    whose = "that you allow" if memory.get("limit_is_asked") else whose
    return "" if limit is None else f" of the {units.size(limit)} {whose}"


def _will_take(memory: Told, size: float, told: float) -> str:
    limit, largest = number(memory.get("limit_bytes")), number(memory.get("largest_batch"))
    if limit is not None and told > limit:
        if memory.get("limit_is_asked"):
            return "is above your limit: it takes"
        return "will run out of memory: it would take"
    tight = largest is not None and largest < size and not memory.get("at_least")
    return "may run out of memory: it will take" if tight else "will take"


def _largest(memory: Told) -> str:
    """The end of the sentence: the largest batch that leaves a tenth of the memory free."""
    largest, most = number(memory.get("largest_batch")), number(memory.get("most_batch"))
    if largest is None:
        return ""
    if largest < 1:
        return "; even 1 is too large"
    if largest == most:
        return f"; all up to {units.count(most)}, the largest that can be tried, fit with a tenth left free"
    which = f"{'at least' if memory.get('at_least') else 'about'} {units.count(largest)}{far(memory)}"
    return f"; the largest that fits, with a tenth left free, is {which}"


def far(memory: Told) -> str:
    """Where the prediction is far beyond what was measured, from which batches it is."""
    largest = number(memory.get("largest_batch")) or 0.0
    points = (point for point in listed(memory.get("points")) if number(point.get("peak_bytes")) is not None)
    measured = max((number(point.get("batch_size")) or 0.0 for point in points), default=0.0)
    return f" (a guess from batches up to {units.count(measured)})" if 0 < FAR * measured < largest else ""


def should_fit(memory: Told) -> str:
    """The largest batch that fits in a few words, for a line of its own: `batch 658 should fit into 14.6 GiB`."""
    largest, limit, fits, most = (number(memory.get(key)) for key in (
        "largest_batch", "limit_bytes", "fits", "most_batch"))  # fmt: skip
    if limit is None:
        return ""
    into = units.size(limit)
    if largest is None:
        return f"{into} may be taken"
    if largest < 1:
        return f"not even batch 1 fits into {into}"
    if largest == most:
        return f"batch {units.count(most)}, the largest that can be tried, {_fit(fits, largest)} into {into}"
    if fits is not None and largest <= NEAR * fits and not memory.get("at_least"):
        return f"batch {units.count(fits)} fits into {into}"
    which = f"at least batch {units.count(largest)}" if memory.get("at_least") else f"batch {units.count(largest)}"
    return f"{which} should fit into {into}{far(memory)}"


def _fit(fits: float | None, batch: float) -> str:
    return "fits" if fits is not None and fits >= batch else "should fit"


def fitted(data: Told) -> str:
    """What a search for the batch size alone has found: the largest that fits, by a trial, and the fastest."""
    memory = memory_of(data)
    fits, failed = number(memory.get("fits")), number(memory.get("too_large"))
    limit, largest = number(memory.get("limit_bytes")), number(memory.get("largest_batch"))
    if limits_of(data).get("dry_run"):
        return ""
    if fits is None:
        return _nothing_fits(memory)
    taken = [peak for point in listed(memory.get("points"))
             if point.get("batch_size") == fits and (peak := number(point.get("peak_bytes")))]  # fmt: skip
    of = f" of {units.size(limit)}" if limit else ""
    told = f"batch {units.count(fits)} is the largest that was trained within the memory: {units.size(max(taken))}{of}"
    if failed is not None:
        return f"{told}; {units.count(failed)} ran out of it"
    if fits == number(memory.get("most_batch")):
        return f"{told}; no larger one can be tried"
    if largest is None or largest <= NEAR * fits or memory.get("at_least"):
        return told
    return f"{told}; about {units.count(largest)} would fit{far(memory)}"


def _nothing_fits(memory: Told) -> str:
    """The smallest batch that was trained, where it takes too much; nothing where the limit is not known."""
    points = listed(memory.get("points"))
    sizes = [(batch, peak) for point in points
             if (batch := number(point.get("batch_size"))) and (peak := number(point.get("peak_bytes")))]  # fmt: skip
    if not sizes or number(memory.get("limit_bytes")) is None:
        return ""
    batch, peak = min(sizes)
    told = f"no batch was found that leaves a tenth of the memory free: batch {units.count(batch)} takes"
    even = "; even 1 is too large" if number(memory.get("largest_batch")) == 0 else ""
    return f"{told} {units.size(peak)}{_of_limit(memory)}{even}"
