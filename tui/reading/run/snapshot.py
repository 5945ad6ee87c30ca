"""The state of a run at one moment, as all views show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....engine.files.values import EMPTY
from ....engine.runs.events import Summary
from ....engine.runs.run_state import RunState
from .gpu_reading import ShownGpu
from .series import NOTHING, Line, Pace

WHOLE, UNFINISHED, SO_FAR = "last whole epoch", "epoch not finished", "epoch so far"


@dataclass(frozen=True)
class EpochMean:
    """A run's loss or metric that all views show: of an ended run the mean over its last complete epoch, as Keras
    reports it (result.json), or up to the end; of a running run the mean so far. `steps` names in a word the steps of
    which it is the mean."""

    value: float | None = None
    steps: str = ""

    @classmethod
    def of_result(cls, summary: Summary | None, name: str = "loss") -> EpochMean:
        value = summary.metrics.get(name) if summary else None
        return cls() if summary is None or value is None else cls(value, WHOLE if summary.epochs else UNFINISHED)


@dataclass(kw_only=True)
class Snapshot(RunState):
    """The state of a run at one moment, which nothing changes any more: `start` has the phase that goes on, and `host`
    of an ended run, if `host_is_mean`, the means while it trained. `windowed`: the loss is that of the steps since the
    last progress event."""

    elapsed: float = 0.0  # seconds without the pauses
    phase_seconds: float = 0.0
    pace: Pace = field(default=Pace())
    lines: Mapping[str, Line] = field(default_factory=lambda: EMPTY)
    metrics: tuple[str, ...] = ()
    windowed: bool = False
    gpus: tuple[ShownGpu, ...] = ()
    no_gpu_reason: str | None = None
    gpu_seconds: float | None = None
    host_is_mean: bool = False
    tf_host: Mapping[str, float] = field(default_factory=lambda: EMPTY)  # TensorFlow's allocator on the host

    def unix_time(self, seconds: float) -> float:
        """Return the Unix time of a moment of the run, which is given in seconds since the run began."""
        paused = max((paused for at, paused in self.pauses if at <= seconds), default=0.0)
        return (self.begun or 0.0) + seconds + paused

    def epoch_mean(self, name: str = "loss") -> EpochMean:
        """Return the mean of the loss or of a metric: that of the result, else that of the newest progress."""
        ended = self.summary if self.outcome is not None else None
        if (mean := EpochMean.of_result(ended, name)).value is not None or self.progress is None:
            return mean
        value = self.progress.loss if name == "loss" else self.progress.metrics.get(name)
        return EpochMean() if value is None else EpochMean(value, UNFINISHED if ended else SO_FAR)

    def line(self, name: str) -> Line:
        return self.lines.get(name, NOTHING)
