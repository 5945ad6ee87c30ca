"""The memory of batch sizes: predictions, their errors, and sentences about it for all views."""

from __future__ import annotations

from collections.abc import Iterator

from ... import units
from ...trials.record import Memory, Record
from .search_results import limits_of, memory_of

FAR = 8  # factor; beyond it from the measured batches a prediction is a guess
NEAR = 1.1  # factor; a larger batch within it counts as the batch that was trained
_LIMITS = {
    "allocator": "that TensorFlow may take of a device",
    "process": "that the host has free",
    "address_space": "that ulimit -v allows of address space",
}
_KINDS = {
    "allocator": "of TensorFlow's allocator", "process": "of the process", "address_space": "of the address space",
}  # fmt: skip


# ---- figures -------------------------------------------------------------------------------------


def predicted(memory: Memory, batch: float) -> float | None:
    """Return the bytes that this batch size (of one replica) is expected to take. None if it cannot be predicted."""
    base, each = memory.base_bytes, memory.bytes_per_sample
    return None if base is None or each is None else base + each * batch


def largest_error(memory: Memory) -> float | None:
    """Return the largest error of predictions as a share of the measured memory (0.1: 10 %), None without any."""
    errors = []
    for point in memory.points:
        peak, predicted_bytes = point.peak_bytes, point.predicted_bytes
        if peak and predicted_bytes is not None:
            errors.append(abs(predicted_bytes - peak) / peak)
    return max(errors, default=None)


# ---- sentences -----------------------------------------------------------------------------------


def prediction(memory: Memory) -> str:
    """Return the memory of a preset and the largest batch that fits: `batch 256 will take 11.3 GiB of ...`."""
    size, failed = memory.batch_size, memory.too_large
    if size is None:
        peaks = [peak for point in memory.points if (peak := point.peak_bytes)]
        own = "your code makes its own batches, so that other sizes are not predicted"
        return f"it takes {units.size(max(peaks, default=None))}{_of_limit(memory)}; {own}"
    if failed is not None and failed <= size:
        return f"{_batch(memory, size)} does not fit: {units.count(failed)} has run out of memory{_largest(memory)}"
    predicted = memory.predicted_bytes
    if predicted is None:
        return f"{_batch(memory, size)} cannot be predicted from one batch size{_largest(memory)}"
    verb = _will_take(memory, size, predicted)
    takes = f"{units.size(predicted)}{_of_limit(memory)}{_first_step(memory)}"
    return f"{_batch(memory, size)} {verb} {takes}{_largest(memory)}"


def _first_step(memory: Memory) -> str:
    """A warning if the batch fits, but its first step, in which cuDNN tries its algorithms, may not."""
    limit, later = memory.limit_bytes, memory.predicted_bytes
    first = memory.first_step_bytes
    if limit is None or first is None or first <= limit or later is None or later > limit:
        return ""
    return (
        f"; its first step, in which cuDNN tries its algorithms, would take {units.size(first)}: it may run out of "
        "memory, or take slower ones"
    )


def _batch(memory: Memory, size: float) -> str:
    replicas = memory.replicas or 1
    return f"batch {units.count(size)}" + (f" on each of {units.count(replicas)} devices" if replicas > 1 else "")


def _of_limit(memory: Memory) -> str:
    limit, whose = memory.limit_bytes, _LIMITS.get(memory.of, "that there are")
    whose = "that you allow" if memory.limit_is_asked else whose
    return "" if limit is None else f" of the {units.size(limit)} {whose}"


def _will_take(memory: Memory, size: float, predicted: float) -> str:
    limit, largest = memory.limit_bytes, memory.largest_batch
    if limit is not None and predicted > limit:
        if memory.limit_is_asked:
            return "is above your limit: it takes"
        return "will run out of memory: it would take"
    tight = largest is not None and largest < size and not memory.at_least
    return "may run out of memory: it will take" if tight else "will take"


