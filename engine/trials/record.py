"""The record of a proof, proof.json: it is replaced as a whole after every change, so that viewers can follow the
proof.

Only the proof's process writes it. Readers get the same dataclasses (`of_plain`), which they do not change, and treat
an unknown value as null. Shares are 0 to 1, gains are relative (0.42: 42 % more samples per second), and `gain_total`
is a factor (3.4: 3.4 times as fast).
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args, get_type_hints

from ..files.values import Fields
from ..files.writing import write_atomically
from ..runs import events
from ..runs.events import Stage
from ..system.identity import Place, Process
from ..system.run_clock import steady
from . import KEEPS
from .rate_record import RateTest
from .search_record import Limits, Search
from .significance import gain
from .sweep_record import Sweep
from .trial import FIGURES, Trial, place

SCALING_DECISIONS = ("measured", "failed", "running")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The changes against the preset with which `replicas` replicas, or `copies` trainings at once, are measured."""

    replicas: int
    changes: Mapping[str, Any]
    copies: int = 1


@dataclass(frozen=True, kw_only=True)
class ScalingSettings:
    """The settings to measure, one for each number of replicas or of copies, in rising order. The first has one.

    `keep` is the batch size that stays the same: `per-replica` or `global`. `shared` says in words what the replicas
    share if they have no device of their own. Otherwise it is empty.
    """

    settings: Sequence[Setting]
    keep: str = KEEPS[0]
    shared: str = ""  # for example "replicas share a GPU"


@dataclass(kw_only=True)
class Point:
    """The result with one number of replicas or of copies (trainings at once): its trials, and medians over them
    (`samples_per_second`, `step_ms`, `input_wait`).

    `changes` are the changes against the preset. A trial of several copies has the samples per second of all of them.
    `speedup` is the median over the rounds of the samples per second divided by those of one replica or copy in the
    same round. `efficiency` is the median over the rounds of that quotient divided by the number of replicas or copies,
    and `spread` its sample standard deviation over the rounds. `xla`: whether XLA compiled the step. None: not known.
    `decision` is `running`, `measured` or `failed`, and `why` the reason of a failure.
    """

    replicas: int
    changes: Mapping[str, Any]
    trials: list[Trial] = field(default_factory=list)
    global_batch_size: int | None = None
    samples_per_second: float | None = None
    step_ms: float | None = None
    input_wait: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    spread: float | None = None
    xla: bool | None = None
    decision: str = "running"
    why: str = ""
    copies: int = 1

    @property
    def number(self) -> int:
        """The number of replicas or, if copies were measured, of copies."""
        return self.replicas * self.copies

    def ratios(self, first: Point) -> list[float]:
        """Return for each round the samples per second divided by those of `first` in the same round, of successful
        trials.
        """
        alone = {trial.repeat: trial.samples_per_second for trial in first.trials if trial.good}
        return [trial.samples_per_second / speed for trial in self.trials
                if trial.good and trial.samples_per_second and (speed := alone.get(trial.repeat))]  # fmt: skip


@dataclass(kw_only=True)
class Scaling:
    """The results of a measurement of scaling: a point for each number of replicas or of copies, in rising order.

    `rounds` is the number of rounds that have been measured completely.
    """

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


def scaling_settings(plain: Mapping[str, Any]) -> ScalingSettings:
    """Return the settings to measure, made from their plain values in a file."""
    settings = [Setting(**setting) for setting in plain["settings"]]
    return ScalingSettings(settings=settings, keep=plain["keep"], shared=plain["shared"])


KINDS = ("ab", "loop", "diagnosis", "tune", "scaling", "rate", "sweep")
STATES = ("running", "done", "stopped", "failed")
# Decisions of a loop; an `ab` has faster, slower, no difference and undecided instead of the first two.
DECISIONS = ("kept", "rejected", "failed", "running", "stopped")
MACHINE = {
    "system": str, "processor": str | None, "cpus": int | None, "memory_bytes": int | None, "gpus": list[str],
    "no_gpu_reason": str | None, "gputui": str,
}  # fmt: skip
Verdict = Annotated[Mapping[str, Any], Fields(events.Diagnosis)]
Declared = TypeVar("Declared")


