"""From a run's events to the few figures that a diagnosis rests on.

Separates collecting (live or from the run folder, bounded in memory) from judging, which is in diagnosis.py. A figure
that is not known is None. Shares are 0 to 1; means are over what was told since training began, speeds over the last
moments. No TensorFlow and no pydantic: the engine process stays small.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .runs import Run, Tail

RECENT = 20  # progress events that "now" is made of: 5 s at the first, 20 s later
READINGS = 600  # of each GPU figure and of the host: ten minutes at 1 Hz
GROWTH_READINGS = 10  # the moving average of SageMaker Debugger's memory rule
# Reasons (telemetry/questions.py) that take speed which a person could give back; the power cap is the chip's normal
# limit at full load.
SLOWING = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")


@dataclass(frozen=True, kw_only=True)
class Signals:
    """What is known of a run. `options` are flat, `group.name` -> value.

    `input_wait`, `python_share` and `compute_share` are parts of the step time, `pauses` (evaluation, checkpoints) of
    the time since the first step. `stages` are the input's, from source to end, with `ms_per_batch`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    on_gpu: bool = False
    gpus: int = 0  # that train
    idle_gpus: int = 0  # that do not, although they are there
    compute_capability: tuple[int, int] | None = None  # the lowest of those that train
    replicas: int = 1
    cpus: int | None = None
    cpu_bfloat16: bool = False  # the CPU multiplies bfloat16 natively
    train_samples: int | None = None
    sample_bytes: int | None = None
    inapplicable: Mapping[str, str] = field(default_factory=dict)  # options that do nothing to a user's own code: why
    global_batch_size: int | None = None
    steps_per_epoch: int | None = None
    steps: int = 0
    seconds: float = 0.0
    samples_per_second: float | None = None
    step_ms: float | None = None
    uneven: float | None = None  # 95th percentile of the step time / median
    input_wait: float | None = None
    python_share: float | None = None
    compute_share: float | None = None
    pauses: float | None = None
    traces: int | None = None
    stages: tuple[Mapping[str, Any], ...] = ()
    buffer_fill: float | None = None
    ablation: float | None = None  # share of the step that vanishes with the input (a measurement of its own)
    busy_mean: float | None = None
    busy_p5: float | None = None
    busy_p95: float | None = None
    busy_gap: float | None = None  # between the most and the least busy GPU
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    throttled: float | None = None  # share of the readings
    throttle: tuple[str, ...] = ()
    mfu: float | None = None
    memory_peak: float | None = None  # share of the device's memory, by TensorFlow's allocator
    memory_growth: float | None = None  # in shares of the memory, from the first readings to the last
    host_memory_free_bytes: int | None = None
    cpu: float | None = None
    trainer_cores: float | None = None
    io_wait: float | None = None
    read_bytes_per_second: float | None = None
    communication: float | None = None  # share of the step in collectives (from a profile)
    outcome: str | None = None

    def option(self, key: str) -> Any:
        return self.options.get(key)

    @property
    def slowest_stage(self) -> Mapping[str, Any] | None:
        known = [stage for stage in self.stages if _number(stage.get("ms_per_batch")) is not None]
        return max(known, key=lambda stage: float(stage["ms_per_batch"]), default=None)


def read(run: Run) -> Signals:
    """The signals of a run folder, running or finished."""
    collector = Collector(options_of(run))
    events = [event for name in ("events.jsonl", "telemetry.jsonl") for event in Tail(run.file(name)).read()]
    collector.feed(sorted(events, key=lambda event: float(event["t"])))
    return collector.signals()


