"""The first measurement of a search: the preset, or where it runs out of memory, the preset with a smaller batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import text
from ..runs.events import Started
from ..trials.comparing import BaselineFailed
from ..trials.search_record import Candidate, Limits
from ..trials.trial import Trial
from . import memory_model
from .candidates.screening import Screening
from .candidates.space import BATCH, value_of
from .memory_model import MemoryModel


@dataclass(frozen=True)
class Baseline:
    """What was measured, how that training was built, and what memory it may take."""

    measured: Candidate
    started: Started
    memory: MemoryModel


def measure(screening: Screening, limits: Limits, started_of: Callable[[Trial], Started]) -> Baseline:
    """Halve the batch size until it fits, and leave it in the screening's best settings; raises BaselineFailed."""
    while True:
        size = int(value_of(screening.best.preset, BATCH))
        found = _measured(screening, limits, started_of, size)
        if found is not None:
            _refuse_above_limit(found, limits)
            if _has_room(found, screening, size):
                return found
        screening.begin_with({BATCH: size // 2})


def _measured(
    screening: Screening, limits: Limits, started_of: Callable[[Trial], Started], size: int
) -> Baseline | None:
    """None where it runs out of memory and a smaller batch may be tried."""
    smaller = "the preset with a smaller batch, as it runs out of memory"
    reason = smaller if screening.best.settings else "the preset as it is"
    try:
        measured = screening.measure_best("baseline", reason, without_input=False)
    except BaselineFailed:
        last = screening.search.candidates[-1].trials[-1]
        may_change = "batch_size" in limits.only and BATCH not in limits.leave
        if last.outcome != "oom" or size == 1 or not may_change:
            raise
        return None
    trial = measured.good[-1]
    started = started_of(trial)
    model = memory_model.model_of(started, screening.best.preset.options, trial, limits.memory_bytes)
    screening.peak_figure = memory_model.FIGURES[model.of]
    measured.peak_bytes = model.peak(measured.trials)
    return Baseline(measured, started, model)


def _refuse_above_limit(found: Baseline, limits: Limits) -> None:
    """A preset above the user's own limit is no baseline, unless what is searched is the batch that is within it."""
    peak, limit = found.measured.peak_bytes or 0, found.memory.limit_bytes or 0
    if found.memory.limit_is_asked and peak > limit and tuple(limits.only) != ("batch_size",):
        raise BaselineFailed(
            f"the training takes {text.size(peak)} of memory, and you allow {text.size(limit)}: allow more, or begin "
            "with a smaller batch (gputui fit-batch looks for one that fits)"
        )


def _has_room(found: Baseline, screening: Screening, size: int) -> bool:
    """Whether it leaves a tenth of the memory free; of the preset itself it is enough that it can be trained."""
    peak, most = found.memory.peak(found.measured.trials), found.memory.may_take
    return not screening.best.settings or size == 1 or peak is None or most is None or peak <= most
