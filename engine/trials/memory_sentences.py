"""The memory of batch sizes: predictions, their errors, and sentences about it for all views."""

from __future__ import annotations

from ..units import count, share, size
from .record import Memory, Record
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


def predicted(memory: Memory, batch: float) -> float | None:
    """Return the bytes that this batch size (of one replica) is expected to take. None if it cannot be predicted."""
    base, each = memory.base_bytes, memory.bytes_per_sample
    return None if base is None or each is None else base + each * batch


def largest_error(memory: Memory) -> float | None:
    """Return the largest error of predictions as a share of the measured memory (0.1: 10 %), None without any."""
    errors = (
        abs(point.predicted_bytes - point.peak_bytes) / point.peak_bytes
        for point in memory.points
        if point.peak_bytes and point.predicted_bytes is not None
    )
    return max(errors, default=None)


def prediction(memory: Memory) -> str:
    """Return the memory of a preset and the largest batch that fits: `batch 256 will take 11.3 GiB of ...`."""
    batch, failed, limit, largest = memory.batch_size, memory.too_large, memory.limit_bytes, memory.largest_batch
    if batch is None:
        taken = max((point.peak_bytes for point in memory.points if point.peak_bytes), default=None)
        own = "your code makes its own batches, so that other sizes are not predicted"
        return f"it takes {size(taken)}{_of_limit(memory)}; {own}"
    each = f" on each of {count(memory.replicas)} devices" if memory.replicas > 1 else ""
    what, takes, first = f"batch {count(batch)}{each}", memory.predicted_bytes, memory.first_step_bytes
    if largest is None:
        most = ""
    elif largest < 1:
        most = "; even 1 is too large"
    elif largest == memory.most_batch:
        most = f"; all up to {count(largest)}, the largest that can be tried, fit with a tenth left free"
    else:
        about = f"{'at least' if memory.at_least else 'about'} {count(largest)}{far(memory)}"
        most = f"; the largest that fits, with a tenth left free, is {about}"
    if failed is not None and failed <= batch:
        return f"{what} does not fit: {count(failed)} has run out of memory{most}"
    if takes is None:
        return f"{what} cannot be predicted from one batch size{most}"
    verb, warning = "will take", ""
    if limit is not None and takes > limit:
        would = "will run out of memory: it would take"
        verb = "is above your limit: it takes" if memory.limit_is_asked else would
    elif largest is not None and largest < batch and not memory.at_least:
        verb = "may run out of memory: it will take"
    if limit is not None and first is not None and takes <= limit < first:
        warning = (
            f"; its first step, in which cuDNN tries its algorithms, would take {size(first)}: it may run out of "
            "memory, or take slower ones"
        )
    return f"{what} {verb} {size(takes)}{_of_limit(memory)}{warning}{most}"


def _of_limit(memory: Memory) -> str:
    whose = "that you allow" if memory.limit_is_asked else _LIMITS.get(memory.of, "that there are")
    return "" if memory.limit_bytes is None else f" of the {size(memory.limit_bytes)} {whose}"


def far(memory: Memory) -> str:
    """Return a remark if a prediction is a guess, above FAR times the largest measured batch; else empty."""
    measured = max((point.batch_size or 0 for point in memory.points if point.peak_bytes is not None), default=0)
    is_guess = 0 < FAR * measured < (memory.largest_batch or 0)
    return f" (a guess from batches up to {count(measured)})" if is_guess else ""


def fitted(data: Record) -> str:
    """Return the largest batch that was trained within the memory, or the smallest; empty if only predicted."""
    memory = memory_of(data)
    fits, limit, largest = memory.fits, memory.limit_bytes, memory.largest_batch
    taken = [(point.batch_size, point.peak_bytes) for point in memory.points if point.batch_size and point.peak_bytes]
    if limits_of(data).dry_run or (fits is None and (not taken or limit is None)):
        return ""
    if fits is None:
        batch, peak = min(taken)
        text = f"no batch was found that leaves a tenth of the memory free: batch {count(batch)} takes"
        return f"{text} {size(peak)}{_of_limit(memory)}{'; even 1 is too large' if largest == 0 else ''}"
    peak = max(peak for batch, peak in taken if batch == fits)
    of = f" of {size(limit)}" if limit else ""
    text = f"batch {count(fits)} is the largest that was trained within the memory: {size(peak)}{of}"
    if memory.too_large is not None:
        return f"{text}; {count(memory.too_large)} ran out of it"
    if fits == memory.most_batch:
        return f"{text}; no larger one can be tried"
    if largest is None or largest <= NEAR * fits or memory.at_least:
        return text
    return f"{text}; about {count(largest)} would fit{far(memory)}"


def kind_of_memory(memory: Memory) -> str:
    return _KINDS.get(memory.of, "")


def in_words(data: Record) -> str:
    """Return the largest batch that should fit, the predicted memory and the error of predictions, as far as known."""
    memory = memory_of(data)
    fits, largest, base, each = memory.fits, memory.largest_batch, memory.base_bytes, memory.bytes_per_sample
    into, facts = size(memory.limit_bytes), []
    if memory.limit_bytes is None:
        pass
    elif largest is None:
        facts.append(f"{into} may be taken")
    elif largest < 1:
        facts.append(f"not even batch 1 fits into {into}")
    elif largest == memory.most_batch:
        fit = "fits" if fits is not None and fits >= largest else "should fit"
        facts.append(f"batch {count(largest)}, the largest that can be tried, {fit} into {into}")
    elif fits is not None and largest <= NEAR * fits and not memory.at_least:
        facts.append(f"batch {count(fits)} fits into {into}")
    else:
        facts.append(f"{'at least ' * memory.at_least}batch {count(largest)} should fit into {into}{far(memory)}")
    if base is not None and each is not None and not memory.at_least:
        facts.append(f"{size(base)} + {size(each)} a sample")
    if (off := largest_error(memory)) is not None:
        facts.append(f"predictions were off by {share(off, 1)} at most")
    return "; ".join(facts)
