"""The record of a proof, proof.json, replaced as a whole after every change, by the proof's process alone. Shares are 0
to 1, gains are relative (0.42: 42 % more samples per second), and `gain_total` is a factor (3.4: 3.4 times as fast).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from .. import figures
from ..files.writing import write_atomically
from ..runs import events
from ..runs.events import StageTiming, TrialFigures
from ..system.identity import Place, Process
from ..system.run_clock import steady
from ..text_table import Interval, Table, around
from . import KEEPS, LEAST_REPEATS, STAGES
from .significance import gain, interval
from .sweep_record import Sweep

_OF_ONE_TRIAL = ("gain", "loss_at_samples", "seconds")
FIGURES = tuple(figure.key for figure in figures.shown("trial") if figure.key not in _OF_ONE_TRIAL)  # with medians


@dataclass(kw_only=True)
class Trial(TrialFigures):
    """One measured training. The outcome is that of a run, or `slower` if it was ended early."""

    side: str  # `a` is the baseline
    repeat: int  # the number of the trial of this side
    run: str  # its folder under trials/
    # A mean over all measured steps, as the speed: a median would hide stalls that a change causes or removes.
    step_ms: float | None = None
    loss_at_samples: float | None = None
    replicas: int | None = None  # this and the global batch are from the trainer's event `started`
    seconds: float = 0.0
    error: str | None = None
    disturbed: str = ""  # which other programs used the trial's devices or cores
    # Speed of the best settings on this trial's GPU, relative to the first GPU; `speed` is corrected by it.
    gpu_speed: float = 1.0
    key: str = ""  # identifies settings and turn, so that a resumed search does not measure the trial again

    @property
    def good(self) -> bool:
        return self.outcome == "ok"

    def figure(self, key: str) -> Any:
        """Return the value of the figure `key` (engine/figures). None if the trial does not have it."""
        return getattr(self, key, None)

    @property
    def speed(self) -> float:
        """Samples per second, converted to the speed of the first GPU. 0 if no speed was measured."""
        return (self.samples_per_second or 0.0) / self.gpu_speed


def place(run: str) -> tuple[int, str]:
    """Return the sort key of a trial's folder: its number (or 0) and its name, so that 99-s comes before 100-s."""
    number = run.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0, run