@dataclass(kw_only=True)
class Learning:
    """The running loss of both sides after the same number of samples. None if the losses could not be read.

    `note` says in one line how the change affects what the model learns.
    """

    note: str
    samples: int | None = None
    loss_a: float | None = None
    loss_b: float | None = None


@dataclass(kw_only=True)
class Comparison:
    """A comparison of two sides: side a is the baseline, side b the baseline with `changes`.

    `reason` says why the changes are tried, `step` is the part of the training that they change, and `verdict_before`
    the verdict that proposed them. `gain` is the median gain in speed of the pairs (0.05: b is 5 % faster), and
    `spread` the standard deviation of log(1 + gain). `expected_gain` is a factor (1.05). None: not known. `decision` is
    `running` at first, and its reason is in `why`.
    """

    changes: Mapping[str, Any]
    reason: str = ""
    expected_gain: float | None = None
    step: str = ""
    verdict_before: str | None = None
    trials: list[Trial] = field(default_factory=list)
    gain: float | None = None
    spread: float | None = None
    decision: str = "running"
    why: str = ""
    learning: Learning | None = None

    def good(self, side: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.side == side and trial.good]

    @property
    def pair(self) -> tuple[Trial, Trial] | None:
        """The two trials of the pair that has the median gain, so that their speeds differ by that gain. None without a
        complete pair.
        """
        median, first = self.gain, {trial.repeat: trial for trial in self.good("a") if trial.samples_per_second}
        pairs = {
            gain(of_a, of_b): (first[trial.repeat], trial)
            for trial in self.good("b")
            if trial.repeat in first
            and (of_a := first[trial.repeat].samples_per_second)
            and (of_b := trial.samples_per_second)
        }
        return None if median is None or not pairs else pairs[min(pairs, key=lambda each: abs(each - median))]

    def figures(self, side: str) -> dict[str, float | None]:
        """Return the figures of a side in the pair with the median gain; without a pair the medians of its trials."""
        return medians([self.pair["ab".index(side)]] if self.pair else self.good(side))


@dataclass(kw_only=True)
class Ablation:
    """The share of a step that the input costs, from trials as they are (side a) and on one repeated batch (side b).

    `input_cost` is 1 - time of a step on the repeated batch / time of a real step. `input_wait` is the median share
    that the real trials measured themselves. Both are None if they are not known; `why` then has the reason. `stages`
    are the stages of the input with their times.
    """

    trials: list[Trial]
    input_cost: float | None = None
    input_wait: float | None = None
    stages: Sequence[Stage] = ()
    why: str = ""


