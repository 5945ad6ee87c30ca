"""Compares settings by a metric: means over seeds, and confidence intervals of differences on fresh seeds, as the best
of many settings is also the luckiest. The interval is mean ± t * spread / sqrt(seeds), with Student's t for seeds - 1
degrees of freedom (NIST/SEMATECH e-Handbook 7.3.1.1), and the risk divided by the number of rivals (Bonferroni).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..trials import sweep_record
from ..trials.change_texts import changes as changed
from ..trials.significance import student
from ..trials.sweep_record import DONE, FAILED, PAUSED, PROOF, RISK, Rival, Sweep, SweepTrial
from .trainings import NOT_FINITE

LEAST_SEEDS = 3  # with two, a metric in few steps, such as an accuracy of 100 samples, is too often sure by chance


def decide(sweep: Sweep, higher: bool) -> dict[str, Any]:
    """Store the comparisons of the best setting with its rivals and the winner, and return the winner."""
    proved = sweep_record.groups(sweep.trials, PROOF)
    assert sweep.best is not None
    best_group = proved.pop(sweep_record.key_of(sweep.best), [])
    best = _by_seed(best_group)
    sweep.proved = statistics.fmean(best.values()) if best else None
    sweep.rivals = [Rival(changes=dict(group[0].changes)) for group in proved.values()]
    best_diverged = _diverged(best_group)
    for rival, group in zip(sweep.rivals, proved.values(), strict=True):
        if diverged := best_diverged or _diverged(group):
            changes = sweep.best if best_diverged else rival.changes
            rival.why = f"{changed(changes)} diverged with {diverged} of the fresh seeds"
        else:
            compare(rival, best, _by_seed(group), higher, len(sweep.rivals))
    sweep.winner = dict(sweep.best)
    if best_diverged:
        whole = [group for group in proved.values() if _by_seed(group) and not _diverged(group)]
        means = {statistics.fmean(_by_seed(group).values()): group for group in whole}
        if means:
            sweep.winner = dict(means[(max if higher else min)(means)][0].changes)
    ahead = [rival for rival in sweep.rivals if rival.decision == "worse" and rival.mean is not None]
    if ahead:
        sweep.winner = dict(min(ahead, key=lambda rival: rival.mean or 0.0).changes)
    return sweep.winner


def _diverged(trials: Sequence[SweepTrial]) -> int:
    return sum(trial.state == FAILED and trial.cause == NOT_FINITE for trial in trials)


def _by_seed(trials: Sequence[SweepTrial]) -> dict[int, float]:
    return {trial.seed: trial.value for trial in trials if trial.state == DONE and trial.value is not None}


def compare(rival: Rival, best: Mapping[int, float], other: Mapping[int, float], higher: bool, rivals: int = 1) -> None:
    """Store in `rival` its comparison with the best setting by seed; `rivals` is how many are compared."""
    seeds = [seed for seed in best if seed in other]
    sign = 1 if higher else -1
    rival.differences = [sign * (best[seed] - other[seed]) for seed in seeds]
    if len(seeds) < LEAST_SEEDS:
        rival.why = f"only {len(seeds)} of the fresh seeds are complete with both"
        return
    if len(set(rival.differences)) == 1 and rival.differences[0]:
        rival.why = "all fresh seeds gave the same difference: does the code set a seed of its own?"
        return
    rival.mean = statistics.fmean(rival.differences)
    rival.mean_of_rival = statistics.fmean(other[seed] for seed in seeds)
    spread_of_mean = statistics.stdev(rival.differences) / math.sqrt(len(seeds))
    rival.half_width = student(len(seeds) - 1, RISK / rivals) * spread_of_mean
    if abs(rival.mean) > rival.half_width:
        rival.decision = "better" if rival.mean > 0 else "worse"


# Asynchronous successive halving (ASHA; Li et al., arXiv:1810.05934, algorithm 2): of every `factor` settings that
# have reached a rung, with all seeds, the best goes on without waiting for the others. No device is idle: if no trial
# may go on, a new one begins.
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
    settings = _without_failure(trials)
    for rung in reversed(range(len(ends))):
        reached = [group for group in settings if all(len(trial.rungs) > rung for trial in group)]
        best = sorted(reached, key=lambda group: _badness(group, rung, higher))[: len(reached) // factor]
        # a setting of which a trial is beyond this rung goes on with all its seeds
        beyond = [group for group in reached
                  if any(len(trial.rungs) > rung + 1 or trial.state != PAUSED for trial in group)]  # fmt: skip
        for group in beyond + best:
            for trial in group:
                if trial.state == PAUSED and len(trial.rungs) == rung + 1 and not trial.on:
                    return trial
    return None


def best_paused(trials: Iterable[SweepTrial], higher: bool) -> SweepTrial | None:
    """Return a paused trial of the best setting at the highest rung, if else too few would be complete for a proof."""
    settings = _without_failure(trials)
    paused = [(group, trial) for group in settings for trial in group if trial.state == PAUSED and not trial.on]

    def place(each: tuple[list[SweepTrial], SweepTrial]) -> tuple[int, float, int]:
        group, trial = each
        highest = max(len(other.rungs) for other in group)
        common = min(len(other.rungs) for other in group)
        return -highest, _badness(group, common - 1, higher) if common else math.inf, len(trial.rungs)

    return min(paused, key=place, default=(None, None))[1]


def _without_failure(trials: Iterable[SweepTrial]) -> list[list[SweepTrial]]:
    groups = sweep_record.groups(trials).values()
    return [group for group in groups if not any(trial.state == FAILED for trial in group)]


def _badness(group: Sequence[SweepTrial], rung: int, higher: bool) -> float:
    values = [trial.rungs[rung] for trial in group]
    if None in values:
        return math.inf
    mean = statistics.fmean(value for value in values if value is not None)
    return -mean if higher else mean
