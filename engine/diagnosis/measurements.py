"""From a run's events to the few figures that a diagnosis rests on.

Separates collecting (live or from the run folder, bounded in memory) from judging, which is in diagnosis.py, and from
the engine's readings of GPUs, host and memory (readings.py). A figure that is not known is None. Shares are 0 to 1;
means are over what was told since training began, speeds over the last moments. Of a run that was resumed, all is of
its last sitting. No TensorFlow and no pydantic: the engine process stays small.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..files import located_yaml
from ..files.reading import why
from ..files.values import harmless, harmless_in, number
from ..runs import Run
from ..runs.reading import RunEvents, read_events
from . import accumulators

RECENT = 20  # progress events that "now" is made of: 5 s at the first, 20 s later
CORES_BUSY = 0.90  # of all cores: nothing more can be prepared beside the training
OTHERS_NOTABLE, CORES_SHORT = 0.10, 0.75  # of all cores: so much is used by others, and so much at all
DISK_WAITED = 0.30  # of all cores' time; a mean of 30 % holds times of the 50 % that SageMaker Debugger names
ENOUGH_SECONDS = 2.0  # of measured steps
WINDOW_MS = 50.0  # the least that a reading of the step time covers (trainer/clock.py)
READS_BYTES = 1e6  # a second: below, what is waited for is not the training's reading


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What is known of a run. `options` are flat, `group.name` -> value.

    `input_wait`, `python_share` and `compute_share` are parts of the step time, `pauses` (evaluation, checkpoints) of
    the time since the first step. What is done once (tracing and compiling, wherever it happens) is in neither.
    `seconds` are those of the steps, `windows` is how many readings of the step time there are. `stages` are the
    input's, from source to end, with `ms_per_batch`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    on_gpu: bool = False
    gpus: int = 0  # that train
    idle_gpus: int = 0  # that do not, although this training may see them and nobody uses them
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
    windows: int = 0
    input_wait: float | None = None
    python_share: float | None = None
    compute_share: float | None = None
    pauses: float | None = None
    pauses_counted: int = 0  # evaluations or checkpoints, whichever there were more of
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
    gpu_neighbours: tuple[str, ...] = ()  # other programs that hold much memory of its GPUs
    mfu: float | None = None
    memory_peak: float | None = None  # share of the device's memory, by TensorFlow's allocator
    memory_growth: float | None = None  # the same, from the first readings to the last
    host_memory_growth: float | None = None  # the trainer's, in shares of the host's memory
    host_memory_free_bytes: int | None = None
    cpu: float | None = None  # share of all cores, whoever uses them
    others_cpu: float | None = None  # the same of processes that are none of this training's
    trainer_cores: float | None = None
    io_wait: float | None = None
    read_bytes_per_second: float | None = None
    communication: float | None = None  # share of the step in collectives (from a profile)
    outcome: str | None = None

    def option(self, key: str) -> Any:
        return self.options.get(key)

    @property
    def slowest_stage(self) -> Mapping[str, Any] | None:
        """The one that the others wait for: stages run side by side, and so do the calls of a parallel one."""
        known = [stage for stage in self.stages if stage_ms(stage) is not None]
        return max(known, key=lambda stage: stage_ms(stage) or 0.0, default=None)

    @property
    def cores_busy(self) -> bool:
        return self.cpu is not None and self.cpu >= CORES_BUSY

    @property
    def crowded(self) -> bool:
        """Other programs take the cores away that the training could use."""
        return (self.others_cpu or 0.0) >= OTHERS_NOTABLE and (self.cpu or 0.0) >= CORES_SHORT

    @property
    def doubtful(self) -> bool:
        """A small share of the step time may be chance."""
        return self.seconds < ENOUGH_SECONDS or self.crowded

    @property
    def reads_from_disk(self) -> bool:
        """Where that is not told, waiting for a disk is taken to be for the training's."""
        return self.read_bytes_per_second is None or self.read_bytes_per_second >= READS_BYTES

    @property
    def disk_waited_for(self) -> bool:
        return self.io_wait is not None and self.io_wait >= DISK_WAITED and self.reads_from_disk


def stage_ms(stage: Mapping[str, Any]) -> float | None:
    """From one batch of a stage to its next, at best: its own work, shared by the calls that run at once."""
    work = number(stage.get("ms_per_batch"))
    return None if work is None else work / max(1.0, number(stage.get("parallelism")) or 1.0)


def read(run: Run, found: RunEvents | None = None) -> Measurements:
    """The measurements of a run folder, running or finished; `found` is what it has told, where that has been read."""
    collector = Collector(options_of(run), os.environ.get("CUDA_VISIBLE_DEVICES"))
    collector.feed((found or read_events(run.path)).events)
    return collector.measurements()


