"""The trials of a sweep by their settings, and the settings in their order, the best first."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from ..compare import over_seeds
from .sweep_record import DONE, FAILED, SEARCH, SweepTrial


def key_of(changes: Mapping[str, Any]) -> str:
    """Return a text that is the same for the same setting."""
    return json.dumps(changes, sort_keys=True, default=str)


def groups(trials: Iterable[SweepTrial], part: str = SEARCH) -> dict[str, list[SweepTrial]]:
    """Return the trials of a part of the sweep by their setting, in the order of their plan."""
    by_setting: dict[str, list[SweepTrial]] = {}
    for trial in trials:
        if trial.part == part:
            by_setting.setdefault(key_of(trial.changes), []).append(trial)
    return by_setting


def in_order(trials: Iterable[SweepTrial], higher: bool, part: str = SEARCH) -> list[list[SweepTrial]]:
    """Return the trials of a part of the sweep by setting, the best first, then those that ended early, then those
    without a metric.
    """

    def badness(group: list[SweepTrial]) -> tuple[int, float]:
        metrics = [last for trial in group if (last := last_value(trial)) is not None]
        if not metrics:
            return 2, 0.0
        mean = statistics.fmean(values(group) or metrics)
        return int(not values(group)), -mean if higher else mean

    return sorted(groups(trials, part).values(), key=badness)


def last_value(trial: SweepTrial) -> float | None:
    """Return the metric after the last epoch or, if the trial has ended early, after its last rung."""
    return trial.value if trial.value is not None else next(iter(trial.rungs[-1:]), None)


def values(trials: Iterable[SweepTrial]) -> list[float]:
    """Return the metrics of the trials that have trained to their end."""
    return [trial.value for trial in trials if trial.state == DONE and trial.value is not None]


def mean_and_spread(trials: Iterable[SweepTrial]) -> tuple[float | None, float | None]:
    """Return the mean metric of the completed trials and its standard deviation, None if unknown."""
    return over_seeds.mean_and_spread(values(trials))


def without_effect(trials: Iterable[SweepTrial], keys: Iterable[str]) -> list[str]:
    """Return those of the swept options `keys` that have changed no figure of any epoch, not in the last digit, by
    trials with the same seed that differ in this option alone. Options without such trials are not among them.
    """
    inert = []
    complete = [trial for trial in trials if trial.digest]
    for key in keys:
        alike: dict[object, list[SweepTrial]] = {}
        for trial in complete:
            others = {name: value for name, value in trial.changes.items() if name != key}
            alike.setdefault((trial.seed, key_of(others)), []).append(trial)
        several = [group for group in alike.values() if len({key_of(trial.changes) for trial in group}) > 1]
        if several and all(len({trial.digest for trial in group}) == 1 for group in several):
            inert.append(key)
    return inert


def ranked(trials: Iterable[SweepTrial], higher: bool) -> list[tuple[dict[str, Any], float]]:
    """Return the settings with their mean metrics, the best first, without those that have a failed or no complete
    trial.
    """
    means = []
    for group in groups(trials).values():
        metrics = values(group)
        if metrics and not any(trial.state == FAILED for trial in group):
            means.append((dict(group[0].changes), statistics.fmean(metrics)))
    return sorted(means, key=lambda each: -each[1] if higher else each[1])
