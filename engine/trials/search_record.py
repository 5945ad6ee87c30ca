"""The state and the results of a search for the fastest settings (`gputui tune`), as proof.json holds them under
`search`.

Only the search's process fills it in (engine/tune). Speeds are samples per second, gains are shares (0.42: 42 % more),
and settings are keys and values as `--set` takes them.
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
    """The limits of a search. None means that the user has set no limit.

    `minutes` is the time for the whole search, `memory_bytes` the most memory that a training may take, and
    `largest_batch` the largest global batch. `precisions` are the policies to try (None: the policies for which the
    devices have instructions), without `avoid_precisions`. `leave` are the keys of options that keep their values.
    `only` are the stages of the search.

    `wide` lets Optuna propose combinations: `after` the ordered search, which tries one option after another, or
    `instead` of it. `study` is the file or URL in which Optuna keeps its trials (None: a file in the search's folder),
    and `study_name` the name of the study in it.
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
    """Settings that were measured, or left out for a reason.

    `stage` is the part of the search that tried them. `settings` are all changes against the preset. `tried` are the
    changes against the best settings at that time. `gain` is the gain over these as a share (0.05: 5 % faster), and
    `spread` its standard error. `without_input`: candidate and best settings were measured on one repeated batch.
    `gain_by_waits` is the gain that follows from the times of waiting, None if nothing follows. `gain` then combines it
    with the gain of the speeds. `predicted_bytes` is the memory that was expected, and `peak_bytes` the memory that the
    trials took. `decision` is a word such as `kept`, `rejected`, `failed`, `measured` or `left out`, with the reason in
    `why`.
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
    """The memory that trials with one batch size (of one replica) took.

    `predicted_bytes` is the prediction before the trials. On a GPU `peak_bytes` does not include the first step, in
    which cuDNN tries its algorithms: `first_step_bytes` is for that step.
    """

    batch_size: int
    peak_bytes: int | None  # None: it ran out of memory
    predicted_bytes: int | None = None
    first_step_bytes: int | None = None


@dataclass(kw_only=True)
class Memory:
    """Memory as a line over the batch size of one replica: base_bytes + bytes_per_sample * batch size.

    `of` says what is measured: `allocator` (TensorFlow's memory on the fullest device), without a GPU `process` (memory
    of the host), or `address_space` if that is limited more tightly. `limit_bytes` is the memory that may be taken, and
    `largest_batch` the largest batch size that is predicted to fit. `fits` is the largest batch size that was trained
    within the limit, `too_large` the smallest that ran out of memory.

    `batch_size` is the batch size of the preset. None if the user's code makes the batches. `predicted_bytes` and
    `first_step_bytes` are the predictions for it. `at_least`: `largest_batch` is sure to fit, and larger batches cannot
    be predicted. `most_batch` is the largest batch size that the number of samples and the user's limit allow.
    `limit_is_asked`: the limit was set by the user.
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
    """The loss with some settings (side b) compared with that of the preset (side a), after the same number of samples.

    Each trial's loss is in its row. `of` is the kind of loss: `validation`, or `training` if the preset has no
    validation. The settings are clearly worse if the loss of side b is too high in every pair of trials. `worse_from`
    is the limit for the mean `loss_b`.
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
    """The state of the Optuna study of a wide search.

    The processes that share the study, also on other machines, are its `members`. `trials` counts the trials of all
    members, `of_others` those of other members. `at_once` is the number of trials that are measured at the same time,
    each on its own GPU. `note` says why the study failed. Empty if it did not.
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
    """The results of a search. `best` are the fastest settings so far, as changes against the preset.

    `ceiling` is the speed of the best settings without their input, `best_speed` their speed with it, both in samples
    per second. `noise` is the relative spread of repeated measurements (0.03: 3 %). `unproved` are settings that seemed
    faster, but no pairs of trials have proved it.
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
