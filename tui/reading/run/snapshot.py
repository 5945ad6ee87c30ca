"""The state of a run at one moment, as all views show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....engine.files.values import EMPTY
from .gpus import Gpu
from .phase_times import Span
from .series import NOTHING, Line, Pace


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


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment. `elapsed` is in seconds, without pauses between a stop and a resume.

    `diagnosis`, `input_stages` and `workers` are the newest events of their kind. `gpu_seconds` is the time between two
    readings. `start` are the phases until training began, `rest` the totals of the later phases. `joins` are the
    moments (time, step) at which a resumed run continued, `resumes` the Unix times at which it was resumed. `windowed`:
    the loss is that of the steps since the last progress event, not the mean of the epoch so far.
    """

    elapsed: float = 0.0
    phase: str = "starting"
    phase_detail: str = ""
    phase_seconds: float = 0.0
    first_step_seconds: float | None = None
    started: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    progress: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    lines: Mapping[str, Line] = field(default_factory=lambda: EMPTY)
    metrics: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
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
    resumes: tuple[float, ...] = ()
    windowed: bool = False
    epochs: tuple[Epoch, ...] = ()

    def line(self, name: str) -> Line:
        return self.lines.get(name, NOTHING)
