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


def settings(plain: Mapping[str, Any]) -> SweepSettings:
    """Return the settings of a sweep, made from their plain values in a file."""
    values = {name: plain[name] for name in SweepSettings.__dataclass_fields__ if name in plain}
    return SweepSettings(**values | {"axes": [Axis(**axis) for axis in plain["axes"]]})
