"""The state and the results of a search (`gputui tune`), as proof.json holds them under `search`. Speeds are samples
per second, gains shares (0.42: 42 % more), settings keys and values as `--set` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import STAGES
from .trial import Trial

DECISIONS = ("kept", "rejected", "failed", "left out", "measured", "running")  # measured: only its memory
LOSS_DECISIONS = ("no worse", "worse", "not judged", "failed")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a search, None for none. `only` are its stages, `leave` the options that keep their values, and
    `precisions` None for those with instructions. `wide` lets Optuna combine options `after` or `instead` of the
    ordered search, in `study`, a file or URL (None: a file in the search's folder).
    """

    minutes: float = 10.0
    only: Sequence[str] = STAGES
    leave: Sequence[str] = ()
    memory_bytes: int | None = None
    largest_batch: int | None = None
    precisions: Sequence[str] | None = None
    avoid_precisions: Sequence[str] = ()
    learning_rate: str = "keep"  # with a larger batch: keep, linear or sqrt
    warmup_steps: int | None = None  # with a scaled learning rate
    allow_worse_loss: bool = False
    wide: str | None = None
    study: str | None = None
    study_name: str | None = None
    dry_run: bool = False  # only predict the memory


@dataclass(kw_only=True)
class Candidate:
    """Settings (changes of the preset) that were measured, or left out. `tried` are the changes of the best settings at
    that time, `gain` is over these (0.05: 5 % faster; combined with `gain_by_waits`) with the standard error `spread`.
    `without_input`: on one repeated batch. `decision` is `kept`, `rejected`, `failed`, `measured` or `left out`.
    """

    stage: str
    settings: Mapping[str, Any]
    tried: Mapping[str, Any]
    reason: str = ""
    without_input: bool = False
    trials: list[Trial] = field(default_factory=list)
    samples_per_second: float | None = None
    gain: float | None = None
    gain_by_waits: float | None = None
    spread: float | None = None
    predicted_bytes: int | None = None
    peak_bytes: int | None = None
    decision: str = "running"
    why: str = ""

    @property
    def good(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.good]


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """The memory that trials with one batch size (of one replica) took, and its prediction. On a GPU `peak_bytes`
    leaves out the first step, in which cuDNN tries its algorithms.
    """

    batch_size: int
    peak_bytes: int | None  # None: it ran out of memory
    predicted_bytes: int | None = None
    first_step_bytes: int | None = None


@dataclass(kw_only=True)
class Memory:
    """A line over the batch of one replica, of `allocator` (fullest device), `process` (host) or `address_space`.
    `largest_batch` is predicted, or sure if `at_least`, to fit; `fits` and `too_large` were trained. `predicted_bytes`
    and `first_step_bytes` are for the preset's `batch_size` (None: own code makes batches).
    """

    of: str
    limit_bytes: int | None = None
    base_bytes: float | None = None
    bytes_per_sample: float | None = None
    largest_batch: int | None = None
    fits: int | None = None
    too_large: int | None = None
    batch_size: int | None = None
    predicted_bytes: int | None = None
    first_step_bytes: int | None = None
    at_least: bool = False
    most_batch: int | None = None
    limit_is_asked: bool = False
    replicas: int = 1
    points: list[MemoryPoint] = field(default_factory=list)


@dataclass(kw_only=True)
class LossCheck:
    """The loss with some settings (side b) and with the preset (side a) after the same number of samples, of
    `validation` or `training`. It is clearly worse if too high in every pair; `worse_from` is the limit for the mean
    `loss_b`.
    """

    settings: Mapping[str, Any]
    of: str = ""
    samples: int | None = None
    passes: int | None = None  # whole passes over the data; None: a part of the first pass
    trials: list[Trial] = field(default_factory=list)
    loss_a: float | None = None
    loss_b: float | None = None
    worse_from: float | None = None
    decision: str = "running"  # in the end one of LOSS_DECISIONS
    why: str = ""


@dataclass(kw_only=True)
class StudyState:
    """The state of the Optuna study of a wide search, with `trials` of all `members`. `at_once` trials are measured at
    the same time, each on its own GPU. `note` says why the study failed.
    """

    storage: str
    name: str
    trials: int = 0
    of_others: int = 0
    members: int = 1
    at_once: int = 1
    note: str = ""


@dataclass(kw_only=True)
class Search:
    """The results of a search. `best` are the fastest settings so far, `ceiling` is their speed without input,
    `best_speed` with it (samples per second). `noise` is the relative spread of repeated measurements (0.03: 3 %).
    `unproved` settings seemed faster, but no pairs have proved it.
    """

    limits: Limits
    stage: str = ""
    candidates: list[Candidate] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    best_speed: float | None = None
    before_speed: float | None = None
    ceiling: float | None = None
    noise: float | None = None
    memory: Memory | None = None
    study: StudyState | None = None  # of a wide search
    losses: list[LossCheck] = field(default_factory=list)
    unproved: dict[str, Any] = field(default_factory=dict)
    learning: str = ""  # the consequences that the search has drawn from the losses
    rate_fixed: str = ""  # why the learning rate cannot be scaled

    @property
    def trials(self) -> list[list[Trial]]:
        """All trials, in one list for each candidate and for each comparison of losses."""
        return [*(candidate.trials for candidate in self.candidates), *(check.trials for check in self.losses)]
