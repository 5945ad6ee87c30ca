"""Turns a run's events, live or from its folder, into measurements, in bounded memory: means since training began,
speeds of the last progress events, of a resumed run since its last resume. Imports no TensorFlow and no pydantic: the
engine process stays small.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import learning
from ..files.values import number, whole
from ..gpu import Gpu, TrainingGpu
from ..job.machine_gpus import visible
from ..options.own_code import SCRIPT
from ..runs import Run
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import (
    Allocator,
    EpochEnd,
    Event,
    Finished,
    GpuReadings,
    HostReading,
    Phase,
    Progress,
    Started,
    WorkerReadings,
    XlaAnswer,
)  # fmt: skip
from ..runs.launched_with import options_of
from ..runs.run_state import RunState
from ..telemetry.gpu_totals import GpuTotals
from . import stragglers
from .measurements import SCREEN_BYTES, Measurements, mean, numbers
from .stragglers import SLOWING, neighbours

WINDOW_MS = 50.0  # the shortest time that a reading of the step time covers (trainer/measure/clock.py)
IDLE_BUSY, IDLE_MEMORY_SHARE = 0.05, 0.05  # a GPU below this use, and with less memory in use, is free
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
        self.state = RunState()
        self._xla_fails = ""
        self._begin()

    def _begin(self) -> None:
        """Forget all readings. A resumed run is another process, and its speed may differ."""
        self.started: Started | None = None
        self._progress: deque[Progress] = deque(maxlen=RECENT)
        self._gpus = Gpus(self._visible)
        self._device_memory = DeviceMemory(self.options, self._gpus)
        self._host: deque[HostReading] = deque(maxlen=READINGS)
        self._host_growth = Growth()
        self._ended_t: float | None = None
        self._trained_seconds = 0.0  # in the ended phases
        self._pauses, self._pause_seconds = Pauses(), 0.0
        self._epochs = 0
        self._workers: deque[WorkerReadings] = deque(maxlen=RECENT)

    @property
    def newest_t(self) -> float | None:
        """The Unix time of the newest progress event, or of the end of a run without one; None before."""
        return self._progress[-1].t if self._progress else self._ended_t

    def feed(self, events: Iterable[Event]) -> None:
        state = self.state
        for event in events:
            if type(event) is Phase:
                if state.phase == "training":
                    self._trained_seconds += event.t - state.phase_t
                elif state.phase in ("evaluating", "saving") and state.phase_detail != "model.keras":
                    self._pause_seconds += event.t - state.phase_t
                    if event.phase != "compiling":  # during the first evaluation, for a smaller last batch
                        self._pauses.add(state.phase, self._pause_seconds)
                        self._pause_seconds = 0.0
                self._gpus.pause()
                resumes = state.resumes
                state.fold(event)
                if state.resumes is not resumes:
                    self._begin()
                continue
            state.fold(event)
            match event:
                case Progress() if event.step_ms_p50 is not None:
                    self._progress.append(event)
                case GpuReadings() if state.phase == "training":
                    self._gpus.take(event.t, event.gpus, set(self.started.gpus) if self.started else set())
                case HostReading() if state.phase == "training":
                    self._host.append(event)
                    if event.trainer_bytes is not None and event.memory_total_bytes and self._filled():
                        self._host_growth.append(event.trainer_bytes / event.memory_total_bytes)
                case Allocator():
                    self._device_memory.take(event, self.started, self._filled())
                case EpochEnd():
                    self._epochs += 1
                    if self._epochs == 1:  # the epoch included all one-time work, that of the evaluation, too
                        self._device_memory.growth.clear()
                        self._host_growth.clear()
                case WorkerReadings():
                    self._workers.append(event)
                case Started():
                    self.started = event
                    of_run = (event.actual.get("environment") or {}).get("CUDA_VISIBLE_DEVICES")
                    if self._visible is None and of_run is not None:
                        self._gpus.variable_given = of_run
                    visible = self.options.get("device.visible")
                    named = ",".join(map(str, visible)) if isinstance(visible, list) else of_run
                    self._gpus.trains_with = self._visible if named is None else named
                case XlaAnswer():
                    self._xla_fails = "XLA cannot compile this training: it has failed before"
                case Finished() if state.summary and state.summary.steps:
                    self._ended_t = event.t

    def _filled(self) -> bool:
        """No cache or shuffle buffer fills any more: own code may have a cache that no option shows."""
        options, started = self.options, self.started
        has_cache = options.get("input.cache") in ("memory", None) or options.get("input.shuffle") != "off"
        if options.get("workload.entry") is None and not has_cache:
            return True
        if not started or not started.global_batch_size or not started.train_samples or not self._progress:
            return self._epochs > 0
        steps = (self._progress[-1].step or 0) - (started.resumed_at_step or 0)
        return self._epochs > 0 and steps >= started.train_samples // started.global_batch_size

    def measurements(self) -> Measurements:
        """Return the measurements up to now. If the run has ended, its speeds are those of the whole run."""
        state = self.state
        wait, python = self._recent("input_wait"), self._recent("python_share")
        watched = self.started is not None and self.started.inapplicable.get("input.parallel_calls") == SCRIPT
        is_known = wait is not None and not (python is None and watched)  # Monitor knows only the wait
        compute = max(0.0, 1 - (wait or 0.0) - (python or 0.0)) if is_known else None
        times = (state.summary.step_ms if state.summary else None) or {}
        newest, host = self._progress[-1] if self._progress else None, self._host[-1] if self._host else None
        p50 = times.get("p50") or (newest.step_ms_p50 if newest else None)
        p95 = times.get("p95") or (newest.step_ms_p95 if newest else None)
        used, total = (host.memory_used_bytes, host.memory_total_bytes) if host else (None, None)
        paused = self._pauses.seconds
        whole = self._training_seconds() + paused
        measured = self.state.summary.measured_steps if self.state.summary else None
        return Measurements(
            options=self.options,
            **self._of_start(),
            steps=measured or (self._progress[-1].step if self._progress else None) or 0,
            seconds=self._seconds(),
            samples_per_second=self._last("samples_per_second"),
            step_ms=p50,
            windows=int(1000 * self._seconds() / max(p50 or 0.0, WINDOW_MS)),
            uneven=p95 / p50 if p50 and p95 else None,
            mfu=self._last("mfu"),
            input_wait=wait,
            python_share=python,
            compute_share=compute,
            transfer=self._recent("transfer"),
            pauses=paused / whole if whole > 0 else None,
            pauses_counted=self._pauses.most_often,
            traces=self._last("traces"),
            stages=tuple(state.input_stages.stages) if state.input_stages else (),
            buffer_fill=state.input_stages.buffer_fill if state.input_stages else None,
            **self._gpus.figures(),
            **stragglers.worker_figures(self._workers),
            **stragglers.figures(state.exchange, self.started, p50),
            memory_peak=self._device_memory.peak(self.started),
            memory_growth=self._device_memory.growth.share,
            host_memory_growth=self._host_growth.share,
            host_memory_free_bytes=total - used if used is not None and total is not None else None,
            cpu=mean(self._host, "cpu"),
            others_cpu=mean(self._host, "others_cpu"),
            trainer_cores=mean(self._host, "trainer_cpu"),
            io_wait=mean(self._host, "io_wait"),
            read_bytes_per_second=mean(self._host, "trainer_read_bytes_per_second"),
            outcome=state.summary.outcome if state.summary else None,
            learning=learning.judged(state),
        )

    def _of_start(self) -> dict[str, Any]:
        started = self.started
        if started is None:
            return {}
        names = ("cpus", "train_samples", "sample_bytes", "global_batch_size", "steps_per_epoch", "inapplicable")
        pairs = (*(gpu.compute_capability for gpu in started.gpu_devices), _pair(started.compute_capability))
        return {
            **{name: getattr(started, name) for name in names},
            "on_gpu": any("GPU" in name for name in started.devices),
            "device_batches": started.actual.get("device_batches"),
            "gpus": len(started.gpus),
            "compute_capability": _pair(started.compute_capability),
            "newest_capability": max((pair for pair in pairs if pair), default=None),
            "replicas": started.replicas or 1,
            "cpu_bfloat16": bool(started.cpu_bfloat16),
            "jit_compile": started.actual.get("jit_compile"),
            "xla_reason": self._xla_fails or started.actual.get("xla_reason") or "",
            "numa": started.actual.get("numa") or "",
        }

    def _seconds(self) -> float:
        measured = self.state.summary.measured_seconds if self.state.summary else None
        return measured if measured is not None else self._training_seconds()

    def _training_seconds(self) -> float:
        last = self._progress[-1].t if self._progress else 0.0
        is_open = self.state.phase == "training"
        return self._trained_seconds + (max(0.0, last - self.state.phase_t) if is_open else 0.0)

    def _recent(self, name: str) -> float | None:
        # of the summary if the run has ended
        whole: float | None = getattr(self.state.summary, name, None)
        return whole if whole is not None else mean(self._progress, name)

    def _last(self, name: str) -> Any:
        of_run = getattr(self.state.summary, name, None)
        return of_run if of_run is not None or not self._progress else getattr(self._progress[-1], name)


def _pair(capability: Sequence[int] | None) -> tuple[int, int] | None:
    return (capability[0], capability[1]) if capability else None


_ACTIVITY = ("sm_active", "tensor_active", "dram_active")


# In MIG mode, memory and activity are those of the instance that trains.
class Gpus:
    """The readings of all GPUs of the machine. `variable_given` is CUDA_VISIBLE_DEVICES (None: all GPUs) of the process
    that could start the training again, `trains_with` the trainer's value, which selects a MIG instance.
    """

    def __init__(self, given: str | None) -> None:
        self.variable_given = given
        self.trains_with = given
        self._shown: set[int] = set()
        self._all: set[int] = set()
        self._mine: dict[str, deque[Gpu]] = {}
        self._others: dict[str, deque[Gpu]] = {}
        self._totals = GpuTotals()

    def pause(self) -> None:
        self._totals.pause()

    def take(self, t: float, gpus: Sequence[Gpu], mine: Collection[str]) -> None:
        """Add a reading of all GPUs; `mine` names the training ones by UUID, PCI bus id or index."""
        self._shown = {shown.index for shown in visible(self.variable_given, gpus)}
        self._all = {gpu.index for gpu in gpus}
        parts = {shown.index: shown for shown in visible(self.trains_with, gpus) if shown.instance is not None}
        for gpu in gpus:
            part = next((part for part in gpu.parts if part.key in mine), parts.get(gpu.index))
            trains = gpu.key in mine or gpu.pci_bus_id in mine or (part is not None and part.key in mine)
            if gpu.missing:  # the GPU does not answer, so no training can use it
                self._others.pop(gpu.key, None)
                continue
            series = self._mine if trains else self._others
            readings = series.setdefault(gpu.key, deque(maxlen=READINGS))
            of_part = {}
            if trains and part is not None and gpu.instances:
                of_part = {key: getattr(part, key) for key in ("memory_used_bytes", "memory_total_bytes", *_ACTIVITY)}
            readings.append(replace(gpu, **of_part))
            if trains:
                self._totals.take(t, gpu)

    def total_bytes(self, uuid: str | None) -> float | None:
        """Return the bytes of the training GPU with this UUID, or else of the smallest. None if unknown."""
        return min((gpu.memory_total_bytes for gpu in self._last(uuid) if gpu.memory_total_bytes), default=None)

    def taken_by_others(self, uuid: str | None) -> float:
        """Return the bytes that other programs use on this training GPU (else the most on any), as far as known."""
        processes = [gpu.processes or () for gpu in self._last(uuid) if not gpu.instances]  # theirs is not shared
        return max((sum(each.memory_used_bytes or 0.0 for each in of_gpu if each.own is False)
                    for of_gpu in processes), default=0.0)  # fmt: skip

    def _last(self, uuid: str | None) -> list[Gpu]:
        named = self._mine.get(uuid or "")
        return [series[-1] for series in ([named] if named else self._mine.values())]

    def figures(self) -> dict[str, Any]:
        """Return the figures of the training GPUs over all readings, and of idle ones, as fields of Measurements."""
        readings = [gpu for series in self._mine.values() for gpu in series]
        # Those that could train in addition are visible, unused, and of the same model: another one, such as the GPU of
        # a screen, would slow down the training ones.
        models = {series[-1].name for series in self._mine.values()} - {None}
        unused = [series[-1] for series in self._others.values() if _stands_idle(series)]
        idle = {gpu.index for gpu in unused if not models or gpu.name in {None, *models}} & self._shown
        usable = {series[-1].index for series in self._mine.values()} | idle
        busy = numbers(readings, "busy")
        slowed = [[reason for reason in gpu.throttle or () if reason in SLOWING] for gpu in readings]
        hot = self._totals.mean("slowed_by_heat_seconds") or 0.0
        throttled = max(hot, sum(map(bool, slowed)) / len(slowed)) if slowed else None
        reasons = tuple(dict.fromkeys(reason for reasons in slowed for reason in reasons))
        parts = statistics.quantiles(busy, n=20, method="inclusive") if len(busy) >= 20 else []
        return {
            "idle_gpus": len(idle),
            "usable_gpus": None if usable == self._all else tuple(sorted(usable)),
            "given_gpus": None if self.variable_given is None else tuple(sorted(self._shown)),
            "busy_mean": statistics.fmean(busy) if busy else None,
            "busy_p5": parts[0] if parts else None,
            "busy_p95": parts[-1] if parts else None,
            **stragglers.gpu_figures([list(series) for series in self._mine.values()]),
            **{name: mean(readings, name) for name in _ACTIVITY},
            "nvlink": _nvlink(readings),
            **stragglers.clock_figures([series[-1] for series in self._mine.values()], self._totals),
            "throttled": throttled,
            "gpu_neighbours": tuple(dict.fromkeys(name for gpu in readings for name in neighbours(gpu))),
            "throttle": reasons or (("heat",) if hot else ()),
        }


# ---- one reading of one GPU -------------------------------------------------------------------


def _stands_idle(readings: Collection[Gpu]) -> bool:
    # used without readings, or in MIG mode
    busy, used = mean(readings, "busy"), numbers(readings, "memory_used_bytes")
    if busy is None or not used or any(gpu.in_mig_mode for gpu in readings):
        return False
    total = max(numbers(readings, "memory_total_bytes"), default=0.0)
    return busy < IDLE_BUSY and max(used) < max(IDLE_MEMORY_SHARE * total, SCREEN_BYTES)


def _nvlink(readings: Sequence[Gpu]) -> bool | None:
    # bytes that passed: a GPU may have links although no NVLink bridge is installed
    links = [gpu.nvlink for gpu in readings if gpu.nvlink]
    rates = [rate for link in links for rate in (link.rx_bytes_per_second, link.tx_bytes_per_second)
             if rate is not None]  # fmt: skip
    if rates:
        return any(rates)
    refused = any((gpu.reasons or {}).get("nvlink") == "unsupported" for gpu in readings)
    return False if refused and not links else None


MB = 1024**2


# TensorFlow leaves out at its start other programs' memory and 0.5 to 1.8 GB for the driver (`MinSystemMemory` in its
# gpu_device.cc), and with memory growth loses what later programs take.
class DeviceMemory:
    """The figures of TensorFlow's allocator in a run with these `options`, on the GPUs in `gpus`."""

    def __init__(self, options: Mapping[str, Any], gpus: Gpus) -> None:
        self._options, self._gpus = options, gpus
        self._peak_bytes: dict[int, float] = {}  # by the number of TensorFlow's logical device
        self._first_step_only = False
        self.growth = Growth()

    def take(self, event: Allocator, started: Started | None, filled: bool) -> None:
        """Add an event of the allocator. Only those when all caches are full (`filled`) count as growth."""
        if self._first_step_only:  # later peaks do not include that of the first step
            self._peak_bytes.clear()
        self._first_step_only = event.first_step
        shares = []
        for name, figures in event.devices.items():
            place = TrainingGpu(name).place
            if place is None:
                continue
            self._peak_bytes[place] = max(self._peak_bytes.get(place, 0.0), figures.get("peak_bytes", 0.0))
            whole_bytes, current = self._may_take(place, started), figures.get("current_bytes")
            if whole_bytes and current is not None:
                shares.append(current / whole_bytes)
        if shares and filled:
            self.growth.append(max(shares))

    def peak(self, started: Started | None) -> float | None:
        """Return the highest peak as a share (0 to 1) of what TensorFlow can use on its device now. None: unknown."""
        shares, growth = list[float](), started.actual.get("memory_growth") if started else None
        for place, peak in self._peak_bytes.items():
            left, uuid = self._may_take(place, started), _device_at(place, started).uuid
            total = self._gpus.total_bytes(uuid)
            # other programs may have taken memory since the start, unless TensorFlow has taken nearly all then
            if left is not None and total is not None and growth is not False and _parts(self._options) == 1:
                left = max(1.0, min(left, total - self._gpus.taken_by_others(uuid)))
            shares += [peak / left] if left else []
        return max(shares, default=None)

    def _may_take(self, place: int, started: Started | None) -> float | None:
        gpu = _device_at(place, started)
        return limit_of(gpu, self._options, self._gpus.total_bytes(gpu.uuid))


