"""What a search for the fastest settings (`gputui tune`) has found so far, as proof.json holds it under `search`.

Only the search's process fills it in (engine/tune). Speeds are samples per second, gains relative (0.42: 42 % more),
settings are keys and values as `--set` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import STAGES
from .trial import Trial

DECISIONS = ("kept", "rejected", "failed", "left out", "measured", "running")  # measured: its memory alone
LOSS_DECISIONS = ("no worse", "worse", "not judged", "failed")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the search may do; None: no limit of the user's.

    `minutes` is the time for everything, `memory_bytes` the most that a training may take, `largest_batch` the largest
    global batch, `precisions` the policies that are tried (None: those that the devices are made for) except
    `avoid_precisions`, `leave` the keys that keep their values.

    `wide` lets Optuna propose combinations: `after` the ordered search, or `instead` of it. `study` is the file or URL
    that keeps them (None: a file of the search), `study_name` the study in it.
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

    `settings` are all changes against the preset, `tried` those against the best settings of that moment, to which
    `gain` refers. `without_input`: measured on one repeated batch, as were the best settings then.
    `gain_by_waits` is what its waits say of that, if they say something: `gain` is then made of it and the speeds.
    `predicted_bytes` is the memory that was expected of it.
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
    """The memory that trials with one batch size (of one replica) took; `predicted_bytes` before it was measured.

    On a GPU `peak_bytes` is that after the first step, in which cuDNN tries its algorithms.
    """

    batch_size: int
    peak_bytes: int | None  # None: it ran out of memory
    predicted_bytes: int | None = None
    first_step_bytes: int | None = None


@dataclass(kw_only=True)
class Memory:
    """Memory as a line over the batch size of one replica: base_bytes + bytes_per_sample * batch size.

    `of` says what is measured: `allocator` (TensorFlow's, of the fullest device), without a GPU `process` (memory of
    the host), or `address_space` if that is limited more tightly. `limit_bytes` is what may be taken,
    `largest_batch` the largest batch size that is predicted to fit into it. `fits` is the largest that was trained
    within it, `too_large` the smallest that ran out of memory.

    `batch_size` is the preset's, of which `predicted_bytes` were predicted, and `first_step_bytes` for its first step;
    None if the user's code makes the batches. `at_least`: `largest_batch` is sure to fit, and how much larger ones
    would is not known. `most_batch` is the largest for which there are samples or which is allowed. `limit_is_asked`:
    the limit is the user's own.
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
    """The loss of settings (side b) beside that of the preset (side a), each trained on the same number of samples.

    Each trial's loss is in its row. `of` says which one is meant: `validation`, or `training` if the preset has no
    validation. A `loss_b` above `worse_from` in every pair of trials is clearly worse.
    """

    settings: Mapping[str, Any]
    of: str = ""
    samples: int | None = None
    passes: int | None = None  # whole ones over the data; None: a part of the first
    trials: list[Trial] = field(default_factory=list)
    loss_a: float | None = None
    loss_b: float | None = None
    worse_from: float | None = None
    decision: str = "running"  # then one of LOSS_DECISIONS
    why: str = ""


@dataclass(kw_only=True)
class StudyState:
    """How the study of a wide search stands: its trials, those of other members among them; `note`: why it failed.

    `at_once` is how many trials are measured side by side, each on a GPU of its own.
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
    """A search; `best` are the settings that are the fastest so far, against the preset.

    `ceiling` is the speed of the best settings without their input, `best_speed` that with it, `noise` the relative
    spread of repeated measurements. `unproved` are settings that seemed faster, of which no pairs could prove it.
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
    learning: str = ""  # what followed from the losses
    rate_fixed: str = ""  # why the learning rate cannot be scaled

    @property
    def trials(self) -> list[list[Trial]]:
        """By what they were measured for."""
        return [*(candidate.trials for candidate in self.candidates), *(check.trials for check in self.losses)]
