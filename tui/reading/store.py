"""What a viewer knows of a run: events go in, an immutable `Snapshot` comes out.

Plain data without Textual and without files. Events of unknown type are skipped, fields may be absent, and an unknown
figure is None. History is bounded (series.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...engine.files.values import EMPTY, mapping, number
from ...engine.runs.events import LATER_COMPILING, Event, Finished, fields_of
from . import gpus
from .gpus import Gpu
from .series import NOTHING, Line, Series

__all__ = ["Gpu", "Message", "Snapshot", "Store", "mapping", "number"]

MAX_MESSAGES = 200
_BEGINNINGS = ("starting", "importing")  # the phases with which a run begins or is resumed


@dataclass(frozen=True)
class Message:
    """A warning, or the error that ended the run."""

    kind: str
    message: str
    hint: str = ""
    option: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment. `elapsed` is in seconds, without the time before the run was resumed.

    `diagnosis` and `input_stages` are the newest events of their kind; `gpu_seconds` is the time between two readings.
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
    tf_host: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    warnings: tuple[Message, ...] = ()
    error: Message | None = None
    outcome: str | None = None
    summary: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def line(self, name: str) -> Line:
        return self.lines.get(name, NOTHING)


# The fields of a snapshot that the store keeps as they are; the others are made with each snapshot.
_AT_FIRST: Mapping[str, Any] = {
    "phase": "starting",
    "phase_detail": "",
    "first_step_seconds": None,
    "started": EMPTY,
    "progress": EMPTY,
    "metrics": (),
    "no_gpu_reason": None,
    "gpu_seconds": None,
    "diagnosis": EMPTY,
    "input_stages": EMPTY,
    "host": EMPTY,
    "warnings": (),
    "error": None,
    "outcome": None,
    "summary": EMPTY,
}


@dataclass
class Store:
    """Takes a run's events in the order of their time."""

    _facts: dict[str, Any] = field(default_factory=lambda: dict(_AT_FIRST))
    _series: dict[str, Series] = field(default_factory=dict)
    _gpus: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _gpu_names: dict[int, str] = field(default_factory=dict)
    _allocator: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    _begun: float | None = None
    _paused: float = 0.0
    _last_t: float = 0.0
    _phase_t: float = 0.0

    def feed(self, found: Iterable[Event]) -> None:
        for event in found:
            handler = _HANDLERS.get(event.type)
            if handler is None:
                continue
            if self._begun is None:
                self._begun = self._phase_t = event.t
            handler(self, event.t, fields_of(event))
            if not isinstance(event, Finished):
                self._last_t = max(self._last_t, event.t)

    def snapshot(self, clock: float | None = None) -> Snapshot:
        """The run now; `clock` is the time of a running run, None for the time of the last event."""
        own = by_physical_gpu(self._allocator, self._facts["started"], self._gpus)
        now = self._last_t if clock is None or self._facts["outcome"] else max(clock, self._last_t)
        return Snapshot(
            **self._facts,
            elapsed=self._time(now),
            phase_seconds=max(0.0, now - self._phase_t),
            lines=MappingProxyType({name: series.line() for name, series in self._series.items()}),
            gpus=tuple(self._gpu_now(index, own.get(f"GPU:{index}", EMPTY)) for index in sorted(self._gpus)),
            tf_host=own.get("CPU:0", EMPTY),
        )

    def _time(self, t: float) -> float:
        return max(0.0, t - self._begun - self._paused) if self._begun is not None else 0.0

    def _set(self, **changes: Any) -> None:
        self._facts |= changes

    def _add(self, name: str, x: float, y: Any, *, peaks: bool = False) -> None:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series(peaks=peaks)
        series.add(x, number(y))

    def on_phase(self, t: float, event: Mapping[str, Any]) -> None:
        phase = str(event.get("phase", ""))
        if phase in _BEGINNINGS and self._facts["phase"] not in _BEGINNINGS:
            self._resume(t)
        elif phase == "starting" and self._begun is not None:
            self._begun = min(self._begun, t)  # a late event of a trainer that has imported TensorFlow meanwhile
        compiled = self._facts["phase"] == "compiling" and self._facts["phase_detail"] not in LATER_COMPILING
        if phase == "training" and compiled:
            self._set(first_step_seconds=t - self._phase_t)
        self._phase_t = t
        self._set(phase=phase, phase_detail=str(event.get("detail") or ""))

    def _resume(self, t: float) -> None:
        """The run was resumed: its time continues where it stopped."""
        self._paused += max(0.0, t - self._last_t)
        for series in self._series.values():
            series.gap()
        self._set(outcome=None, error=None, summary=EMPTY, diagnosis=EMPTY, input_stages=EMPTY)

    def on_started(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(started=MappingProxyType(dict(event)), outcome=None, error=None, summary=EMPTY)

    def on_progress(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(progress=event)
        at, step = self._time(t), number(event.get("step"))
        self._add("samples_per_second", at, event.get("samples_per_second"))
        self._add("step_ms_p50", at, event.get("step_ms_p50"))
        self._add("step_ms_p95", at, event.get("step_ms_p95"), peaks=True)
        self._add("input_wait", at, event.get("input_wait"))
        if step is not None:
            self._add("loss", step, event.get("loss"))
            self._metrics(step, mapping(event.get("metrics")))

    def on_epoch(self, t: float, event: Mapping[str, Any]) -> None:
        step = number(event.get("step"))
        if step is not None:
            metrics = mapping(event.get("metrics"))
            self._metrics(step, {name: value for name, value in metrics.items() if name.startswith("val_")})

    def _metrics(self, step: float, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self._add(name, step, value)
            bare = name.removeprefix("val_")
            if bare != "loss" and bare not in self._facts["metrics"]:
                self._set(metrics=(*self._facts["metrics"], bare))

    def on_gpu(self, t: float, event: Mapping[str, Any]) -> None:
        readings = event.get("gpus")
        at, busy, used = self._time(t), [], self._used
        for position, reading in enumerate(readings if isinstance(readings, list) else []):
            self._read_gpu(at, position, mapping(reading))
            if not used or gpus.trains(mapping(reading), used):
                busy.append(number(mapping(reading).get("busy")))
        if len(busy) > 1:
            known = [value for value in busy if value is not None]
            self._add("gpu_busy_mean", at, sum(known) / len(known) if known else None)
            self._add("gpu_busy_lowest", at, min(known, default=None))
        reason = event.get("missing")
        if reason or self._gpus:
            self._set(no_gpu_reason=str(reason) if reason else None)
        self._set(gpu_seconds=number(event.get("interval_seconds")))

    def _read_gpu(self, at: float, position: int, reading: Mapping[str, Any]) -> None:
        index = reading.get("index")
        index = index if isinstance(index, int) else position
        self._gpus[index] = reading
        if reading.get("name"):
            self._gpu_names[index] = str(reading["name"])
        self._add(f"gpu{index}", at, reading.get("busy"))

    def _gpu_now(self, index: int, own: Mapping[str, Any]) -> Gpu:
        """The last reading of a GPU; `own` holds TensorFlow's figures of it."""
        line = self._series[f"gpu{index}"].line()
        return gpus.read(index, self._gpus[index], self._gpu_names.get(index), self._used, own, line)

    @property
    def _used(self) -> Sequence[Any]:
        """The GPUs that train, as the started event names them."""
        used = self._facts["started"].get("gpus")
        return used if isinstance(used, list) else ()

    def on_allocator(self, t: float, event: Mapping[str, Any]) -> None:
        self._allocator = mapping(event.get("devices"))

    def on_diagnosis(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(diagnosis=event)

    def on_input_stages(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(input_stages=event)

    def on_host(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(host=event)
        self._add("cpu", self._time(t), event.get("cpu"))

    def on_warning(self, t: float, event: Mapping[str, Any]) -> None:
        warning = _message(event)
        if warning not in self._facts["warnings"]:
            self._set(warnings=(*self._facts["warnings"], warning)[-MAX_MESSAGES:])

    def on_error(self, t: float, event: Mapping[str, Any]) -> None:
        self._set(error=_message(event))

    def on_finished(self, t: float, event: Mapping[str, Any]) -> None:
        summary = mapping(event.get("summary"))
        outcome = str(event.get("outcome") or summary.get("outcome") or "crashed")
        error = mapping(summary.get("error"))
        self._set(
            outcome=outcome,
            summary=MappingProxyType(dict(summary)),
            error=_message(error) if error else self._facts["error"] or (_NO_RESULT if outcome == "crashed" else None),
            first_step_seconds=number(summary.get("first_step_seconds")) or self._facts["first_step_seconds"],
        )


_NO_RESULT = Message("crash", "the run ended without a result: its engine is gone", "see the end of the log")
_HANDLERS = {name.removeprefix("on_"): handler for name, handler in vars(Store).items() if name.startswith("on_")}


def _message(event: Mapping[str, Any]) -> Message:
    return Message(*(str(event.get(name) or "") for name in ("kind", "message", "hint", "option")))


def by_physical_gpu(
    devices: Mapping[str, Any], started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """TensorFlow's devices by NVML's numbers: GPU:0 may be a part of GPU 3."""
    parts = int(number(mapping(mapping(started.get("options")).get("device")).get("logical_devices")) or 1)
    numbers = _physical(started, readings, parts)
    found: dict[str, dict[str, float]] = {}
    for name, figures in devices.items():
        kind, _, position = str(name).partition(":")
        if kind == "GPU" and position.isdigit():
            order = int(position) // parts
            name = f"GPU:{numbers.get(order, order)}"
        total = found.setdefault(name, {})
        for key, value in mapping(figures).items():
            total[key] = total.get(key, 0) + (number(value) or 0)
    return found


def _physical(started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]], parts: int) -> dict[int, int]:
    """TensorFlow's number of a GPU -> NVML's, by the GPUs in the started event, else by the option."""
    cards = {str(reading.get("uuid")): index for index, reading in readings.items()}
    cards |= {str(index): index for index in readings}
    devices = started.get("gpu_devices")
    told = [mapping(one) for one in devices] if isinstance(devices, list) else []
    if found := {order: cards[name] for one in told if (name := str(one.get("uuid"))) in cards
                 if (order := _order(one, parts)) is not None}:  # fmt: skip
        return found
    used, visible = started.get("gpus"), mapping(mapping(started.get("options")).get("device")).get("visible")
    names = used if isinstance(used, list) and used else visible if isinstance(visible, list) else []
    return {order: cards[str(name)] for order, name in enumerate(names) if str(name) in cards}


def _order(device: Mapping[str, Any], parts: int) -> int | None:
    """The place of a GPU among those that TensorFlow has opened, by the name of the first device on it."""
    position = str(device.get("device")).rpartition("GPU:")[2]
    return int(position) // parts if position.isdigit() else None
