"""The request and the results of a sweep, as request.json and proof.json hold them under `sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    """A swept option: its `values`, or the range from `low` to `high`.

    `key` is `group.name`, or `workload.args.NAME` of own code. A range with `log` is divided by equal factors, and one
    with `whole` has whole numbers only.
    """

    key: str
    values: Sequence[Any] = ()
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep is to do.

    `metric` is a figure of each epoch; the higher value is the better one if `higher`. Each setting is trained with
    `seeds` seeds. The best `finalists` settings are trained again with `proof_seeds` fresh seeds, 0 for no proof. At
    most `parallel` trials train at once, and `ahead` more wait in the queue, so that no device waits for the sweep: 0
    if they would be started at once. `most_trials` is the number of settings of a sampler other than the grid. `rungs`
    are the epochs after which trials are compared, and only the best of them go on; empty without halving. `factor`:
    one of so many goes on. With `one_gpu_each`, each trial that trains on one GPU and does not name it gets a free one.
    With `anyway`, trials do not wait for trainings outside of the queue that use the CPU.
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
    """One training of a sweep, a run with the id `run`.

    `changes` are its values of the swept options, `part` is SEARCH or PROOF. `value` is the metric after the last
    epoch, None without one. `rungs` has the metric after each rung that the trial has ended. `until` is the epoch after
    which it pauses now, None if it trains to its end. `seconds` is its time up to now, `whole_seconds` that of the
    whole training, expected if it has not ended, and `ended_t` the Unix time of its latest end. `error` says why it has
    failed or was stopped, and `cause` is the kind of an error. `crashes` counts the launches that have crashed and were
    repeated, and `failures` the failures after which a resumed sweep has tried it again. `on` is the
    machine of the member of a shared sweep that has the trial, in words; empty if it is this one. `digest` is a hash of
    all figures of all epochs of a complete training, empty in a shared sweep.
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
    """The comparison of the best setting of the search with another one, on fresh seeds.

    `differences` has for each seed by how much the best setting is better, in the unit of the metric. `mean` and
    `half_width` are their mean and half of its confidence interval. `mean_of_rival` is the mean metric of the rival.
    `decision` is `better`, `worse` or `undecided`.
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
    """The trials and the result of a sweep.

    `best` is the best setting of the search, `winner` that of the whole sweep. `searched` is the mean metric of `best`
    in the search, and `proved` its mean on the fresh seeds. `without_effect` has the keys of the swept options all of
    whose values have given the same figures, digit for digit.
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


def settings(plain: Mapping[str, Any]) -> SweepSettings:
    """Return the settings of a sweep, made from their plain values in a file."""
    values = {name: plain[name] for name in SweepSettings.__dataclass_fields__ if name in plain}
    return SweepSettings(**values | {"axes": [Axis(**axis) for axis in plain["axes"]]})