def _largest(memory: Memory) -> str:
    """The largest batch that leaves a tenth of the memory free, as the end of the sentence."""
    largest, most = memory.largest_batch, memory.most_batch
    if largest is None:
        return ""
    if largest < 1:
        return "; even 1 is too large"
    if largest == most:
        return f"; all up to {units.count(most)}, the largest that can be tried, fit with a tenth left free"
    which = f"{'at least' if memory.at_least else 'about'} {units.count(largest)}{far(memory)}"
    return f"; the largest that fits, with a tenth left free, is {which}"


def far(memory: Memory) -> str:
    """Return a remark if a prediction is a guess, above FAR times the largest measured batch; else empty."""
    largest = memory.largest_batch or 0.0
    points = (point for point in memory.points if point.peak_bytes is not None)
    measured = max((point.batch_size or 0.0 for point in points), default=0.0)
    return f" (a guess from batches up to {units.count(measured)})" if 0 < FAR * measured < largest else ""


def should_fit(memory: Memory) -> str:
    """Return the largest batch that fits: `batch 658 should fit into 14.6 GiB`. Empty if the limit is not known."""
    largest, limit, fits, most = memory.largest_batch, memory.limit_bytes, memory.fits, memory.most_batch
    if limit is None:
        return ""
    into = units.size(limit)
    if largest is None:
        return f"{into} may be taken"
    if largest < 1:
        return f"not even batch 1 fits into {into}"
    if largest == most:
        return f"batch {units.count(most)}, the largest that can be tried, {_fit(fits, largest)} into {into}"
    if fits is not None and largest <= NEAR * fits and not memory.at_least:
        return f"batch {units.count(fits)} fits into {into}"
    which = f"at least batch {units.count(largest)}" if memory.at_least else f"batch {units.count(largest)}"
    return f"{which} should fit into {into}{far(memory)}"


def _fit(fits: float | None, batch: float) -> str:
    return "fits" if fits is not None and fits >= batch else "should fit"


def fitted(data: Record) -> str:
    """Return the largest batch that was trained within the memory; empty if it was only predicted."""
    memory = memory_of(data)
    fits, failed = memory.fits, memory.too_large
    limit, largest = memory.limit_bytes, memory.largest_batch
    if limits_of(data).dry_run:
        return ""
    if fits is None:
        return _nothing_fits(memory)
    taken = [peak for point in memory.points
             if point.batch_size == fits and (peak := point.peak_bytes)]  # fmt: skip
    of = f" of {units.size(limit)}" if limit else ""
    text = f"batch {units.count(fits)} is the largest that was trained within the memory: {units.size(max(taken))}{of}"
    if failed is not None:
        return f"{text}; {units.count(failed)} ran out of it"
    if fits == memory.most_batch:
        return f"{text}; no larger one can be tried"
    if largest is None or largest <= NEAR * fits or memory.at_least:
        return text
    return f"{text}; about {units.count(largest)} would fit{far(memory)}"


def _nothing_fits(memory: Memory) -> str:
    """The smallest batch that was trained, as none leaves enough memory free."""
    points = memory.points
    sizes = [(batch, peak) for point in points
             if (batch := point.batch_size) and (peak := point.peak_bytes)]  # fmt: skip
    if not sizes or memory.limit_bytes is None:
        return ""
    batch, peak = min(sizes)
    text = f"no batch was found that leaves a tenth of the memory free: batch {units.count(batch)} takes"
    even = "; even 1 is too large" if memory.largest_batch == 0 else ""
    return f"{text} {units.size(peak)}{_of_limit(memory)}{even}"


def kind_of_memory(memory: Memory) -> str:
    return _KINDS.get(memory.of, "")


def in_words(data: Record) -> str:
    """Return the predicted memory and the error of predictions in one line. Empty if neither is known."""
    memory = memory_of(data)
    return "; ".join(_memory(memory))


def _memory(memory: Memory) -> Iterator[str]:
    base, each = memory.base_bytes, memory.bytes_per_sample
    if fitting := should_fit(memory):
        yield fitting
    if base is not None and each is not None and not memory.at_least:
        yield f"{units.size(base)} + {units.size(each)} a sample"
    if (off := largest_error(memory)) is not None:
        yield f"predictions were off by {units.share(off, 1)} at most"