def limit_of(gpu: TrainingGpu, options: Mapping[str, Any], total_bytes: float | None = None) -> float | None:
    """Return the bytes that TensorFlow may take on a logical device, None if unknown: device.memory_limit_mb, or an
    equal part of the GPU's available memory. `total_bytes` is the GPU's memory as the driver reports it.
    """
    limit = number(options.get("device.memory_limit_mb"))
    if limit is not None:
        return limit * MB
    available = gpu.memory_limit_bytes or total_bytes or gpu.memory_total_bytes
    return available / _parts(options) if available else None


def _parts(options: Mapping[str, Any]) -> int:
    return max(1, whole(options.get("device.logical_devices")) or 1)


def _device_at(place: int, started: Started | None) -> TrainingGpu:
    # the logical devices of a GPU are numbered in a row, from the number in its `device`
    gpus = started.gpu_devices if started else ()
    first = [(gpu.place, gpu) for gpu in gpus if gpu.place is not None and gpu.place <= place]
    return max(first, key=lambda pair: pair[0], default=(0, TrainingGpu()))[1]


READINGS = 600  # readings of each GPU and of the host: ten minutes at 1 Hz
GROWTH_READINGS = 10  # window of the moving average, as in SageMaker Debugger's memory rule


class Growth(deque[float]):
    """Readings of the use of a memory as shares (0 to 1) of its size, and how much they grow."""

    def __init__(self) -> None:
        super().__init__(maxlen=READINGS)

    @property
    def share(self) -> float | None:
        """The mean of the last minus that of the first GROWTH_READINGS. None for fewer than three times as many."""
        values = list(self)
        if len(values) < 3 * GROWTH_READINGS:
            return None
        return statistics.fmean(values[-GROWTH_READINGS:]) - statistics.fmean(values[:GROWTH_READINGS])


class Pauses:
    """Adds up the seconds of evaluations and checkpoints, each at the median of its kind without the first, which
    includes one-time work such as compiling; a single one at its own length.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, deque[float]] = {}
        self._counts = Counter[str]()

    def add(self, kind: str, seconds: float) -> None:
        self._counts[kind] += 1
        lengths = self._lengths.setdefault(kind, deque(maxlen=READINGS))
        if self._counts[kind] == 2:
            lengths.clear()
        lengths.append(seconds)

    @property
    def seconds(self) -> float:
        """The time of all pauses in seconds. Each pause counts with the median length of its kind."""
        return sum(count * statistics.median(self._lengths[kind]) for kind, count in self._counts.items())

    @property
    def most_often(self) -> int:
        """The number of pauses of the most frequent kind."""
        return max(self._counts.values(), default=0)
