"""The state of a run at one moment, as all views show it: that of engine/runs/run_state.py, with the lines of the
charts and the readings of its GPUs. History is bounded (series.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from ....engine.files.values import EMPTY
from ....engine.gpu import Gpu
from ....engine.runs import events
from ....engine.runs.run_state import RunState
from ....engine.telemetry.gpu_totals import GpuTotals
from . import gpu_reading
from .gpu_reading import ShownGpu, by_physical_gpu
from .series import NOTHING, Line, Pace, Series

WHOLE, UNFINISHED, SO_FAR = "last whole epoch", "epoch not finished", "epoch so far"


@dataclass(frozen=True)
class EpochMean:
    """A run's loss or metric that all views show: of an ended run the mean over its last complete epoch, as Keras
    reports it (result.json), or up to the end; of a running run the mean so far. `steps` names in a word the steps of
    which it is the mean."""

    value: float | None = None
    steps: str = ""

    @classmethod
    def of_result(cls, summary: events.Summary | None, name: str = "loss") -> EpochMean:
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

    def epoch_mean(self, name: str = "loss") -> EpochMean:
        """Return the mean of the loss or of a metric: that of the result, else that of the newest progress."""
        ended = self.summary if self.outcome is not None else None
        if (mean := EpochMean.of_result(ended, name)).value is not None or self.progress is None:
            return mean
        value = self.progress.loss if name == "loss" else self.progress.metrics.get(name)
        return EpochMean() if value is None else EpochMean(value, UNFINISHED if ended else SO_FAR)

    def line(self, name: str) -> Line:
        return self.lines.get(name, NOTHING)


# ---- made from the events --------------------------------------------------------------------------


# The lines of a GPU: what follows its number in their names, and the figure of its readings.
GPU_LINES = {"": "busy", " memory": "memory_used_bytes", " power": "power_w", " temperature": "temperature_c"}
_HOST_FIGURES = tuple(info.name for info in fields(events.HostReading))


@dataclass
class Store:
    """Collects a run's events, which must be added in the order of their times."""

    state: RunState = field(default_factory=RunState)
    _series: dict[str, Series] = field(default_factory=dict)
    _metrics: tuple[str, ...] = ()
    _windowed: bool = False
    _gpus: dict[int, Gpu] = field(default_factory=dict)
    _gpu_names: dict[int, str] = field(default_factory=dict)
    _gpu_totals: dict[int, GpuTotals] = field(default_factory=dict)
    _gpu_training: dict[int, GpuTotals] = field(default_factory=dict)  # of the readings while this sitting trains
    _no_gpu_reason: str | None = None
    _gpu_seconds: float | None = None
    _host_training: dict[str, tuple[float, int]] = field(default_factory=dict)  # of these, sums and numbers of values

    def feed(self, fresh: Iterable[events.Event]) -> None:
        state = self.state
        for event in fresh:
            state.fold(event)
            at, trains = state.moment(event.t), state.phase == "training"
            match event:
                case events.Progress():
                    self._add("samples_per_second", at, event.samples_per_second)
                    self._add("step_ms_p50", at, event.step_ms_p50)
                    self._add("step_ms_p95", at, event.step_ms_p95, peaks=True)
                    self._add("input_wait", at, event.input_wait)
                    if event.learning_rate is not None:
                        self._add("learning_rate", at, event.learning_rate)
                    if event.step is not None:
                        # Without the loss of the last steps, the mean of the epoch so far.
                        window = event.window_loss
                        if window is not None and not self._windowed:
                            self._windowed = True
                            self._series.pop("loss", None)  # means that came before are another figure
                        if window is not None or event.loss is None or not self._windowed:
                            self._add("loss", at, window if self._windowed else event.loss)
                        self._add_metrics(at, event.metrics)
                case events.GpuReadings():
                    self._add_gpus(event, at, trains)
                case events.HostReading():
                    for key in _HOST_FIGURES:
                        if trains and (value := getattr(event, key)) is not None:
                            total, count = self._host_training.get(key, (0.0, 0))
                            self._host_training[key] = total + value, count + 1
                    self._add("cpu", at, event.cpu)
                case events.EpochEnd() if event.step is not None:
                    metrics = event.metrics
                    self._add_metrics(at, {name: metrics[name] for name in metrics if name.startswith("val_")})
                    for name in {"loss", *self._metrics} & metrics.keys():
                        self._add(f"epoch {name}", at, metrics[name])
                case events.Phase():
                    if state.resumes[-1:] == (event.t,):
                        for series in self._series.values():
                            series.gap()
                        for totals in self._gpu_totals.values():
                            totals.pause()
                        self._gpu_training.clear()  # as the result has the means of its own sitting
                        self._host_training.clear()
                    if event.phase != "training":
                        for training in self._gpu_training.values():
                            training.pause()

    def snapshot(self, clock: float | None = None) -> Snapshot:
        """Return the run's state at the Unix time `clock`, None for that of the last event."""
        state = self.state
        own = by_physical_gpu(state.allocator, state.started, self._gpus)
        now = state.last_t if clock is None or state.outcome else max(clock, state.last_t)
        if state.ended_t is not None:  # what comes later belongs to no sitting, or to the next one
            now = min(now, state.ended_t)
        host, has_means = state.host, state.outcome is not None and bool(self._host_training)
        if host and has_means:
            means: dict[str, Any] = {key: total / count for key, (total, count) in self._host_training.items()}
            host = replace(host, **means)
        return Snapshot(
            **vars(state) | {"start": state.start_until(now), "host": host},
            elapsed=state.moment(now),
            phase_seconds=max(0.0, now - state.phase_t),
            pace=Pace(state.trains_since or 0.0, state.steps_per_epoch, state.samples_per_step),
            metrics=self._metrics,
            windowed=self._windowed,
            lines=MappingProxyType({name: series.line() for name, series in self._series.items()}),
            gpus=tuple(self._gpu_now(index, own.get(f"GPU:{index}", EMPTY)) for index in sorted(self._gpus)),
            no_gpu_reason=self._no_gpu_reason,
            gpu_seconds=self._gpu_seconds,
            host_is_mean=has_means,
            tf_host=own.get("CPU:0", EMPTY),
        )

    def _add(self, name: str, x: float, y: float | None, *, peaks: bool = False) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series(peaks=peaks)
        series.add(x, y, self.state.step)

    def _add_metrics(self, at: float, metrics: Mapping[str, float | None]) -> None:
        for name, value in metrics.items():
            self._add(name, at, value)
            bare = name.removeprefix("val_")
            if bare != "loss" and bare not in self._metrics:
                self._metrics = (*self._metrics, bare)

    # ---- GPUs -----------------------------------------------------------------------------------

    def _add_gpus(self, event: events.GpuReadings, at: float, trains: bool) -> None:
        for gpu in event.gpus:
            self._gpus[gpu.index] = gpu
            if gpu.name:
                self._gpu_names[gpu.index] = gpu.name
            for sums in (self._gpu_totals, self._gpu_training) if trains else (self._gpu_totals,):
                sums.setdefault(gpu.index, GpuTotals()).take(event.t, gpu)
            for name, key in GPU_LINES.items():
                self._add(f"gpu{gpu.index}{name}", at, gpu.value(key))
        training = [gpu for gpu in event.gpus if not self._used or gpu_reading.trains(gpu, self._used)]
        for name, key in GPU_LINES.items() if len(training) > 1 else ():
            values = [value for gpu in training if (value := gpu.value(key)) is not None]
            self._add(f"gpus mean{name}", at, sum(values) / len(values) if values else None)
            self._add(f"gpus lowest{name}", at, min(values, default=None))
            self._add(f"gpus highest{name}", at, max(values, default=None))
        if event.missing or self._gpus:
            self._no_gpu_reason = event.missing or None
        self._gpu_seconds = event.interval_seconds

    def _gpu_now(self, index: int, own: Mapping[str, float]) -> ShownGpu:
        # Of an ended run that has trained, the means.
        line = self._series[f"gpu{index}"].line()
        name, totals = self._gpu_names.get(index), self._gpu_totals[index]
        gpu = gpu_reading.shown(self._gpus[index], name, self._used, own, line, totals)
        training = self._gpu_training.get(index)
        if self.state.outcome is None or training is None or gpu.missing:
            return gpu
        return gpu_reading.with_means(gpu, training, self._series[f"gpu{index} memory"].line())

    @property
    def _used(self) -> Sequence[str]:
        return self.state.started.gpus if self.state.started else ()
