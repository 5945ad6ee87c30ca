"""The request and the results of a sweep, as request.json and proof.json hold them under `sweep`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compare import comparison
from ..text_table import Interval, around
from . import SAMPLERS

SEARCH, PROOF = "search", "proof"  # the parts of a sweep
# The states of a trial. `paused` has ended a rung of the halving and may go on; `dropped` was paused and will not.
PLANNED, WAITING, RUNNING, PAUSED = "planned", "waiting", "running", "paused"
DONE, FAILED, STOPPED, DROPPED, LEFT_OUT = "done", "failed", "stopped", "dropped", "not trained"
IN_FLIGHT = (WAITING, RUNNING)
# That at least one interval of a sweep does not contain the truth. With 5 %, in half of all batches of 100 sweeps of
# equal settings more than 5 would claim a difference.
RISK = 0.03


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A swept option (`group.name`, or `workload.args.NAME` of own code): its `values`, or the range from `low` to
    `high`, divided by equal factors if `log`, of whole numbers if `whole`.
    """

    key: str
    values: Sequence[Any] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep is to do. `ahead` trials wait in the queue besides the `parallel` ones. `rungs` are the epochs after
    which one of `factor` goes on. `finalists` train again with `proof_seeds` fresh seeds. `one_gpu_each`: trials that
    name no GPU get a free one. `anyway`: CPU trainings outside of the queue are not waited for.
    """

    axes: Sequence[Axis]
    metric: str
    higher: bool = False
    minutes: float = 60.0
    seeds: int = 1
    proof_seeds: int = 5
    finalists: int = 2
    sampler: str = SAMPLERS[0]
    most_trials: int | None = None
    parallel: int = 1
    ahead: int = 1
    rungs: Sequence[int] = ()
    factor: int = 3
    one_gpu_each: bool = False
    study: str | None = None
    study_name: str | None = None
    member: str = ""
    anyway: bool = False


@dataclass(kw_only=True)
class SweepTrial:
    """One training, a run with the id `run`. `value` and `rungs` are the metric at the end and after rungs, `until` the
    epoch of its next pause, `whole_seconds` expected until it has ended (Unix time `ended_t`). `crashes` were repeated
    launches, `failures` those before a resume. `on` is another member's machine. `digest` hashes all figures.
    """

    run: str
    changes: Mapping[str, Any]
    seed: int
    part: str = SEARCH
    state: str = PLANNED
    value: float | None = None
    rungs: list[float | None] = field(default_factory=list)
    until: int | None = None
    seconds: float | None = None
    whole_seconds: float | None = None
    ended_t: float | None = None
    error: str = ""
    cause: str = ""
    crashes: int = 0
    failures: int = 0
    on: str = ""
    digest: str = ""


@dataclass(kw_only=True)
class Rival:
    """The comparison of the best setting with another on fresh seeds: how much better it is for each seed, the mean
    with half of its confidence interval, and `better`, `worse` or `undecided`.
    """

    changes: Mapping[str, Any]
    differences: list[float] = field(default_factory=list)
    mean: float | None = None
    half_width: float | None = None
    mean_of_rival: float | None = None
    decision: str = "undecided"
    why: str = ""


@dataclass(kw_only=True)
class Sweep:
    """The trials and the result of a sweep. `searched` and `proved` are the mean metric of `best` in the search and on
    fresh seeds. `without_effect` are swept options whose values all gave the same figures, digit for digit.
    """

    settings: SweepSettings
    trials: list[SweepTrial] = field(default_factory=list)
    best: dict[str, Any] | None = None
    winner: dict[str, Any] | None = None
    searched: float | None = None
    proved: float | None = None
    rivals: list[Rival] = field(default_factory=list)
    finalists: list[dict[str, Any]] = field(default_factory=list)  # of the search, the best one first
    compared: int = 0  # settings among which `best` was chosen
    seconds_saved: float | None = None  # by the halving, of one device
    without_effect: list[str] = field(default_factory=list)


def key_of(changes: Mapping[str, Any]) -> str:
    return json.dumps(changes, sort_keys=True, default=str)


def groups(trials: Iterable[SweepTrial], part: str = SEARCH) -> dict[str, list[SweepTrial]]:
    by_setting: dict[str, list[SweepTrial]] = {}
    for trial in trials:
        if trial.part == part:
            by_setting.setdefault(key_of(trial.changes), []).append(trial)
    return by_setting


def in_order(trials: Iterable[SweepTrial], higher: bool, part: str = SEARCH) -> list[list[SweepTrial]]:
    """Return the trials of a part by setting, the best first, then those that ended early, then without a metric."""

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
    return [trial.value for trial in trials if trial.state == DONE and trial.value is not None]


def mean_and_spread(trials: Iterable[SweepTrial]) -> tuple[float | None, float | None]:
    """Return the mean metric of the completed trials and its standard deviation, None if unknown."""
    return comparison.mean_and_spread(values(trials))


def interval(group: Sequence[SweepTrial]) -> Interval | None:
    return around(*mean_and_spread(group))


def reference(groups: Sequence[Sequence[SweepTrial]]) -> float:
    """Return the mean metric at which bars have their line: that of the preset, if it is a setting, else the best."""
    own = [group for group in groups if not group[0].changes]
    means = (mean.value for group in (*own, *groups) if (mean := interval(group)) is not None)
    return next(means, 0.0)


def without_effect(trials: Iterable[SweepTrial], keys: Iterable[str]) -> list[str]:
    """Return the swept options that have changed no figure of any epoch between trials that differ in them alone."""
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
    """Return the completed settings without a failed trial, with their mean metrics, the best first."""
    means = []
    for group in groups(trials).values():
        metrics = values(group)
        if metrics and not any(trial.state == FAILED for trial in group):
            means.append((dict(group[0].changes), statistics.fmean(metrics)))
    return sorted(means, key=lambda each: -each[1] if higher else each[1])