LOSS_DECISIONS = ("no worse", "worse", "not judged", "failed")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a search, None for none."""

    minutes: float = 10.0
    only: Sequence[str] = STAGES  # its stages
    leave: Sequence[str] = ()  # options that keep their values
    memory_bytes: int | None = None
    largest_batch: int | None = None
    precisions: Sequence[str] | None = None  # None: those for which there are instructions
    avoid_precisions: Sequence[str] = ()
    learning_rate: str = "keep"  # with a larger batch: keep, linear or sqrt
    warmup_steps: int | None = None  # with a scaled learning rate
    allow_worse_loss: bool = False
    wide: str | None = None  # Optuna combines options `after` or `instead` of the ordered search
    study: str | None = None  # a file or URL; None: a file in the search's folder
    study_name: str | None = None
    dry_run: bool = False  # only predict the memory


@dataclass(kw_only=True)
class Candidate:
    """Settings that were measured, or left out."""

    stage: str
    settings: Mapping[str, Any]  # changes of the preset
    tried: Mapping[str, Any]  # changes of the best settings at that time
    reason: str = ""
    without_input: bool = False  # measured on one repeated batch
    trials: list[Trial] = field(default_factory=list)
    samples_per_second: float | None = None
    gain: float | None = None  # over the best settings (0.05: 5 % faster), combined with that by waits
    gain_by_waits: float | None = None
    spread: float | None = None  # its standard error
    predicted_bytes: int | None = None
    peak_bytes: int | None = None
    decision: str = "running"  # in the end kept, rejected, failed, measured or left out
    why: str = ""

    @property
    def good(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.good]


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """The memory that trials with one batch size (of one replica) took, and its prediction."""

    batch_size: int
    peak_bytes: int | None  # None: out of memory; on a GPU without the first step, in which cuDNN tries algorithms
    predicted_bytes: int | None = None
    first_step_bytes: int | None = None


@dataclass(kw_only=True)
class Memory:
    """A line of memory over the batch size of one replica."""

    of: str  # `allocator` (the fullest device), `process` (on the host) or `address_space`
    limit_bytes: int | None = None
    base_bytes: float | None = None
    bytes_per_sample: float | None = None
    largest_batch: int | None = None  # predicted to fit, or sure to if `at_least`
    fits: int | None = None  # was trained
    too_large: int | None = None  # has run out of memory
    batch_size: int | None = None  # the preset's; None: own code makes batches
    predicted_bytes: int | None = None  # of this batch size
    first_step_bytes: int | None = None  # of this batch size
    at_least: bool = False
    most_batch: int | None = None
    limit_is_asked: bool = False
    replicas: int = 1
    points: list[MemoryPoint] = field(default_factory=list)


@dataclass(kw_only=True)
class LossCheck:
    """The loss with some settings (side b) and with the preset (side a) after the same number of samples."""

    settings: Mapping[str, Any]
    of: str = ""  # `validation` or `training`
    samples: int | None = None
    passes: int | None = None  # whole passes over the data; None: a part of the first pass
    trials: list[Trial] = field(default_factory=list)
    loss_a: float | None = None
    loss_b: float | None = None
    worse_from: float | None = None  # the limit for the mean `loss_b`
    decision: str = "running"  # in the end one of LOSS_DECISIONS; worse if the loss is too high in every pair
    why: str = ""


@dataclass(kw_only=True)
class StudyState:
    """The state of the Optuna study of a wide search."""

    storage: str
    name: str
    trials: int = 0  # of all members
    of_others: int = 0
    members: int = 1
    at_once: int = 1  # trials that are measured at the same time, each on its own GPU
    note: str = ""  # why the study failed


@dataclass(kw_only=True)
class Search:
    """The results of a search."""

    limits: Limits
    stage: str = ""
    candidates: list[Candidate] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)  # the fastest settings so far
    best_speed: float | None = None  # of these, with their input, in samples per second
    before_speed: float | None = None
    ceiling: float | None = None  # their speed without input
    noise: float | None = None  # the relative spread of repeated measurements (0.03: 3 %)
    memory: Memory | None = None
    study: StudyState | None = None  # of a wide search
    losses: list[LossCheck] = field(default_factory=list)
    unproved: dict[str, Any] = field(default_factory=dict)  # settings that seemed faster, which no pairs have proved
    learning: str = ""  # the consequences that the search has drawn from the losses
    rate_fixed: str = ""  # why the learning rate cannot be scaled


KEY = "train.learning_rate"
RATE_DECISIONS = ("better", "worse", "no difference", "undecided", "close", "no suggestion", "not judged", "running")


@dataclass(frozen=True, kw_only=True)
class RateSettings:
    """A ramp of `steps` steps from the rate `low` to `high`, and comparisons, all within `minutes`."""

    low: float = 1e-6
    high: float = 10.0
    steps: int = 300
    minutes: float = 10.0


@dataclass(kw_only=True)
class RateTest:
    """A range test: a ramp, and pairs of the preset's rate (side a) and the suggestion (side b)."""

    settings: RateSettings
    before: float  # the preset's rate
    seed: int | None = None  # of the ramp; the pairs have those after it
    ramp: list[Trial] = field(default_factory=list)
    rates: Sequence[float] = ()
    losses: Sequence[float | None] = ()  # None if not finite
    smoothed: Sequence[float] = ()  # until it diverges
    lowest_at: float | None = None
    suggested: float | None = None
    reason: str = ""
    of: str = ""  # `validation` or `training`
    samples: int | None = None
    passes: int | None = None
    trials: list[Trial] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)  # the loss of a divided by that of b, minus 1, after `samples`
    loss_a: float | None = None
    loss_b: float | None = None
    decision: str = "running"  # one of RATE_DECISIONS
    why: str = ""

    @property
    def changes(self) -> Mapping[str, Any]:
        """The suggestion as a change of the preset. Empty if there is none."""
        return {} if self.suggested is None else {KEY: self.suggested}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The changes against the preset with which `replicas` replicas, or `copies` trainings at once, are measured."""

    replicas: int
    changes: Mapping[str, Any]
    copies: int = 1


@dataclass(frozen=True, kw_only=True)
class ScalingSettings:
    """The settings to measure, one for each number of replicas or of copies, in rising order."""

    settings: Sequence[Setting]
    keep: str = KEEPS[0]  # the batch size that stays the same: `per-replica` or `global`
    shared: str = ""  # by replicas without a device of their own, such as "replicas share a GPU"


@dataclass(kw_only=True)
class Point:
    """The result with one number of replicas or copies: medians, of several copies for all together."""

    replicas: int
    changes: Mapping[str, Any]
    trials: list[Trial] = field(default_factory=list)
    global_batch_size: int | None = None
    samples_per_second: float | None = None
    step_ms: float | None = None
    input_wait: float | None = None
    speedup: float | None = None  # median of the samples per second divided by those of one in the same round
    efficiency: float | None = None  # the same divided by the number
    spread: float | None = None  # the standard deviation of the efficiencies
    xla: bool | None = None
    decision: str = "running"  # in the end `measured` or `failed`
    why: str = ""
    copies: int = 1

    @property
    def number(self) -> int:
        return self.replicas * self.copies

    @property
    def interval(self) -> Interval | None:
        return around(self.efficiency, self.spread)

    def ratios(self, first: Point) -> list[float]:
        """Return for each round the samples per second divided by those of `first` in it, of successful trials."""
        alone = {trial.repeat: trial.samples_per_second for trial in first.trials if trial.good}
        return [trial.samples_per_second / speed for trial in self.trials
                if trial.good and trial.samples_per_second and (speed := alone.get(trial.repeat))]  # fmt: skip


@dataclass(kw_only=True)
class Scaling:
    """The results of a measurement of scaling: points in rising order, and the number of complete rounds."""

    keep: str
    shared: str = ""
    points: list[Point] = field(default_factory=list)
    rounds: int = 0

    @property
    def trials(self) -> list[Trial]:
        return [trial for point in self.points for trial in point.trials]

    @property
    def is_of_copies(self) -> bool:
        return any(point.copies > 1 for point in self.points)

    @property
    def unit(self) -> str:
        return "copies" if self.is_of_copies else "replicas"


STATES = ("running", "done", "stopped", "failed")
# Decisions of a loop; an `ab` has faster, slower, no difference and undecided instead of the first two.
DECISIONS = ("kept", "rejected", "failed", "running", "stopped")
Verdict = Annotated[Mapping[str, Any], events.Diagnosis]


class MachineFacts(TypedDict, total=False):
    """The machine on which a proof was measured."""

    system: str
    processor: str | None
    cpus: int | None
    memory_bytes: int | None
    gpus: Sequence[str | None]
    no_gpu_reason: str | None
    gputui: str


@dataclass(kw_only=True)
class Learning:
    """The running losses of both sides after the same samples, None if not read; `note` says why they may differ."""

    note: str
    samples: int | None = None
    loss_a: float | None = None
    loss_b: float | None = None


@dataclass(kw_only=True)
class Comparison:
    """Side a, the baseline, and side b, the baseline with `changes`."""

    changes: Mapping[str, Any]
    reason: str = ""  # for which it was tried
    expected_gain: float | None = None  # a factor (1.05)
    step: str = ""  # of the training
    verdict_before: str | None = None
    trials: list[Trial] = field(default_factory=list)
    gain: float | None = None  # the median of the pairs (0.05: b is 5 % faster)
    spread: float | None = None  # the standard deviation of log(1 + gain)
    decision: str = "running"
    why: str = ""
    learning: Learning | None = None

    def good(self, side: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.side == side and trial.good]

    @property
    def pairs(self) -> list[tuple[float, Trial, Trial]]:
        """The gain (0.05: b is 5 % faster) and the trials of each complete pair."""
        first = {trial.repeat: trial for trial in self.good("a") if trial.samples_per_second}
        return [
            (gain(of_a, of_b), first[trial.repeat], trial)
            for trial in self.good("b")
            if trial.repeat in first
            and (of_a := first[trial.repeat].samples_per_second)
            and (of_b := trial.samples_per_second)
        ]

    @property
    def pair(self) -> tuple[Trial, Trial] | None:
        """The two trials of the pair that has the median gain. None without a complete pair."""
        median, pairs = self.gain, {gain: (a, b) for gain, a, b in self.pairs}
        return None if median is None or not pairs else pairs[min(pairs, key=lambda each: abs(each - median))]

    @property
    def interval(self) -> Interval | None:
        """The gain with what its pairs leave possible: the gain may be chance if zero is within it."""
        return interval(self.gain, self.spread, len(self.pairs) or LEAST_REPEATS)

    def figures(self, side: str) -> dict[str, float | None]:
        """Return the figures of a side in the pair with the median gain; without a pair the medians of its trials."""
        return medians([self.pair["ab".index(side)]] if self.pair else self.good(side))


@dataclass(kw_only=True)
class Ablation:
    """The cost of the input by trials as they are (side a) and on one repeated batch (side b)."""

    trials: list[Trial]
    input_cost: float | None = None  # 1 - time of a step on the repeated batch / time of a real step
    input_wait: float | None = None  # the median share that the real trials measured
    stages: Sequence[StageTiming] = ()
    why: str = ""


@dataclass
class Section:
    """A part of a report: a table of texts, then sentences without a full stop."""

    title: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """Each row has as many cells as the head, also of a damaged record."""
        blanks = [""] * len(self.head)
        return Table(self.head, [[*row, *blanks][: len(blanks)] for row in self.rows])


@dataclass(kw_only=True)
class Record:
    """The record of a proof as its file `path` (proof.json) has it, which `write` replaces and viewers read."""

    path: Path
    id: str
    kind: str
    preset_name: str
    repeats: int  # pairs of a comparison, or of a diagnosis' ablation
    measure_seconds: float
    preset_before: str
    limit_seconds: float | None = None
    state: str = "running"
    pid: int | None = None
    start_ticks: int | None = None
    host: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None
    started_t: float = field(default_factory=time.time)
    started_mark: float = field(default_factory=steady)  # the same moment on the steady clock
    seconds: float = 0.0
    budget_seconds: float | None = None  # the least total time that is expected
    budget_most_seconds: float | None = None  # the longest total time that is expected, if longer
    doing: str = ""
    machine: MachineFacts = field(default_factory=lambda: MachineFacts())
    versions: Mapping[str, str] = field(default_factory=dict)
    baseline_trials: list[Trial] = field(default_factory=list)  # in a loop without ablation: its first diagnosis
    ablation: Ablation | None = None
    profile_trial: Trial | None = None
    profile: Mapping[str, Any] | None = None  # engine/profile/reports.py, as plain values
    profile_missing: str = ""  # why a requested profile is missing
    diagnosis: Verdict | None = None  # of the original preset
    comparisons: list[Comparison] = field(default_factory=list)
    before: Mapping[str, float | int | None] | None = None
    after: Mapping[str, float | int | None] | None = None  # an `ab` changed, or with what a loop has kept
    gain_total: float | None = None
    final_verdict: Verdict | None = None
    advice: list[events.PlainRemedy] = field(default_factory=list)  # of a loop's last diagnosis, for the user's code
    preset_after: str | None = None
    changes_kept: dict[str, Any] = field(default_factory=dict)
    search: Search | None = None  # of a `tune`
    scaling: Scaling | None = None  # of a `scaling`
    rate: RateTest | None = None  # of a learning-rate range test
    sweep: Sweep | None = None  # of a sweep, whose trials are runs
    answer: str = ""  # this and the sections: of a kind without figures of its own
    sections: list[Section] = field(default_factory=list)
    earlier: list[Trial] = field(default_factory=list)  # trials from before the proof was resumed, until it has ended
    ended_because: str = ""
    error: str | None = None

    def set_process(self, process: Process) -> None:
        identity = process.as_fields() | (process.place.as_fields() if process.place else {})
        for name, value in identity.items():
            setattr(self, name, value)

    @property
    def elapsed(self) -> float:
        return steady() - self.started_mark

    def write(self, doing: str | None = None) -> None:
        """Replace proof.json as `put` does; what the disk refuses is written by the next call."""
        with contextlib.suppress(OSError):
            self.put(doing)

    def put(self, doing: str | None = None) -> None:
        """Replace proof.json, with the present work `doing` in words (None: unchanged). Raises OSError."""
        if doing is not None:
            self.doing = doing
        self.seconds = self.elapsed
        content = events.plain(asdict(self))
        del content["path"]
        write_atomically(self.path, json.dumps(content, indent=1, default=str, allow_nan=False), durable=False)

    @property
    def is_read(self) -> bool:
        """False for UNREAD, the record of a proof.json that cannot be read. True for every other record."""
        return bool(self.id)

    @property
    def trials(self) -> list[Trial]:
        """All trials since the start or resume, each once, as a comparison may use the baseline's as its own."""
        ablation = self.ablation.trials if self.ablation else []
        compared = (trial for comparison in self.comparisons for trial in comparison.trials)
        profiled = [self.profile_trial] if self.profile_trial else []
        search, scaling, rate = self.search, self.scaling, self.rate
        rows = [
            *self.baseline_trials,
            *ablation,
            *profiled,
            *(trial for candidate in (search.candidates if search else ()) for trial in candidate.trials),
            *(trial for check in (search.losses if search else ()) for trial in check.trials),
            *(scaling.trials if scaling else ()),
            *((*rate.ramp, *rate.trials) if rate else ()),
            *compared,
        ]
        return list({trial.run: trial for trial in rows}.values())

    @property
    def all_trials(self) -> list[Trial]:
        """All trials, also those before the proof was resumed, in the order of their start, each once."""
        by_run = {trial.run: trial for trial in (*self.trials, *self.earlier)}
        return [by_run[run] for run in sorted(by_run, key=place)]


UNREAD = Record(
    path=Path(), id="", kind="", preset_name="", repeats=0, measure_seconds=0.0, preset_before="", state="",
    started_t=0.0, started_mark=0.0,
)  # fmt: skip


def search_of(record: Record) -> Search:
    return record.search or Search(limits=Limits())


def elapsed_of(record: Record) -> float:
    """Return the seconds since the start, by wall clocks on another kernel, else by one that nobody can set."""
    place = Place.read(vars(record))
    if place is not None and place.shares_kernel:
        return steady() - record.started_mark
    return time.time() - record.started_t


def medians(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Return the median of each of FIGURES over the trials that have it. None if none has."""
    figures: dict[str, float | None] = {}
    for name in FIGURES:
        values = [value for trial in trials if (value := getattr(trial, name)) is not None]
        figures[name] = statistics.median(values) if values else None
    return figures
