"""The state of a run by its events, which are folded here alone: for the live view, the diagnosis and the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self

from ..files.values import EMPTY
from . import events
from .parsing import Unknown

BEGINNINGS = ("starting", "importing")  # the phases with which a run begins or is resumed
MAX_WARNINGS = 200
MAX_EPOCHS = 1000
MAX_SPELLS = 1000
_NO_RESULT = events.Fault(
    kind="crash", message="the run ended without a result: its engine is gone", hint="see the end of the log"
)
_SUMMARY_FIELDS = tuple(info.name for info in fields(events.Summary))
_UNKNOWN_COUNTS: dict[str, Any] = dict.fromkeys(("measured_steps", "epochs", "steps"))  # that a summary may lack


@dataclass(frozen=True)
class Span:
    """A phase and its duration so far in seconds. `count` is how often the phase occurred."""

    phase: str
    detail: str = ""
    seconds: float = 0.0
    count: int = 1

    @property
    def of_others(self) -> bool:
        """True if the phase is a wait for workers on other machines, so that its time is not the run's own."""
        return events.waits_for_others(self.phase, self.detail)


@dataclass(frozen=True)
class Spell:
    """A phase after the step `step`, such as an evaluation: from the moment `begin` to `end`, of RunState."""

    phase: str
    begin: float
    end: float
    step: float


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended at the Unix time `t`. `epochs` is the number of all epochs, 0 if it is unknown."""

    t: float
    number: int
    epochs: int
    seconds: float | None
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class BestEpoch:
    """The best epoch so far, counted from 1, by a figure. `moment` has the moment and the step of its end."""

    epoch: int
    figure: str
    moment: tuple[float, float]


@dataclass(kw_only=True)
class RunState:
    """What the events say up to now. `fold` takes them in the order of time; it replaces values and changes none in
    place, so that a copy of the fields is a snapshot. Moments of the run are seconds since it began, without the
    pauses between its sittings, each of which is a launch.
    """

    # The newest event of each kind.
    started: events.Started | None = None
    progress: events.Progress | None = None
    host: events.HostReading | None = None
    allocator: events.Allocator | None = None
    input_stages: events.InputStages | None = None
    workers: events.WorkerReadings | None = None
    exchange: events.GradientExchange | None = None
    diagnosis: events.Diagnosis | None = None
    diagnosed_before_resume: bool = False

    best: Mapping[str, BestEpoch] = field(default_factory=lambda: EMPTY)  # by the option that asks for it
    epochs: tuple[Epoch, ...] = ()
    warnings: tuple[events.Warn, ...] = ()
    error: events.Fault | None = None
    outcome: str | None = None
    summary: events.Summary | None = None

    phase: str = "starting"
    phase_detail: str = ""
    phase_t: float = 0.0  # Unix time at which it began
    has_trained: bool = False  # since the last start
    is_command: bool = False  # it is a command of the user, which has no figures of a training
    start: tuple[Span, ...] = ()  # the ended phases until training began
    rest: Mapping[str, Span] = field(default_factory=lambda: EMPTY)  # totals of the ended phases since then, by name
    spells: tuple[Spell, ...] = ()
    first_step_seconds: float | None = None

    begun: float | None = None  # Unix time of the first event
    last_t: float = 0.0
    before_last_t: float | None = None  # the newest time before `last_t`
    ended_t: float | None = None  # when the trainer of this sitting ended
    paused: float = 0.0  # seconds of all pauses
    pauses: tuple[tuple[float, float], ...] = ()  # the moment of each resume, with the seconds of all pauses until then
    resumes: tuple[float, ...] = ()  # Unix times
    joins: tuple[tuple[float, float], ...] = ()  # moment and step of the first progress after each resume
    joins_next: bool = False  # the next progress is one of them
    trains_since: float | None = None  # the moment of the first training
    step: float = 0.0
    steps_of_epoch: float | None = None  # as counted by the newest epoch that has ended

    @classmethod
    def of(cls, written: Iterable[events.Event]) -> Self:
        state = cls()
        for event in written:
            state.fold(event)
        return state

    def fold(self, event: events.Event) -> None:
        """Take the next event, of which fields may be absent. One of an unknown type is left out."""
        t = event.t
        if self.begun is None and not isinstance(event, Unknown):
            self.begun = self.phase_t = t
        match event:
            case events.Progress():
                self.progress = event
                if self.trains_since is None:
                    self.trains_since = self.moment(event.t)
                if event.step is not None:
                    self.step = event.step
                if self.joins_next:
                    self.joins, self.joins_next = (*self.joins, (self.moment(event.t), self.step)), False
            case events.HostReading():
                self.host = event
            case events.Allocator():
                self.allocator = event
            case events.InputStages():
                self.input_stages = event
            case events.WorkerReadings():
                self.workers = event
            case events.GradientExchange():
                self.exchange = event
            case events.Phase():
                self._begin_phase(t, event.phase, event.detail)
            case events.EpochEnd():
                self._end_epoch(event)
            case events.Diagnosis():
                # Too few steps since the resume: the verdict of the part before stands.
                if event.verdict != "undecided" or not self.diagnosed_before_resume:
                    self.diagnosis, self.diagnosed_before_resume = event, False
            case events.Best():
                before = self.best.get(event.option)  # a resumed run reports it again, and it keeps its moment
                if event.epoch is not None and event.step is not None and (not before or before.epoch != event.epoch):
                    best = BestEpoch(event.epoch, event.figure, (self.moment(t), event.step))
                    self.best = MappingProxyType({**self.best, event.option: best})
            case events.Warn():
                if event not in self.warnings:
                    # One that is content again, with more to do about it, takes the place of the first.
                    others = (each for each in self.warnings if replace(each, hint=event.hint) != event)
                    self.warnings = (*others, event)[-MAX_WARNINGS:]
            case events.Fault():
                self.error = event
            case events.Started():
                self.started = event
                self.outcome = self.error = self.summary = None
            case events.Finished():
                self._finish(event)
                return  # as it may be written long after the end
            case Unknown():
                return
        self.pass_time(t)

    def pass_time(self, t: float) -> None:
        """Take only the time of an event: the run lasted at least until then."""
        if self.begun is None:
            self.begun = self.phase_t = t
        if t > self.last_t:
            self.before_last_t, self.last_t = self.last_t or None, t
        elif t < self.last_t and (self.before_last_t is None or t > self.before_last_t):
            self.before_last_t = t

    def moment(self, t: float) -> float:
        """Return a Unix time in seconds since the run began, without the pauses."""
        return max(0.0, t - self.begun - self.paused) if self.begun is not None else 0.0

    def start_until(self, t: float) -> tuple[Span, ...]:
        """Return the phases of the start in their order; an unfinished last one lasts until the Unix time `t`."""
        if self.has_trained or self.phase == "ended":
            return self.start
        return (*self.start, Span(self.phase, self.phase_detail, max(0.0, t - self.phase_t)))

    @property
    def steps_per_epoch(self) -> float | None:
        return (self.started and self.started.steps_per_epoch) or self.steps_of_epoch

    @property
    def samples_per_step(self) -> float | None:
        """The mean of this sitting or, before its first progress, that of a full step; None if it is not known."""
        resumed_at = (self.started.resumed_at_step or 0) if self.started else 0
        if (progress := self.progress) and progress.samples and (steps := (progress.step or 0) - resumed_at) > 0:
            return progress.samples / steps
        return self.started.global_batch_size if self.started else None

    @property
    def learning(self) -> str:
        """That the training diverges, learns nothing or overfits, in a sentence; empty if none is known."""
        newest = self.diagnosis if self.outcome is None else self.summary
        return newest.learning if newest else ""

    def _end_epoch(self, event: events.EpochEnd) -> None:
        if event.step is None:
            return
        self.step = event.step
        if event.epoch:
            # If a resumed run repeats an epoch, the later one replaces the earlier one and all after it.
            before = tuple(earlier for earlier in self.epochs if earlier.number < event.epoch)
            epochs = (self.started.epochs or 0) if self.started else 0
            ended = Epoch(event.t, event.epoch, epochs, event.seconds, event.metrics)
            self.epochs, self.steps_of_epoch = (*before, ended)[-MAX_EPOCHS:], event.step / event.epoch

    def _begin_phase(self, t: float, phase: str, detail: str) -> None:
        resumes = phase in BEGINNINGS and self.phase not in BEGINNINGS
        if self.has_trained and self.phase != "training" and phase not in BEGINNINGS:
            spell = Spell(self.phase, self.moment(self.phase_t), self.moment(t), self.step)
            self.spells = (*self.spells, spell)[-MAX_SPELLS:]
        if resumes:
            self._resume(t)
        elif phase == "starting" and self.begun is not None:
            self.begun = min(self.begun, t)  # a late event of a trainer that has imported TensorFlow meanwhile
        if phase == "training" and self.phase == "compiling" and self.phase_detail not in events.LATER_COMPILING:
            self.first_step_seconds = t - self.phase_t
        if phase == "training" and self.trains_since is None:
            self.trains_since = self.moment(t)
        self.ended_t = t if phase == "ended" else None
        if not self.has_trained and (phase, detail) == (self.phase, self.phase_detail):  # by engine and trainer
            self.phase_t = min(self.phase_t, t)
            return
        if not resumes:
            self._end_phase(max(0.0, t - self.phase_t))
        self.phase, self.phase_detail, self.phase_t = phase, detail, t
        self.has_trained = self.has_trained or phase == "training"
        self.is_command = self.is_command or phase == "command"

    def _end_phase(self, seconds: float) -> None:
        if not self.has_trained:
            self.start = (*self.start, Span(self.phase, self.phase_detail, seconds))
        elif self.phase != "ended":
            detail = self.phase_detail if self.phase == "compiling" else ""  # each kind of it is done once
            before = self.rest.get(self.phase + detail, Span(self.phase, count=0))
            total = Span(self.phase, detail, before.seconds + seconds, before.count + 1)
            self.rest = MappingProxyType({**self.rest, self.phase + detail: total})

    def _resume(self, t: float) -> None:
        # The run's time continues from its stop. Readings of the new engine may come before the event of the resume.
        earlier = self.last_t if self.last_t < t else self.before_last_t
        stopped = self.ended_t if self.ended_t is not None else earlier if earlier is not None and earlier < t else t
        self.paused += max(0.0, t - stopped)
        self.pauses = (*self.pauses, (self.moment(t), self.paused))
        self.resumes = (*self.resumes, t)
        self.joins_next = self.trains_since is not None
        self.outcome = self.error = self.summary = self.input_stages = self.exchange = None
        if self.diagnosis is not None and self.diagnosis.verdict in ("", "undecided"):
            self.diagnosis = None
        self.diagnosed_before_resume = self.diagnosis is not None
        self.start, self.has_trained = (), False

    def _finish(self, event: events.Finished) -> None:
        content = {name: event.summary[name] for name in _SUMMARY_FIELDS if name in event.summary}
        self.outcome = event.outcome or content.get("outcome") or "crashed"
        self.summary = events.Summary(**_UNKNOWN_COUNTS | content | {"outcome": self.outcome})
        if error := self.summary.error:
            self.error = events.Fault(**{name: error.get(name, "") for name in ("kind", "message", "hint")})
        elif self.error is None and self.outcome == "crashed":
            self.error = _NO_RESULT
        self.first_step_seconds = self.summary.first_step_seconds or self.first_step_seconds
