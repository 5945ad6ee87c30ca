"""Collects the events of a run, and makes an immutable `Snapshot`. Events of unknown type are skipped, fields may be
absent, and an unknown figure is None. History is bounded (series.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ....engine.files.values import EMPTY, mapping, number
from ....engine.gpu import Gpu
from ....engine.runs.events import Event, Finished, fields_of
from ....engine.telemetry.gpu_totals import GpuTotals
from . import gpu_reading
from .gpu_reading import ShownGpu, by_physical_gpu
from .series import Pace, Series
from .snapshot import BEGINNINGS, BestEpoch, Epoch, Message, PhaseTimes, Snapshot, Spell

__all__ = ["Message", "Snapshot", "Store", "by_physical_gpu", "mapping", "number"]

MAX_MESSAGES = 200
BEFORE_RESUME = "before_resume"  # marks a diagnosis of the part of a run before it was resumed
MEAN = "mean"  # marks figures of the host that are means while the run trained
MAX_EPOCHS = 1000
MAX_SPELLS = 1000
LAST_TIMES = 200
# The lines of a GPU: what follows its number in their names, and the figure of its readings.
GPU_LINES = {"": "busy", " memory": "memory_used_bytes", " power": "power_w", " temperature": "temperature_c"}


# The fields of a snapshot that the store keeps as they are; the others are made with each snapshot.
_AT_FIRST: Mapping[str, Any] = {
    "first_step_seconds": None, "started": EMPTY, "progress": EMPTY, "metrics": (), "no_gpu_reason": None,
    "gpu_seconds": None, "diagnosis": EMPTY, "input_stages": EMPTY, "host": EMPTY, "workers": EMPTY,
    "warnings": (), "error": None, "outcome": None, "summary": EMPTY, "joins": (), "best": EMPTY, "resumes": (),
    "windowed": False, "epochs": (),
}  # fmt: skip


@dataclass
class Store:
    """Collects a run's events, which must be added in the order of their times."""

    _facts: dict[str, Any] = field(default_factory=lambda: dict(_AT_FIRST))
    _series: dict[str, Series] = field(default_factory=dict)
    _gpus: dict[int, Gpu] = field(default_factory=dict)
    _gpu_names: dict[int, str] = field(default_factory=dict)
    _gpu_totals: dict[int, GpuTotals] = field(default_factory=dict)
    _gpu_training: dict[int, GpuTotals] = field(default_factory=dict)  # of the readings while this sitting trains
    _host_training: dict[str, tuple[float, int]] = field(default_factory=dict)  # of these, sums and numbers of values
    _allocator: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    _begun: float | None = None
    _paused: float = 0.0
    _pauses: list[tuple[float, float]] = field(default_factory=list)
    _last_t: float = 0.0
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_TIMES))  # of the newest events
    _ended_t: float | None = None  # when the trainer of this sitting ended
    _step: float = 0.0
    _steps_per_epoch: float | None = None  # seen at the end of an epoch
    _trains_since: float | None = None
    _resumed: bool = False
    _spells: deque[Spell] = field(default_factory=lambda: deque(maxlen=MAX_SPELLS))
    _phases: PhaseTimes = field(default_factory=PhaseTimes)

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            handler = _HANDLERS.get(event.type)
            if handler is None:
                continue
            if self._begun is None:
                self._begun = self._phases.since = event.t
            handler(self, event.t, fields_of(event))
            if not isinstance(event, Finished):
                self._last_t = max(self._last_t, event.t)
                self._times.append(event.t)

    def snapshot(self, clock: float | None = None) -> Snapshot:
        """Return the present state of the run. `clock` is the present Unix time for a running run; None for the time of
        the last event."""
        own = by_physical_gpu(self._allocator, self._facts["started"], self._gpus)
        now = self._last_t if clock is None or self._facts["outcome"] else max(clock, self._last_t)
        if self._ended_t is not None:  # what comes later belongs to no sitting, or to the next one
            now = min(now, self._ended_t)
        return Snapshot(
            **self._facts | {"host": self._host_now()},
            elapsed=self._time(now),
            phase=self._phases.phase,
            phase_detail=self._phases.detail,
            phase_seconds=max(0.0, now - self._phases.since),
            start=self._phases.of_start(now),
            rest=self._phases.of_rest(),
            pace=self._pace(),
            spells=tuple(self._spells),
            begun=self._begun or 0.0,
            pauses=tuple(self._pauses),
            lines=MappingProxyType({name: series.line() for name, series in self._series.items()}),
            gpus=tuple(self._gpu_now(index, own.get(f"GPU:{index}", EMPTY)) for index in sorted(self._gpus)),
            tf_host=own.get("CPU:0", EMPTY),
        )

    def _time(self, t: float) -> float:
        return max(0.0, t - self._begun - self._paused) if self._begun is not None else 0.0

    def _pace(self) -> Pace:
        started = self._facts["started"]
        per_epoch = number(started.get("steps_per_epoch")) or self._steps_per_epoch
        return Pace(self._trains_since or 0.0, per_epoch, self._samples_per_step())

    def _samples_per_step(self) -> float | None:
        # Before the first progress, and of a run whose events have no samples, that of a full step.
        started, progress = self._facts["started"], self._facts["progress"]
        samples, step = number(progress.get("samples")), number(progress.get("step"))
        steps = (step or 0) - (number(started.get("resumed_at_step")) or 0)
        return samples / steps if samples and steps > 0 else number(started.get("global_batch_size"))

    def _set(self, **changes: Any) -> None:
        self._facts |= changes

    def _add(self, name: str, x: float, y: Any, *, peaks: bool = False) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series(peaks=peaks)
        series.add(x, number(y), self._step)

    def on_phase(self, t: float, event: Mapping[str, Any]) -> None:
        phase, before = str(event.get("phase", "")), self._phases
        if phase != "training":
            for training in self._gpu_training.values():
                training.pause()
        if before.started and before.phase != "training" and phase not in BEGINNINGS:
            self._spells.append(Spell(before.phase, self._time(before.since), self._time(t), self._step))
        if phase in BEGINNINGS and before.phase not in BEGINNINGS:
            self._resume(t)
        elif phase == "starting" and self._begun is not None:
            self._begun = min(self._begun, t)  # a late event of a trainer that has imported TensorFlow meanwhile
        if phase == "training" and before.compiles_first_step:
            self._set(first_step_seconds=t - before.since)
        before.begin(t, phase, str(event.get("detail") or ""))
        self._ended_t = t if phase == "ended" else None
        if phase == "training":
            self._training_begins(t)

    def _training_begins(self, t: float) -> None:
        # The charts count their time from the first of these.
        if self._trains_since is None:
            self._trains_since = self._time(t)

    def _resume(self, t: float) -> None:
        """The run's time continues from its stop. Some readings of the new engine may come before the event of the
        resume."""
        stopped = self._ended_t
        if stopped is None:
            stopped = max((time for time in self._times if time < t), default=t)
        self._paused += max(0.0, t - stopped)
        self._pauses.append((self._time(t), self._paused))
        self._resumed = self._trains_since is not None
        for series in self._series.values():
            series.gap()
        for totals in self._gpu_totals.values():
            totals.pause()
        self._gpu_training.clear()  # as the result has the means of its own sitting
        self._host_training.clear()
        self._set(outcome=None, error=None, summary=EMPTY, input_stages=EMPTY)
        self._set(diagnosis=_of_before(self._facts["diagnosis"]))
        self._set(resumes=(*self._facts["resumes"], t))

    def on_left_out(self, _t: float, _event: Mapping[str, Any]) -> None:
        """Take only the time of a reading that was not read, as a crashed run lasted until its last reading."""

    def on_started(self, _t: float, event: Mapping[str, Any]) -> None:
        self._set(started=MappingProxyType(dict(event)), outcome=None, error=None, summary=EMPTY)

    def on_progress(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(progress=event)
        self._training_begins(t)
        at, step = self._time(t), number(event.get("step"))
        if step is not None:
            self._step = step
        if self._resumed:
            self._resumed = False
            self._set(joins=(*self._facts["joins"], (at, self._step)))
        self._add("samples_per_second", at, event.get("samples_per_second"))
        self._add("step_ms_p50", at, event.get("step_ms_p50"))
        self._add("step_ms_p95", at, event.get("step_ms_p95"), peaks=True)
        self._add("input_wait", at, event.get("input_wait"))
        if step is not None:
            self._loss(at, event)
            self._metrics(at, mapping(event.get("metrics")))

    def _loss(self, at: float, event: Mapping[str, Any]) -> None:
        # `at` is in seconds since the run began. Without the loss of the last steps, the mean of the epoch so far.
        window, mean = number(event.get("window_loss")), number(event.get("loss"))
        if window is not None and not self._facts["windowed"]:
            self._set(windowed=True)
            self._series.pop("loss", None)  # means that came before are another figure
        if window is not None or mean is None or not self._facts["windowed"]:
            self._add("loss", at, window if self._facts["windowed"] else mean)

    def on_epoch(self, t: float, event: Mapping[str, Any]) -> None:
        at, step, epoch = self._time(t), number(event.get("step")), number(event.get("epoch"))
        if step is None:
            return
        self._step = step
        metrics = mapping(event.get("metrics"))
        if epoch:
            self._steps_per_epoch = step / epoch
            self._end_epoch(t, int(epoch), number(event.get("seconds")), metrics)
        self._metrics(at, {name: value for name, value in metrics.items() if name.startswith("val_")})
        for name in {"loss", *self._facts["metrics"]} & metrics.keys():
            self._add(f"epoch {name}", at, metrics[name])

    def on_best(self, t: float, event: Mapping[str, Any]) -> None:
        """Record a best epoch. A resumed run reports its best epoch again, which keeps its moment."""
        option, epoch, step = str(event.get("option")), number(event.get("epoch")), number(event.get("step"))
        before = self._facts["best"].get(option)
        if epoch is None or step is None or (before is not None and before.epoch == epoch):
            return
        best = BestEpoch(int(epoch), str(event.get("figure")), (self._time(t), step))
        self._set(best=MappingProxyType({**self._facts["best"], option: best}))

    def _end_epoch(self, t: float, epoch: int, seconds: float | None, metrics: Mapping[str, Any]) -> None:
        # If a resumed run repeats an epoch, the later one replaces the earlier one and all after it.
        before = tuple(earlier for earlier in self._facts["epochs"] if earlier.number < epoch)
        values = {str(name): number(value) for name, value in metrics.items()}
        epochs = int(number(self._facts["started"].get("epochs")) or 0)
        self._set(epochs=(*before, Epoch(t, epoch, epochs, seconds, values))[-MAX_EPOCHS:])

    def _metrics(self, at: float, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self._add(name, at, value)
            bare = name.removeprefix("val_")
            if bare != "loss" and bare not in self._facts["metrics"]:
                self._set(metrics=(*self._facts["metrics"], bare))

    def on_gpu(self, t: float, event: Mapping[str, Any]) -> None:
        gpus: Sequence[Gpu] = event["gpus"]
        at, used = self._time(t), self._used
        for gpu in gpus:
            self._read_gpu(t, at, gpu)
        training = [gpu for gpu in gpus if not used or gpu_reading.trains(gpu, used)]
        if len(training) > 1:
            self._add_together(at, training)
        reason = event.get("missing")
        if reason or self._gpus:
            self._set(no_gpu_reason=str(reason) if reason else None)
        self._set(gpu_seconds=number(event.get("interval_seconds")))

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
        if self._phases.phase == "training":
            self._gpu_training.setdefault(gpu.index, GpuTotals()).take(t, gpu)
        for name, key in GPU_LINES.items():
            self._add(f"gpu{gpu.index}{name}", at, gpu.value(key))

    def _gpu_now(self, index: int, own: Mapping[str, Any]) -> ShownGpu:
        # Of an ended run that has trained, the means.
        line = self._series[f"gpu{index}"].line()
        name, totals = self._gpu_names.get(index), self._gpu_totals[index]
        gpu = gpu_reading.shown(self._gpus[index], name, self._used, own, line, totals)
        training = self._gpu_training.get(index)
        if self._facts["outcome"] is None or training is None or gpu.missing:
            return gpu
        return gpu_reading.with_means(gpu, training, self._series[f"gpu{index} memory"].line())

    def _host_now(self) -> Mapping[str, Any]:
        if self._facts["outcome"] is None or not self._host_training:
            return mapping(self._facts["host"])
        means = {key: total / count for key, (total, count) in self._host_training.items()}
        return MappingProxyType(self._facts["host"] | means | {MEAN: True})

    @property
    def _used(self) -> Sequence[Any]:
        used = self._facts["started"].get("gpus")
        return used if isinstance(used, list) else ()

    def on_allocator(self, _t: float, event: Mapping[str, Any]) -> None:
        self._allocator = mapping(event.get("devices"))

    def on_diagnosis(self, _t: float, event: Mapping[str, Any]) -> None:
        if event.get("verdict") == "undecided" and self._facts["diagnosis"].get(BEFORE_RESUME):
            return  # too few steps since the run was resumed: the verdict of the part before stands
        self._set(diagnosis=event)

    def on_input_stages(self, _t: float, event: Mapping[str, Any]) -> None:
        self._set(input_stages=event)

    def on_workers(self, _t: float, event: Mapping[str, Any]) -> None:
        self._set(workers=event)

    def on_host(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(host=event)
        if self._phases.phase == "training":
            for key in event:
                if (value := number(event[key])) is not None:
                    total, count = self._host_training.get(key, (0.0, 0))
                    self._host_training[key] = total + value, count + 1
        self._add("cpu", self._time(t), event.get("cpu"))

    def on_warning(self, _t: float, event: Mapping[str, Any]) -> None:
        warning = _message(event)
        if warning not in self._facts["warnings"]:
            # One that is told again, with more to do about it, takes the place of the first.
            others = (each for each in self._facts["warnings"] if replace(each, hint=warning.hint) != warning)
            self._set(warnings=(*others, warning)[-MAX_MESSAGES:])

    def on_error(self, _t: float, event: Mapping[str, Any]) -> None:
        self._set(error=_message(event))

    def on_finished(self, _t: float, event: Mapping[str, Any]) -> None:
        summary = mapping(event.get("summary"))
        outcome = str(event.get("outcome") or summary.get("outcome") or "crashed")
        error = mapping(summary.get("error"))
        self._set(
            outcome=outcome,
            summary=MappingProxyType(dict(summary)),
            error=_message(error) if error else self._facts["error"] or (_NO_RESULT if outcome == "crashed" else None),
            first_step_seconds=number(summary.get("first_step_seconds")) or self._facts["first_step_seconds"],
        )


def _of_before(diagnosis: Mapping[str, Any]) -> Mapping[str, Any]:
    if diagnosis.get("verdict") in (None, "undecided"):
        return EMPTY
    return MappingProxyType(dict(diagnosis) | {BEFORE_RESUME: True})


_NO_RESULT = Message("crash", "the run ended without a result: its engine is gone", "see the end of the log")
_HANDLERS = {name.removeprefix("on_"): handler for name, handler in vars(Store).items() if name.startswith("on_")}


def _message(event: Mapping[str, Any]) -> Message:
    return Message(*(str(event.get(name) or "") for name in ("kind", "message", "hint", "option")))
