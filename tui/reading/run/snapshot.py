"""The state of a run at one moment, as all views show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ....engine.files.values import EMPTY
from ....engine.runs.events import LATER_COMPILING, waits_for_others
from .gpu_reading import ShownGpu
from .series import NOTHING, Line, Pace

BEGINNINGS = ("starting", "importing")  # the phases with which a run begins or is resumed


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
        return waits_for_others(self.phase, self.detail)


@dataclass
class PhaseTimes:
    """Adds up the durations of phases. The phases before the first training are those of the start."""

    phase: str = "starting"
    detail: str = ""
    since: float = 0.0
    started: bool = False  # training has begun since the last start
    start: list[Span] = field(default_factory=list)
    later: dict[str, Span] = field(default_factory=dict)

    def begin(self, t: float, phase: str, detail: str) -> None:
        """Record that a phase begins at the Unix time `t`, and the one before it ends."""
        if not self.started and (phase, detail) == (self.phase, self.detail):  # by engine and trainer
            self.since = min(self.since, t)
            return
        if phase in BEGINNINGS and self.phase not in BEGINNINGS:
            self.start, self.started = [], False
        else:
            self._close(max(0.0, t - self.since))
        self.phase, self.detail, self.since = phase, detail, t
        self.started = self.started or phase == "training"

    @property
    def compiles_first_step(self) -> bool:
        return self.phase == "compiling" and self.detail not in LATER_COMPILING

    def _close(self, seconds: float) -> None:
        if not self.started:
            self.start.append(Span(self.phase, self.detail, seconds))
        elif self.phase != "ended":
            detail = self.detail if self.phase == "compiling" else ""  # each kind of it is done once
            before = self.later.get(self.phase + detail, Span(self.phase, count=0))
            self.later[self.phase + detail] = Span(self.phase, detail, before.seconds + seconds, before.count + 1)

    def of_start(self, now: float) -> tuple[Span, ...]:
        """Return the phases of the start in their order; an unfinished last one lasts until the Unix time `now`."""
        if self.started or self.phase == "ended":
            return tuple(self.start)
        return (*self.start, Span(self.phase, self.detail, max(0.0, now - self.since)))

    def of_rest(self) -> Mapping[str, Span]:
        """Return the ended phases since training began, by name, with their total durations."""
        return MappingProxyType(dict(self.later))


@dataclass(frozen=True)
class Spell:
    """A phase between steps, such as an evaluation: from `begin` to `end`, in seconds since the run began, after the
    step `step`."""

    phase: str
    begin: float
    end: float
    step: float


@dataclass(frozen=True)
class Message:
    """A warning, or the error that ended the run."""

    kind: str
    message: str
    hint: str = ""
    option: str = ""


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
    """The best epoch so far, counted from 1, by a figure. `moment` is its end: the time in seconds since the run began,
    and the step."""

    epoch: int
    figure: str
    moment: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of a run at one moment. `elapsed`: seconds without pauses. `start`: phases until training began;
    `rest`: totals of later ones. `joins`: (time, step) of resumes, `resumes` their Unix times, `pauses` each with the
    seconds of all before. `best`: epochs by option. With `windowed`, the loss is that of the steps since the last
    progress event."""

    elapsed: float = 0.0
    phase: str = "starting"
    phase_detail: str = ""
    phase_seconds: float = 0.0
    first_step_seconds: float | None = None
    started: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    progress: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    lines: Mapping[str, Line] = field(default_factory=lambda: EMPTY)
    metrics: tuple[str, ...] = ()
    gpus: tuple[ShownGpu, ...] = ()
    no_gpu_reason: str | None = None
    gpu_seconds: float | None = None
    diagnosis: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    input_stages: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    host: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    workers: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    tf_host: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    warnings: tuple[Message, ...] = ()
    error: Message | None = None
    outcome: str | None = None
    summary: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    start: tuple[Span, ...] = ()
    rest: Mapping[str, Span] = field(default_factory=lambda: EMPTY)
    pace: Pace = field(default=Pace())
    joins: tuple[tuple[float, float], ...] = ()
    best: Mapping[str, BestEpoch] = field(default_factory=lambda: EMPTY)
    resumes: tuple[float, ...] = ()
    spells: tuple[Spell, ...] = ()
    begun: float = 0.0
    pauses: tuple[tuple[float, float], ...] = ()
    windowed: bool = False
    epochs: tuple[Epoch, ...] = ()

    def unix_time(self, seconds: float) -> float:
        """Return the Unix time of a moment of the run, which is given in seconds since the run began."""
        return self.begun + seconds + max((paused for at, paused in self.pauses if at <= seconds), default=0.0)

    @property
    def learning(self) -> str:
        return str((self.summary if self.outcome is not None else self.diagnosis).get("learning") or "")

    def line(self, name: str) -> Line:
        return self.lines.get(name, NOTHING)