def options_of(run: Run) -> dict[str, Any]:
    """`group.name` -> value, as it was at launch; empty where the preset cannot be read."""
    return read_options(run)[0]


def read_options(run: Run) -> tuple[dict[str, Any], str]:
    """The options, and why they cannot be read where that is so."""
    try:
        preset = located_yaml.read(run.file("preset.yaml"))
    except located_yaml.YamlFault as fault:
        return {}, f"line {fault.line} of preset.yaml is damaged, so its options are left out: {fault.message}"
    except OSError as fault:
        return {}, f"preset.yaml cannot be read: {why(fault)}"
    groups = {name: located.value for name, located in preset.items() if isinstance(located.value, dict)}
    return {harmless(f"{group}.{name}"): harmless_in(located.value) for group, items in groups.items()
            for name, located in items.items()}, ""


class Collector:
    """Takes a run's events in the order of their time.

    `visible` is the CUDA_VISIBLE_DEVICES of who could start the training again.
    """

    def __init__(self, options: Mapping[str, Any], visible: str | None = None) -> None:
        self.options, self._visible = options, visible
        self._begin()

    def _begin(self) -> None:
        """A sitting: a run that was stopped or killed may go on later, as another process and otherwise fast."""
        self.started: Mapping[str, Any] = {}
        self._progress: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self._gpus = accumulators.Gpus(self._visible)
        self._host = accumulators.Host()
        self._device_growth, self._host_growth = accumulators.Growth(), accumulators.Growth()
        self._stages: Mapping[str, Any] = {}
        self._peak: float | None = None
        self._summary: Mapping[str, Any] = {}
        self._phase, self._detail, self._phase_t = "", "", 0.0
        self._ended_t: float | None = None
        self._spent: dict[str, float] = {}
        self._pauses, self._pause_seconds = accumulators.Pauses(), 0.0
        self._epochs = 0

    @property
    def newest_t(self) -> float | None:
        """The time of the newest figures of steps, or of the end of a run that was too short to have any."""
        return float(self._progress[-1]["t"]) if self._progress else self._ended_t

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        for event in events:
            handler = _HANDLERS.get(str(event.get("type")))
            if handler is not None:
                handler(self, float(event["t"]), event)

    # ---- taking -------------------------------------------------------------------------------

    def on_started(self, t: float, event: Mapping[str, Any]) -> None:
        self.started = event

    def on_phase(self, t: float, event: Mapping[str, Any]) -> None:
        phase = str(event.get("phase"))
        if phase == "importing":  # the first that a sitting tells; what lies before it is no phase's time
            self._begin()
        if self._phase:
            self._spent[self._phase] = self._spent.get(self._phase, 0.0) + t - self._phase_t
        if self._phase in ("evaluating", "saving") and self._detail != "model.keras":
            self._pause_seconds += t - self._phase_t
            if phase != "compiling":  # in the middle of the first evaluation, for a smaller last batch
                self._pauses.add(self._phase, self._pause_seconds)
                self._pause_seconds = 0.0
        self._phase, self._phase_t, self._detail = phase, t, str(event.get("detail") or "")

    def on_progress(self, t: float, event: Mapping[str, Any]) -> None:
        if number(event.get("step_ms_p50")) is not None:
            self._progress.append(event)

    def on_epoch(self, t: float, event: Mapping[str, Any]) -> None:
        self._epochs += 1
        if self._epochs == 1:  # what is made once has been made in it, the evaluation's too
            self._device_growth.begin_anew()
            self._host_growth.begin_anew()

    def on_input_stages(self, t: float, event: Mapping[str, Any]) -> None:
        self._stages = event

    def on_gpu(self, t: float, event: Mapping[str, Any]) -> None:
        if self._phase == "training":
            self._gpus.take(event, set(self.started.get("gpus") or ()))

    def on_host(self, t: float, event: Mapping[str, Any]) -> None:
        if self._phase != "training":
            return
        self._host.take(event)
        used, total = number(event.get("trainer_bytes")), number(event.get("memory_total_bytes"))
        if used is not None and total and self._filled():
            self._host_growth.add(used / total)

    def on_allocator(self, t: float, event: Mapping[str, Any]) -> None:
        devices = event.get("devices") or {}
        gpus = [of for name, of in devices.items() if str(name).startswith("GPU") and isinstance(of, Mapping)]
        total = self._device_bytes()
        if not total or not gpus:
            return
        self._peak = max(self._peak or 0.0, *(of.get("peak_bytes", 0) / total for of in gpus))
        if self._filled():
            self._device_growth.add(max(of.get("current_bytes", 0) for of in gpus) / total)

    def on_finished(self, t: float, event: Mapping[str, Any]) -> None:
        self._summary = event.get("summary") or {}
        if self._summary.get("steps"):
            self._ended_t = t

    def _filled(self) -> bool:
        """Whether caches and shuffle buffers are full: what grows from then on is kept by something else."""
        return not self._fills() or (self._epochs > 0 and self._has_passed())

    def _fills(self) -> bool:
        """A user's own code may have a cache that no option tells of."""
        known = self.options.get("workload.entry") is None
        nothing = self.options.get("input.cache") not in ("memory", None) and self.options.get("input.shuffle") == "off"
        return not (known and nothing)

    def _has_passed(self) -> bool:
        """Whether this sitting has gone over all its data; taken to be so where their number is not known."""
        batch, samples = self.started.get("global_batch_size"), self.started.get("train_samples")
        if not batch or not samples or not self._progress:
            return True
        steps = int(self._progress[-1].get("step") or 0) - int(self.started.get("resumed_at_step") or 0)
        return steps >= int(samples) // int(batch)

    # ---- giving -------------------------------------------------------------------------------

    @property
    def on_gpu_device(self) -> bool:
        return any("GPU" in str(name) for name in self.started.get("devices") or ())

    def measurements(self) -> Measurements:
        """What is known by now; of a finished run, its speeds are those of the whole run."""
        wait, python = self._recent("input_wait"), self._recent("python_share")
        return Measurements(
            options=self.options,
            **self._of_start(),
            steps=self._steps(),
            seconds=self._seconds(),
            **self._speeds(),
            input_wait=wait,
            python_share=python,
            compute_share=max(0.0, 1 - wait - (python or 0.0)) if wait is not None else None,
            pauses=self._pause_share(),
            pauses_counted=self._pauses.most_often,
            traces=self._last("traces"),
            stages=tuple(self._stages.get("stages") or ()),
            buffer_fill=number(self._stages.get("buffer_fill")),
            **self._gpus.figures(),
            memory_peak=self._peak,
            memory_growth=self._device_growth.share,
            host_memory_growth=self._host_growth.share,
            **self._host.figures(),
            outcome=self._summary.get("outcome"),
        )

    def _of_start(self) -> dict[str, Any]:
        told = self.started
        as_told = ("cpus", "train_samples", "sample_bytes", "global_batch_size", "steps_per_epoch")
        return {
            **{name: told.get(name) for name in as_told},
            "on_gpu": self.on_gpu_device,
            "gpus": len(told.get("gpus") or ()),
            "compute_capability": _pair(told.get("compute_capability")),
            "replicas": int(told.get("replicas") or 1),
            "cpu_bfloat16": bool(told.get("cpu_bfloat16")),
            "inapplicable": told.get("inapplicable") or {},
        }

    def _steps(self) -> int:
        measured = self._summary.get("measured_steps")
        return int(measured) if measured else int(self._last("step") or 0)

    def _seconds(self) -> float:
        """Of the measured steps where the run has ended, of the training so far before."""
        measured = number(self._summary.get("measured_seconds"))
        return measured if measured is not None else self._spent.get("training", 0.0) + self._open_seconds()

    def _open_seconds(self) -> float:
        last = self._progress[-1]["t"] if self._progress else 0.0
        return max(0.0, float(last) - self._phase_t) if self._phase == "training" else 0.0

    def _recent(self, name: str) -> float | None:
        """The run's own figure where it has ended, the mean of the last moments before."""
        if (whole := number(self._summary.get(name))) is not None:
            return whole
        return accumulators.mean(self._progress, name)

    def _last(self, name: str) -> Any:
        if self._summary.get(name) is not None:
            return self._summary[name]
        return self._progress[-1].get(name) if self._progress else None

    def _speeds(self) -> dict[str, Any]:
        times = self._summary.get("step_ms") or {}
        last = self._progress[-1] if self._progress else {}
        p50 = number(times.get("p50")) or number(last.get("step_ms_p50"))
        p95 = number(times.get("p95")) or number(last.get("step_ms_p95"))
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

    def _device_bytes(self) -> float | None:
        """What TensorFlow may take of a GPU: its limit, or the whole of the smallest one."""
        limit = number(self.options.get("device.memory_limit_mb"))
        if limit is not None:
            return limit * 1024**2
        return self._gpus.smallest_bytes()


_HANDLERS = {name.removeprefix("on_"): handler for name, handler in vars(Collector).items()
             if name.startswith("on_") and callable(handler)}


def _pair(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if isinstance(value, list | tuple) and len(value) == 2 else None
