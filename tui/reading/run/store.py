"""Adds to the state of a run (engine/runs/run_state.py) the lines of the charts and the readings of its GPUs, and makes
an immutable `Snapshot`. History is bounded (series.py)."""

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
from .series import Pace, Series
from .snapshot import Snapshot

LEFT_OUT = "left_out"  # the type of an event of which only the time was read
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
            if event.type == LEFT_OUT:  # a crashed run lasted until its last reading
                state.pass_time(event.t)
                continue
            state.fold(event)
            match event:
                case events.Progress():
                    self._add_progress(event)
                case events.GpuReadings():
                    self._add_gpus(event)
                case events.HostReading():
                    self._add_host(event)
                case events.EpochEnd():
                    self._add_epoch(event)
                case events.Phase():
                    self._change_phase(event)

    def snapshot(self, clock: float | None = None) -> Snapshot:
        """Return the present state of the run. `clock` is the present Unix time for a running run; None for the time of
        the last event."""
        state = self.state
        own = by_physical_gpu(state.allocator, state.started, self._gpus)
        now = state.last_t if clock is None or state.outcome else max(clock, state.last_t)
        if state.ended_t is not None:  # what comes later belongs to no sitting, or to the next one
            now = min(now, state.ended_t)
        has_means = state.outcome is not None and bool(self._host_training)
        return Snapshot(
            **vars(state) | {"start": state.start_until(now), "host": self._host_means() if has_means else state.host},
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

    def _change_phase(self, event: events.Phase) -> None:
        if self.state.resumes[-1:] == (event.t,):
            for series in self._series.values():
                series.gap()
            for totals in self._gpu_totals.values():
                totals.pause()
            self._gpu_training.clear()  # as the result has the means of its own sitting
            self._host_training.clear()
        if event.phase != "training":
            for training in self._gpu_training.values():
                training.pause()

    def _add_progress(self, event: events.Progress) -> None:
        at = self.state.moment(event.t)
        self._add("samples_per_second", at, event.samples_per_second)
        self._add("step_ms_p50", at, event.step_ms_p50)
        self._add("step_ms_p95", at, event.step_ms_p95, peaks=True)
        self._add("input_wait", at, event.input_wait)
        if event.step is None:
            return
        # Without the loss of the last steps, the mean of the epoch so far.
        window = event.window_loss
        if window is not None and not self._windowed:
            self._windowed = True
            self._series.pop("loss", None)  # means that came before are another figure
        if window is not None or event.loss is None or not self._windowed:
            self._add("loss", at, window if self._windowed else event.loss)
        self._add_metrics(at, event.metrics)

    def _add_epoch(self, event: events.EpochEnd) -> None:
        if event.step is None:
            return
        at = self.state.moment(event.t)
        self._add_metrics(at, {name: value for name, value in event.metrics.items() if name.startswith("val_")})
        for name in {"loss", *self._metrics} & event.metrics.keys():
            self._add(f"epoch {name}", at, event.metrics[name])

    def _add_metrics(self, at: float, metrics: Mapping[str, float | None]) -> None:
        for name, value in metrics.items():
            self._add(name, at, value)
            bare = name.removeprefix("val_")
            if bare != "loss" and bare not in self._metrics:
                self._metrics = (*self._metrics, bare)

    def _add_host(self, event: events.HostReading) -> None:
        if self.state.phase == "training":
            for key in _HOST_FIGURES:
                if (value := getattr(event, key)) is not None:
                    total, count = self._host_training.get(key, (0.0, 0))
                    self._host_training[key] = total + value, count + 1
        self._add("cpu", self.state.moment(event.t), event.cpu)

    def _host_means(self) -> events.HostReading | None:
        means: dict[str, Any] = {key: total / count for key, (total, count) in self._host_training.items()}
        return replace(self.state.host, **means) if self.state.host else None

    # ---- GPUs -----------------------------------------------------------------------------------

    def _add_gpus(self, event: events.GpuReadings) -> None:
        at, used = self.state.moment(event.t), self._used
        for gpu in event.gpus:
            self._read_gpu(event.t, at, gpu)
        training = [gpu for gpu in event.gpus if not used or gpu_reading.trains(gpu, used)]
        if len(training) > 1:
            self._add_together(at, training)
        if event.missing or self._gpus:
            self._no_gpu_reason = event.missing or None
        self._gpu_seconds = event.interval_seconds

    def _add_together(self, at: float, gpus: Sequence[Gpu]) -> None:
        for name, key in GPU_LINES.items():
            values = [value for gpu in gpus if (value := gpu.value(key)) is not None]
            self._add(f"gpus mean{name}", at, sum(values) / len(values) if values else None)
            self._add(f"gpus lowest{name}", at, min(values, default=None))
            self._add(f"gpus highest{name}", at, max(values, default=None))

    def _read_gpu(self, t: float, at: float, gpu: Gpu) -> None:
        self._gpus[gpu.index] = gpu
        if gpu.name:
            self._gpu_names[gpu.index] = gpu.name
        self._gpu_totals.setdefault(gpu.index, GpuTotals()).take(t, gpu)
        if self.state.phase == "training":
            self._gpu_training.setdefault(gpu.index, GpuTotals()).take(t, gpu)
        for name, key in GPU_LINES.items():
            self._add(f"gpu{gpu.index}{name}", at, gpu.value(key))

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
