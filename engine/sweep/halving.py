"""Asynchronous successive halving (ASHA): after each rung, only the best of the trials that have reached it go on.

A trial pauses at the end of the epoch that a rung names. As soon as `factor` trials have ended a rung, the best one of
them goes on, of 2 * `factor` the best two, and so on, without waiting for the others (Li et al., arXiv:1810.05934,
algorithm 2). A device is never idle: if no trial may go on, a new one begins. A trial that went on too early costs one
rung. The rungs are compared within the seeds of a setting like between settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..trials.sweep_record import DONE, FAILED, PAUSED, SEARCH, SweepTrial


def rungs(first: int, epochs: int, factor: int) -> list[int]:
    """Return the epochs after which trials pause: `first`, and `factor` times as many each time, below `epochs`."""
    ends = []
    while first < epochs:
        ends.append(first)
        first *= factor
    return ends


def to_go_on(trials: Iterable[SweepTrial], ends: Sequence[int], factor: int, higher: bool) -> SweepTrial | None:
    """Return the paused trial that goes on next, None if none may. The highest rung comes first.

    A trial whose metric is not known at a rung is worse than all others there.
    """
    searched = [trial for trial in trials if trial.part == SEARCH and trial.state != FAILED]
    for rung in reversed(range(len(ends))):
        reached = [trial for trial in searched if len(trial.rungs) > rung]
        best = sorted(reached, key=lambda trial: _badness(trial.rungs[rung], higher))[: len(reached) // factor]
        for trial in best:
            if trial.state == PAUSED and len(trial.rungs) == rung + 1 and not trial.on:
                return trial
    return None


def best_paused(trials: Iterable[SweepTrial], higher: bool) -> SweepTrial | None:
    """Return the paused trial that has ended the highest rung, the best of several; None if none is paused.

    It goes on if else too few settings would be complete for a proof.
    """
    paused = [trial for trial in trials if trial.state == PAUSED and not trial.on]
    return min(paused, key=lambda trial: (-len(trial.rungs), _badness(trial.rungs[-1], higher)), default=None)


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


def _badness(value: float | None, higher: bool) -> float:
    if value is None:
        return math.inf
    return -value if higher else value