def options_of(run: Run) -> dict[str, Any]:
    """`group.name` -> value, as it was at launch; empty where the preset cannot be read."""
    try:
        preset = yaml.safe_load(run.file("preset.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    groups = preset.items() if isinstance(preset, dict) else ()
    return {f"{group}.{name}": value for group, items in groups if isinstance(items, dict)
            for name, value in items.items()}


class Collector:
    """Takes a run's events in the order of their time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.started: Mapping[str, Any] = {}
        self._progress: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self._gpus: dict[str, deque[Mapping[str, Any]]] = {}
        self._all_gpus = 0
        self._host: deque[Mapping[str, Any]] = deque(maxlen=READINGS)
        self._memory: deque[float] = deque(maxlen=READINGS)
        self._stages: Mapping[str, Any] = {}
        self._peak: float | None = None
        self._summary: Mapping[str, Any] = {}
        self._phase, self._phase_t = "", 0.0
        self._spent: dict[str, float] = {}
        self._growing_from = 0.0

    @property
    def training(self) -> bool:
        """Whether a step has ended and figures come."""
        return bool(self._progress)

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            handler = _HANDLERS.get(str(event.get("type")))
            if handler is not None:
                handler(self, float(event["t"]), event)

    # ---- taking -------------------------------------------------------------------------------

    def on_started(self, t: float, event: Mapping[str, Any]) -> None:
        self.started = event

    def on_phase(self, t: float, event: Mapping[str, Any]) -> None:
        if self._phase:
            self._spent[self._phase] = self._spent.get(self._phase, 0.0) + t - self._phase_t
        self._phase, self._phase_t = str(event.get("phase")), t
        if self._phase == "importing":  # another sitting of a resumed run
            self._progress.clear()
            self._memory.clear()

    def on_progress(self, t: float, event: Mapping[str, Any]) -> None:
        if _number(event.get("step_ms_p50")) is not None:
            self._progress.append(event)

    def on_epoch(self, t: float, event: Mapping[str, Any]) -> None:
        if event.get("epoch") == 1:  # caches have been filled in it: growth counts from here
            self._memory.clear()

    def on_input_stages(self, t: float, event: Mapping[str, Any]) -> None:
        self._stages = event

    def on_gpu(self, t: float, event: Mapping[str, Any]) -> None:
        readings = [gpu for gpu in event.get("gpus") or () if isinstance(gpu, Mapping)]
        self._all_gpus = len(readings)
        mine = set(self.started.get("gpus") or ())
        for gpu in readings:
            if self._phase == "training" and gpu.get("uuid") in mine:
                self._gpus.setdefault(str(gpu["uuid"]), deque(maxlen=READINGS)).append(gpu)

    def on_host(self, t: float, event: Mapping[str, Any]) -> None:
        if self._phase != "training":
            return
        self._host.append(event)
        used, total = _number(event.get("trainer_bytes")), _number(event.get("memory_total_bytes"))
        if not self.on_gpu_device and used is not None and total:
            self._memory.append(used / total)

    def on_allocator(self, t: float, event: Mapping[str, Any]) -> None:
        total = self._device_bytes()
        for name, figures in (event.get("devices") or {}).items():
            if total and str(name).startswith("GPU") and isinstance(figures, Mapping):
                self._peak = max(self._peak or 0.0, figures.get("peak_bytes", 0) / total)
                self._memory.append(figures.get("current_bytes", 0) / total)

    def on_finished(self, t: float, event: Mapping[str, Any]) -> None:
        self._summary = event.get("summary") or {}

    # ---- giving -------------------------------------------------------------------------------

    @property
    def on_gpu_device(self) -> bool:
        return any("GPU" in str(name) for name in self.started.get("devices") or ())

    def signals(self) -> Signals:
        """What is known by now; of a finished run, its speeds are those of the whole run."""
        wait, python = self._recent("input_wait"), self._recent("python_share")
        host = self._host[-1] if self._host else {}
        used, total = _number(host.get("memory_used_bytes")), _number(host.get("memory_total_bytes"))
        return Signals(
            options=self.options,
            on_gpu=self.on_gpu_device,
            gpus=len(self.started.get("gpus") or ()),
            idle_gpus=max(0, self._all_gpus - len(self.started.get("gpus") or ())),
            compute_capability=_pair(self.started.get("compute_capability")),
            replicas=int(self.started.get("replicas") or 1),
            cpus=self.started.get("cpus"),
            cpu_bfloat16=bool(self.started.get("cpu_bfloat16")),
            train_samples=self.started.get("train_samples"),
            sample_bytes=self.started.get("sample_bytes"),
            inapplicable=self.started.get("inapplicable") or {},
            global_batch_size=self.started.get("global_batch_size"),
            steps_per_epoch=self.started.get("steps_per_epoch"),
            steps=self._steps(),
            seconds=self._spent.get("training", 0.0) + self._open_seconds(),
            **self._speeds(),
            input_wait=wait,
            python_share=python,
            compute_share=max(0.0, 1 - wait - (python or 0.0)) if wait is not None else None,
            pauses=self._pauses(),
            traces=self._last("traces"),
            stages=tuple(self._stages.get("stages") or ()),
            buffer_fill=_number(self._stages.get("buffer_fill")),
            **self._of_gpus(),
            memory_peak=self._peak,
            memory_growth=_growth(self._memory),
            host_memory_free_bytes=int(total - used) if used is not None and total is not None else None,
            cpu=_mean(self._host, "cpu"),
            trainer_cores=_mean(self._host, "trainer_cpu"),
            io_wait=_mean(self._host, "io_wait"),
            read_bytes_per_second=_mean(self._host, "trainer_read_bytes_per_second"),
            outcome=self._summary.get("outcome"),
        )

    def _steps(self) -> int:
        measured = self._summary.get("measured_steps")
        return int(measured) if measured else int(self._last("step") or 0)

    def _open_seconds(self) -> float:
        last = self._progress[-1]["t"] if self._progress else 0.0
        return max(0.0, float(last) - self._phase_t) if self._phase == "training" else 0.0

    def _recent(self, name: str) -> float | None:
        """The run's own figure where it has ended, the mean of the last moments before."""
        if (whole := _number(self._summary.get(name))) is not None:
            return whole
        known = [value for event in self._progress if (value := _number(event.get(name))) is not None]
        return statistics.fmean(known) if known else None

    def _last(self, name: str) -> Any:
        if self._summary.get(name) is not None:
            return self._summary[name]
        return self._progress[-1].get(name) if self._progress else None

    def _speeds(self) -> dict[str, Any]:
        times = self._summary.get("step_ms") or {}
        last = self._progress[-1] if self._progress else {}
        p50 = _number(times.get("p50")) or _number(last.get("step_ms_p50"))
        p95 = _number(times.get("p95")) or _number(last.get("step_ms_p95"))
        return {
            "samples_per_second": _number(self._last("samples_per_second")),
            "step_ms": p50,
            "uneven": p95 / p50 if p50 and p95 else None,
            "mfu": _number(self._last("mfu")),
        }

    def _pauses(self) -> float | None:
        pauses = self._spent.get("evaluating", 0.0) + self._spent.get("saving", 0.0)
        whole = self._spent.get("training", 0.0) + self._open_seconds() + pauses
        return pauses / whole if whole > 0 else None

    def _device_bytes(self) -> float | None:
        """What TensorFlow may take of a GPU: its limit, or the whole of the smallest one."""
        limit = _number(self.options.get("device.memory_limit_mb"))
        if limit is not None:
            return limit * 1024**2
        totals = [_number(readings[-1].get("memory_total_bytes")) for readings in self._gpus.values()]
        return min((total for total in totals if total), default=None)

    def _of_gpus(self) -> dict[str, Any]:
        readings = [gpu for of_one in self._gpus.values() for gpu in of_one]
        busy = [value for gpu in readings if (value := _number(gpu.get("busy"))) is not None]
        means = [mean for of_one in self._gpus.values() if (mean := _mean(of_one, "busy")) is not None]
        slowed = [[reason for reason in gpu.get("throttle") or () if reason in SLOWING] for gpu in readings]
        parts = statistics.quantiles(busy, n=20, method="inclusive") if len(busy) >= 20 else []
        return {
            "busy_mean": statistics.fmean(busy) if busy else None,
            "busy_p5": parts[0] if parts else None,
            "busy_p95": parts[-1] if parts else None,
            "busy_gap": max(means) - min(means) if len(means) > 1 else None,
            "sm_active": _mean(readings, "sm_active"),
            "tensor_active": _mean(readings, "tensor_active"),
            "dram_active": _mean(readings, "dram_active"),
            "throttled": sum(map(bool, slowed)) / len(slowed) if slowed else None,
            "throttle": tuple(dict.fromkeys(reason for reasons in slowed for reason in reasons)),
        }


_HANDLERS = {name.removeprefix("on_"): handler for name, handler in vars(Collector).items()
             if name.startswith("on_") and callable(handler)}


def _growth(shares: Iterable[float]) -> float | None:
    """How much the mean of the last readings lies above that of the first; None before there are enough."""
    values = list(shares)
    if len(values) < 3 * GROWTH_READINGS:
        return None
    return statistics.fmean(values[-GROWTH_READINGS:]) - statistics.fmean(values[:GROWTH_READINGS])


def _mean(readings: Iterable[Mapping[str, Any]], name: str) -> float | None:
    known = [value for reading in readings if (value := _number(reading.get(name))) is not None]
    return statistics.fmean(known) if known else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if isinstance(value, list | tuple) and len(value) == 2 else None
