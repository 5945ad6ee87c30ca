"""Turns a run's events, live or from its folder, into measurements, in bounded memory: means since training began,
speeds of the last progress events, of a resumed run since its last resume. Imports no TensorFlow and no pydantic: the
engine process stays small.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import learning
from ..files.values import mapping, number, text, whole
from ..options.own_code import SCRIPT
from ..runs import Run, quick_json
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import (
    Allocator,
    EpochEnd,
    Event,
    Finished,
    GpuReadings,
    GradientExchange,
    HostReading,
    InputStages,
    Phase,
    PhaseName,
    Progress,
    Started,
    WorkerReadings,
    XlaAnswer,
    fields_of,
)  # fmt: skip
from ..runs.launched_with import options_of
from . import accumulators, stragglers
from .gpu_accumulators import DeviceMemory, Gpus
from .measurements import WINDOW_MS, Measurements

quick_json.use()
RECENT = 20  # progress events for the present speed: 5 s at first, 20 s later


def read(run: Run, events: RunEvents | None = None) -> Measurements:
    """Return the measurements of a run, running or finished. `events` are its events if they were already read."""
    collector = Collector(options_of(run), os.environ.get("CUDA_VISIBLE_DEVICES"))
    collector.feed((events or read_events(run.path)).events)
    return collector.measurements()


class Collector:
    """Collects the measurements of a run from its events in the order of time. `visible` is CUDA_VISIBLE_DEVICES of the
    process that could start it again; None: that of the run, which may name only a part of the machine's GPUs.
    """

    def __init__(self, options: Mapping[str, Any], visible: str | None = None) -> None:
        self.options, self._visible = options, visible
        self._xla_fails = ""
        self._epochs_seen = learning.EpochsSeen()  # also those before a resume
        self._begin()

    def _begin(self) -> None:
        """Forget all readings. A resumed run is another process, and its speed may differ."""
        self.started: Started | None = None
        self._progress: deque[Progress] = deque(maxlen=RECENT)
        self._gpus = Gpus(self._visible)
        self._device_memory = DeviceMemory(self.options, self._gpus)
        self._host, self._host_growth = accumulators.Host(), accumulators.Growth()
        self._stages: InputStages | None = None
        self._summary: Mapping[str, Any] = {}
        self._phase: PhaseName | None = None
        self._detail, self._phase_t = "", 0.0
        self._ended_t: float | None = None
        self._spent: dict[str, float] = {}
        self._pauses, self._pause_seconds = accumulators.Pauses(), 0.0
        self._epochs = 0
        self._workers: deque[WorkerReadings] = deque(maxlen=RECENT)
        self._exchange: GradientExchange | None = None

    @property
    def newest_t(self) -> float | None:
        """The Unix time of the newest progress event, or of the end of a run without one; None before."""
        return self._progress[-1].t if self._progress else self._ended_t

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event.t, event)

    # ---- events ---------------------------------------------------------------------------------

    def on_started(self, _t: float, event: Started) -> None:
        self.started = event
        of_run = mapping(event.actual.get("environment")).get("CUDA_VISIBLE_DEVICES")
        if self._visible is None and of_run is not None:
            self._gpus.variable_given = str(of_run)
        self._gpus.trains_with = self._trainers_variable(of_run)

    def on_phase(self, t: float, event: Phase) -> None:
        phase = event.phase
        if phase == "importing":  # the first phase; the time before it belongs to none
            self._begin()
        if self._phase:
            self._spent[self._phase] = self._spent.get(self._phase, 0.0) + t - self._phase_t
        if self._phase in ("evaluating", "saving") and self._detail != "model.keras":
            self._pause_seconds += t - self._phase_t
            if phase != "compiling":  # during the first evaluation, for a smaller last batch
                self._pauses.add(self._phase, self._pause_seconds)
                self._pause_seconds = 0.0
        self._phase, self._phase_t, self._detail = phase, t, event.detail
        self._gpus.pause()

    def on_progress(self, _t: float, event: Progress) -> None:
        if event.step_ms_p50 is not None:
            self._progress.append(event)

    def on_epoch(self, _t: float, event: EpochEnd) -> None:
        self._epochs_seen.take(event.epoch, event.step, event.metrics)
        self._epochs += 1
        if self._epochs == 1:  # the epoch included all one-time work, that of the evaluation, too
            self._device_memory.restart()
            self._host_growth.restart()

    def on_input_stages(self, _t: float, event: InputStages) -> None:
        self._stages = event

    def on_gpu(self, t: float, event: GpuReadings) -> None:
        if self._phase == "training":
            self._gpus.take(t, event.gpus, set(self.started.gpus) if self.started else set())

    def on_host(self, _t: float, event: HostReading) -> None:
        if self._phase != "training":
            return
        self._host.take(fields_of(event))
        used, total = event.trainer_bytes, event.memory_total_bytes
        if used is not None and total and self._filled():
            self._host_growth.add(used / total)

    def on_allocator(self, _t: float, event: Allocator) -> None:
        self._device_memory.take(event, self.started, self._filled())

    def on_workers(self, _t: float, event: WorkerReadings) -> None:
        self._workers.append(event)

    def on_exchange(self, _t: float, event: GradientExchange) -> None:
        self._exchange = event

    def on_xla_answer(self, _t: float, _event: XlaAnswer) -> None:
        self._xla_fails = "XLA cannot compile this training: it has failed before"

    def on_finished(self, t: float, event: Finished) -> None:
        self._summary = event.summary
        if self._summary.get("steps"):
            self._ended_t = t

    def _trainers_variable(self, of_run: Any) -> str | None:
        # the option device.visible if a list, else the value in `started`, else that of the process that started the
        # run
        visible = self.options.get("device.visible")
        if isinstance(visible, list):
            return ",".join(map(str, visible))
        return self._visible if of_run is None else str(of_run)

    def _filled(self) -> bool:
        return not self._fills() or (self._epochs > 0 and self._has_passed())

    def _fills(self) -> bool:
        # own code may have a cache that no option shows
        own_code = self.options.get("workload.entry") is not None
        neither = self.options.get("input.cache") not in ("memory", None) and self.options.get("input.shuffle") == "off"
        return own_code or not neither

    def _has_passed(self) -> bool:
        started = self.started
        if not started or not started.global_batch_size or not started.train_samples or not self._progress:
            return True
        steps = (self._progress[-1].step or 0) - (started.resumed_at_step or 0)
        return steps >= started.train_samples // started.global_batch_size

    # ---- figures --------------------------------------------------------------------------------

    @property
    def on_gpu_device(self) -> bool:
        return self.started is not None and any("GPU" in name for name in self.started.devices)

    def measurements(self) -> Measurements:
        """Return the measurements up to now. If the run has ended, its speeds are those of the whole run."""
        wait, python = self._recent("input_wait"), self._recent("python_share")
        watched = self.started is not None and self.started.inapplicable.get("input.parallel_calls") == SCRIPT
        is_known = wait is not None and not (python is None and watched)  # Monitor knows only the wait
        compute = max(0.0, 1 - (wait or 0.0) - (python or 0.0)) if is_known else None
        speeds = self._speeds()
        return Measurements(
            options=self.options,
            **self._of_start(),
            steps=self._steps(),
            seconds=self._seconds(),
            **speeds,
            input_wait=wait,
            python_share=python,
            compute_share=compute,
            transfer=self._recent("transfer"),
            pauses=self._pause_share(),
            pauses_counted=self._pauses.most_often,
            traces=self._last("traces"),
            stages=tuple(self._stages.stages) if self._stages else (),
            buffer_fill=self._stages.buffer_fill if self._stages else None,
            **self._gpus.figures(),
            **stragglers.worker_figures(self._workers),
            **stragglers.figures(self._exchange, self.started, speeds["step_ms"]),
            memory_peak=self._device_memory.peak(self.started),
            memory_growth=self._device_memory.growth,
            host_memory_growth=self._host_growth.share,
            **self._host.figures(),
            outcome=self._summary.get("outcome"),
            learning=learning.judged(self._epochs_seen, self.options),
        )

    def _of_start(self) -> dict[str, Any]:
        started = self.started
        if started is None:
            return {}
        names = ("cpus", "train_samples", "sample_bytes", "global_batch_size", "steps_per_epoch", "inapplicable")
        return {
            **{name: getattr(started, name) for name in names},
            "on_gpu": self.on_gpu_device,
            "device_batches": whole(started.actual.get("device_batches")),
            "gpus": len(started.gpus),
            "compute_capability": _pair(started.compute_capability),
            "newest_capability": _newest(started),
            "replicas": started.replicas or 1,
            "cpu_bfloat16": bool(started.cpu_bfloat16),
            "jit_compile": started.actual.get("jit_compile"),
            "xla_reason": self._xla_fails or text(started.actual.get("xla_reason")) or "",
            "numa": text(started.actual.get("numa")) or "",
        }

    def _steps(self) -> int:
        measured = self._summary.get("measured_steps")
        return int(measured) if measured else int(self._last("step") or 0)

    def _seconds(self) -> float:
        measured = number(self._summary.get("measured_seconds"))
        return measured if measured is not None else self._spent.get("training", 0.0) + self._open_seconds()

    def _open_seconds(self) -> float:
        last = self._progress[-1].t if self._progress else 0.0
        return max(0.0, last - self._phase_t) if self._phase == "training" else 0.0

    def _recent(self, name: str) -> float | None:
        # of the summary if the run has ended
        if (whole := number(self._summary.get(name))) is not None:
            return whole
        return accumulators.mean(map(fields_of, self._progress), name)

    def _last(self, name: str) -> Any:
        if self._summary.get(name) is not None:
            return self._summary[name]
        return self._last_progress(name)

    def _last_progress(self, name: str) -> Any:
        return getattr(self._progress[-1], name) if self._progress else None

    def _speeds(self) -> dict[str, Any]:
        times = self._summary.get("step_ms") or {}
        p50 = number(times.get("p50")) or self._last_progress("step_ms_p50")
        p95 = number(times.get("p95")) or self._last_progress("step_ms_p95")
        shortest = max(p50 or 0.0, WINDOW_MS)
        return {
            "samples_per_second": number(self._last("samples_per_second")),
            "step_ms": p50,
            "windows": int(1000 * self._seconds() / shortest),
            "uneven": p95 / p50 if p50 and p95 else None,
            "mfu": number(self._last("mfu")),
        }

    def _pause_share(self) -> float | None:
        pauses = self._pauses.seconds
        whole = self._spent.get("training", 0.0) + self._open_seconds() + pauses
        return pauses / whole if whole > 0 else None


_HANDLERS: Mapping[type[Event], Callable[[Collector, float, Any], None]] = {
    Started: Collector.on_started,
    Phase: Collector.on_phase,
    Progress: Collector.on_progress,
    EpochEnd: Collector.on_epoch,
    InputStages: Collector.on_input_stages,
    GpuReadings: Collector.on_gpu,
    HostReading: Collector.on_host,
    Allocator: Collector.on_allocator,
    WorkerReadings: Collector.on_workers,
    GradientExchange: Collector.on_exchange,
    XlaAnswer: Collector.on_xla_answer,
    Finished: Collector.on_finished,
}


def _newest(started: Started) -> tuple[int, int] | None:
    capabilities = [mapping(device).get("compute_capability") for device in started.gpu_devices]
    pairs = (_pair(capability) for capability in (*capabilities, started.compute_capability))
    return max((pair for pair in pairs if pair), default=None)


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if isinstance(value, list | tuple) and len(value) == 2 else None
