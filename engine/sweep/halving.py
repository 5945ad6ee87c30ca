"""Asynchronous successive halving (ASHA; Li et al., arXiv:1810.05934, algorithm 2): of every `factor` settings that
have reached a rung, with all seeds, the best goes on without waiting for the others. No device is idle: if no trial may
go on, a new one begins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from ..trials import sweep_groups
from ..trials.sweep_record import DONE, FAILED, PAUSED, SEARCH, SweepTrial


def rungs(first: int, epochs: int, factor: int) -> list[int]:
    """Return the epochs after which trials pause: `first`, and `factor` times as many each time, below `epochs`."""
    ends = []
    while first < epochs:
        ends.append(first)
        first *= factor
    return ends


def to_go_on(trials: Iterable[SweepTrial], ends: Sequence[int], factor: int, higher: bool) -> SweepTrial | None:
    """Return the paused trial that goes on next, of the highest rung, None if none may. A setting without a metric is
    worse than all others, and one with a failed trial does not go on.
    """
    settings = [group for group in sweep_groups.groups(trials).values() if not any(map(_has_failed, group))]
    for rung in reversed(range(len(ends))):
        reached = [group for group in settings if all(len(trial.rungs) > rung for trial in group)]
        best = sorted(reached, key=lambda group: _badness(group, rung, higher))[: len(reached) // factor]
        for group in [group for group in reached if any(_is_beyond(trial, rung) for trial in group)] + best:
            for trial in group:
                if trial.state == PAUSED and len(trial.rungs) == rung + 1 and not trial.on:
                    return trial
    return None


def best_paused(trials: Iterable[SweepTrial], higher: bool) -> SweepTrial | None:
    """Return a paused trial of the best setting at the highest rung, if else too few would be complete for a proof."""
    settings = [group for group in sweep_groups.groups(trials).values() if not any(map(_has_failed, group))]
    paused = [(group, trial) for group in settings for trial in group if trial.state == PAUSED and not trial.on]

    def place(each: tuple[list[SweepTrial], SweepTrial]) -> tuple[int, float, int]:
        group, trial = each
        highest = max(len(other.rungs) for other in group)
        common = min(len(other.rungs) for other in group)
        return -highest, _badness(group, common - 1, higher) if common else math.inf, len(trial.rungs)

    return min(paused, key=place, default=(None, None))[1]


def next_pause(trial: SweepTrial, ends: Sequence[int]) -> int | None:
    """Return the epoch after which the trial pauses next; None if it trains to its end."""
    return ends[len(trial.rungs)] if len(trial.rungs) < len(ends) else None


def saved_epochs(trials: Iterable[SweepTrial], ends: Sequence[int], epochs: int) -> int:
    """Return the number of epochs that were not trained because trials have ended at a rung."""
    return sum(
        epochs - ends[len(trial.rungs) - 1]
        for trial in trials
        if trial.part == SEARCH and trial.rungs and trial.state not in (DONE, FAILED)
    )


def _has_failed(trial: SweepTrial) -> bool:
    return trial.state == FAILED


def _is_beyond(trial: SweepTrial, rung: int) -> bool:
    return len(trial.rungs) > rung + 1 or trial.state != PAUSED


def _badness(group: Sequence[SweepTrial], rung: int, higher: bool) -> float:
    values = [trial.rungs[rung] for trial in group]
    if None in values:
        return math.inf
    mean = statistics.fmean(value for value in values if value is not None)
    return -mean if higher else mean