@dataclass(kw_only=True)
class Record:
    """The record of a proof: its request, state, times, trials, comparisons and results, as proof.json has them.

    `path` is the file proof.json, which `write` replaces and viewers read.
    """

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
    machine: Annotated[Mapping[str, Any], Fields(MACHINE)] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    baseline_trials: list[Trial] = field(default_factory=list)  # in a loop without ablation: its first diagnosis
    ablation: Ablation | None = None
    profile_trial: Trial | None = None
    profile: Mapping[str, Any] | None = None  # engine/profile/reports.py, as plain values
    profile_missing: str = ""  # why a requested profile is missing
    diagnosis: Verdict | None = None  # of the original preset
    comparisons: list[Comparison] = field(default_factory=list)
    before: Mapping[str, float | None] | None = None
    after: Mapping[str, float | None] | None = None  # the changed side of an `ab`, the changes that a loop has kept
    gain_total: float | None = None
    final_verdict: Verdict | None = None
    advice: list[events.Remedy] = field(default_factory=list)  # of a loop's last diagnosis, for the user's code
    preset_after: str | None = None
    changes_kept: dict[str, Any] = field(default_factory=dict)
    search: Search | None = None  # of a `tune`
    scaling: Scaling | None = None  # of a `scaling`
    rate: RateTest | None = None  # of a learning-rate range test
    sweep: Sweep | None = None  # of a sweep, whose trials are runs
    earlier: list[Trial] = field(default_factory=list)  # trials from before the proof was resumed, until it has ended
    ended_because: str = ""
    error: str | None = None

    def set_process(self, process: Process) -> None:
        """Record the process that carries out the proof, and its machine."""
        identity = process.as_fields() | (process.place.as_fields() if process.place else {})
        for name, value in identity.items():
            setattr(self, name, value)

    @property
    def elapsed(self) -> float:
        return steady() - self.started_mark

    def write(self, doing: str | None = None) -> None:
        """Replace proof.json as `put` does, but raise no error if the disk refuses it: the next call then writes
        everything.

        `doing` is the present work in words. None keeps the previous text.
        """
        with contextlib.suppress(OSError):
            self.put(doing)

    def put(self, doing: str | None = None) -> None:
        """Replace proof.json. Raises OSError.

        `doing` is the present work in words. None keeps the previous text.
        """
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
        """All trials since the proof was started or resumed, each once.

        The first comparison may use the trial of the baseline as its own.
        """
        ablation = self.ablation.trials if self.ablation else []
        compared = (trial for comparison in self.comparisons for trial in comparison.trials)
        profiled = [self.profile_trial] if self.profile_trial else []
        rows = (*self.baseline_trials, *ablation, *profiled, *self.searched, *compared)
        return list({trial.run: trial for trial in rows}.values())

    @property
    def searched(self) -> list[Trial]:
        """The trials of a search, a measurement of scaling or a range test. Empty for other proofs."""
        searched = (trial for trials in self.search.trials for trial in trials) if self.search else ()
        of_rates = (*self.rate.ramp, *self.rate.trials) if self.rate else ()
        return [*searched, *(self.scaling.trials if self.scaling else ()), *of_rates]

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
    """Return the search in a record. An empty search if the record has none."""
    return record.search or Search(limits=Limits())


def of_plain(path: Path, plain: Mapping[str, Any]) -> Record:
    """Return the record from the plain values of a proof.json, which were checked before (files/declared_types.py).

    UNREAD if `plain` is empty. Entries that are not fields of Record are left out.
    """
    return _built(Record, {**plain, "path": path}) if plain else UNREAD


def _built(declared: type[Declared], plain: Mapping[str, Any]) -> Declared:
    """Return an instance of the dataclass `declared` from the plain values of its fields. Dataclasses in its fields are
    built as well.
    """
    values: dict[str, Any] = {}
    for name, inner in _inner_types(cast(Any, declared)).items():
        if name not in plain:
            continue
        value = plain[name]
        if inner is not None and isinstance(value, list):
            value = [_built(inner, item) for item in value]
        elif inner is not None and isinstance(value, dict):
            value = _built(inner, value)
        values[name] = value
    return declared(**values)


@cache
def _inner_types(declared: Any) -> dict[str, Any]:
    """Return, for each field of the dataclass `declared` by its name, the dataclass of its value or of its items. None
    if it has none.
    """
    return {
        name: next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        for name, hint in get_type_hints(declared).items()
    }


def elapsed_of(record: Record) -> float:
    """Return the seconds since the start of a proof.

    If it runs on another machine or kernel, they are the difference of the wall clocks, else of a clock that nobody can
    set.
    """
    place = Place.read(vars(record))
    if place is not None and place.shares_kernel:
        return steady() - record.started_mark
    return time.time() - record.started_t


def medians(trials: Sequence[Trial]) -> dict[str, float | None]:
    """Return the median of each figure over the trials that have it. None if none has.

    The keys are those of FIGURES.
    """
    figures: dict[str, float | None] = {}
    for name in FIGURES:
        values = [value for trial in trials if (value := getattr(trial, name)) is not None]
        figures[name] = statistics.median(values) if values else None
    return figures
