"""Run folders as the engine and the trainer leave them, made without training: for tests, benchmarks and pictures.

The figures follow simple curves with a little deterministic noise; times begin at BEGAN.
"""

from __future__ import annotations

import json
import math
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.doors.engine import (
    Cluster,
    EventWriter,
    Gpu,
    Process,
    Run,
    RunError,
    Trash,
    events,
    launch,
    presets,
    write_atomically,
)
from tests.doors.engine import identity_Place as Place

BEGAN = 1_790_000_000.0
GIB = 1024**3
STEPS_A_SECOND = 10
NO_DRIVER = "no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)"
FAULTS = {
    "oom": {
        "kind": "out_of_memory",
        "message": "out of memory at batch size 512: the trainer ended with signal SIGSEGV",
        "hint": "try input.batch_size=256, precision.policy=mixed_bfloat16 or a smaller workload.width",
    },
    "crashed": {"kind": "crash", "message": "the trainer ended with signal SIGABRT and no result",
                "hint": "see the end of engine.log"},
    "error": {"kind": "data", "message": "no such folder: /data/[red]images", "hint": "look at workload.data"},
}  # fmt: skip
LOG = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1790000001.489969    5303 port.cc:153] oneDNN custom operations are on.
I0000 00:00:1790000002.620210    5303 cpu_feature_guard.cc:227] optimized to use available CPU instructions
I0000 00:00:1790000008.118791    5303 gpu_device.cc:2020] Created device /device:GPU:0 with 77504 MB memory
I0000 00:00:1790000009.226845    5303 cuda_dnn.cc:529] Loaded cuDNN version 90300
"""


def shown(signal: str, value: float, unit: str, text: str, **more: Any) -> dict[str, Any]:
    """A row of the evidence for a diagnosis."""
    fields = {"signal": signal, "value": value, "unit": unit, "text": text}
    return fields | {"threshold": None, "source": "measured"} | more


def remedy(changes: dict[str, Any], step: str, expected_gain: float | None, reason: str, **more: Any) -> dict[str, Any]:
    fields = {"changes": changes, "step": step, "expected_gain": expected_gain, "reason": reason}
    return fields | {"changes_learning": False} | more


DIAGNOSIS: dict[str, Any] = {
    "verdict": "input_bound", "confidence": 0.93, "steps": 812, "others": ["python_overhead"],
    "sentence": "Input-bound: steps wait 62 % of their time for input, mostly in prepare",
    "evidence": [
        shown("input_wait", 0.62, "share", "steps wait 62 % of their time for input", threshold=0.2,
              source="XProf (5 and 20 % of the step)"),
        shown("stage", 20.6, "ms", "its slowest stage is prepare: 20.6 ms per batch with 2 calls at a time"),
        shown("buffer_fill", 0.0, "share", "the prefetch buffer is 0 % full"),
        shown("trainer_cores", 1.7, "cores", "the training uses 1.7 of 16 CPUs"),
    ],
    "remedies": [
        remedy({"input.cache": "memory"}, "input", 2.6,
               "the prepared samples fit in memory four times: read and prepare them once"),
        remedy({"input.parallel_calls": "auto"}, "input", 2.2,
               "one call at a time prepares the samples, and 14 of 16 CPUs are idle"),
        remedy({"input.batch_size": 256}, "device", None, "larger batches cost less per sample", changes_learning=True),
        remedy({}, "device", None, "look after \x1b[31mthe disk[/red]"),
    ],
}  # fmt: skip
STAGES: dict[str, Any] = {
    "stages": [
        {"name": name, "op": op, "ms_per_batch": ms, "parallelism": parallelism}
        for name, op, ms, parallelism in (
            ("read", "TensorSlice", 0.2, None), ("shuffle", "ShuffleAndRepeat", 1.1, None),
            ("prepare", "ParallelMapV2", 41.2, 2), ("batch", "ParallelBatch", 3.4, 2), ("augment", "MapV2", None, None),
        )
    ],
    "buffer_fill": 0.04,
}  # fmt: skip
HEALTHY: dict[str, Any] = {
    "verdict": "healthy", "confidence": 0.7, "steps": 4000,
    "sentence": "Healthy: computing takes 97 % of the step; gputui has no further option to try",
    "evidence": [shown("compute_share", 0.97, "share", "computing takes 97 % of the step")],
}  # fmt: skip


@dataclass
class Recording:
    """What kind of run it is; `outcome` None leaves it as it looks while it goes on."""

    gpus: int = 8
    seconds: int = 120
    outcome: events.Outcome | None = "ok"
    name: str = "recorded"
    description: str = "ResNet-50 on synthetic images"
    readings_a_second: float = 1.0
    settings: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    log: str = LOG
    samples_per_second: float = 9_800.0
    epoch_seconds: int = 30
    engine_pid: int | None = None
    diagnosis: dict[str, Any] | None = None
    input_stages: dict[str, Any] | None = None
    mfu: float | None = None


def write(home: Path, recording: Recording | None = None, **changes: Any) -> Run:
    """A run folder under `home`/runs; give fields of Recording by name."""
    recording = recording or Recording(**changes)
    run = Run(home / "runs" / recording.name)
    run.path.mkdir(parents=True)
    made = _made.get(repr(recording))
    if made is None:
        _make(run, recording)
        made = _made[repr(recording)] = {path.name: path.read_bytes() for path in run.path.iterdir()}
    else:
        for name, content in made.items():
            run.file(name).write_bytes(content)
    _status(run, recording)
    return run


def stopped(*settings: str, cluster: Cluster | None = None) -> Run:
    """A run that was stopped after its checkpoint of step 100."""
    preset = presets.resolve("quickstart", ["run.checkpoint=epoch", *settings])
    run = launch.create(launch.settle(preset, Path.cwd()), launch.origin_of(preset), cluster)
    run.file("result.json").write_text('{"outcome": "stopped"}')
    step = run.file("checkpoints/step-0000000100")
    step.mkdir(parents=True)
    for name in ("state.index", "state.data-00000-of-00001"):
        (step / name).write_text("x")
    return run


def deleted(run: Run) -> None:
    """Delete it for good, as a screen does when it is left. Raises RunError where it is refused."""
    trash = Trash()
    _, refused = trash.put([run])
    trash.empty()
    if refused:
        raise RunError(refused[0])


_made: dict[str, dict[str, bytes]] = {}  # the files of recordings that this process has written


def _make(run: Run, recording: Recording) -> None:
    preset = presets.defaults(("train.seed=7", *recording.settings))
    text = presets.Preset("recorded", preset.options, recording.description).to_yaml()
    write_atomically(run.file("preset.yaml"), text)
    run.file("engine.log").write_text(recording.log, encoding="utf-8")
    Writer(run, recording, asdict(preset.options)).write()


def _status(run: Run, recording: Recording) -> None:
    pid = recording.engine_pid or 2**22 + 1
    phase = "ended" if recording.outcome else "training"
    status = {"phase": phase, "heartbeat": BEGAN} | Place.here().as_fields() | Process.of(pid).as_fields("engine")
    write_atomically(run.file("status.json"), json.dumps(status))
    os.utime(run.file("preset.yaml"), (BEGAN, BEGAN))


class Writer:
    """Writes the events of a recording, a second of the run at a time."""

    def __init__(self, run: Run, recording: Recording, options: dict[str, Any]) -> None:
        self.run, self.of, self.options = run, recording, options
        self.random = random.Random(recording.name)
        self.trainer = EventWriter(run.file("events.jsonl"), run.id)
        self.engine = EventWriter(run.file("telemetry.jsonl"), run.id)
        self.steps = (recording.seconds - 12) * STEPS_A_SECOND
        self.epoch_steps = recording.epoch_seconds * STEPS_A_SECOND
        self.epochs = max(1, -(-(recording.seconds - 12) // recording.epoch_seconds))
        self.step = 0
        self.metrics: dict[str, float | None] = {}

    def write(self) -> None:
        if not self.of.gpus:
            self.engine.emit(events.GpuReadings(gpus=[], missing=NO_DRIVER), BEGAN + 0.2)
        self._start()
        for second in range(self.of.seconds):
            self.second(second)
        if self.of.outcome:
            self._finish(BEGAN + self.of.seconds)
        self.trainer.close()
        self.engine.close()

    def _start(self) -> None:
        phases: tuple[tuple[float, events.PhaseName, str], ...] = (
            (0.4, "importing", "TensorFlow"), (6.5, "configuring", ""), (6.8, "building", "model"),
            (8.0, "compiling", "tracing"), (12.0, "training", ""),
        )  # fmt: skip
        for at, phase, detail in phases:
            self.trainer.emit(events.Phase(phase=phase, detail=detail), BEGAN + at)
            if phase == "building":
                self.trainer.emit(self._started(), BEGAN + at + 0.5)
        for kind, message in self.of.warnings:
            self.trainer.emit(events.Warn(kind=kind, message=message, hint="change it", option=kind), BEGAN + 12.1)

    def _started(self) -> events.Started:
        return events.Started(
            pid=5303, versions={"python": "3.11.7", "tensorflow": "2.21.0", "keras": "3.15.1"}, options=self.options,
            devices=[f"/device:GPU:{index}" for index in range(self.of.gpus)] or ["/device:CPU:0"],
            actual={"parameters": 25_600_000, "jit_compile": False}, replicas=max(1, self.of.gpus),
            global_batch_size=1024, steps_per_epoch=self.epoch_steps, epochs=self.epochs, steps=self.steps,
            train_samples=300_000, validation_samples=10_000,
        )  # fmt: skip

    def second(self, second: int) -> None:
        """Everything that is said in one second of the run."""
        between = 1 / self.of.readings_a_second
        for part in range(max(1, round(self.of.readings_a_second))):
            at = BEGAN + second + part * between
            if self.of.gpus:
                self.engine.emit(events.GpuReadings(gpus=self._gpus(second)), at + 0.7)
            self.engine.emit(self._host(second), at + 0.701)
        if second >= 12:
            self._training(second)

    def _training(self, second: int) -> None:
        if second == 20 and self.of.diagnosis:
            self.engine.emit(events.Diagnosis(**self.of.diagnosis), BEGAN + second)
        if second == 20 and self.of.input_stages:
            self.trainer.emit(events.InputStages(**self.of.input_stages), BEGAN + second)
        self.step = min(self.steps, (second - 11) * STEPS_A_SECOND)
        done = self.step / self.steps
        loss = 2.3 * math.exp(-4 * done) + 0.02 * self.random.random()
        self.metrics = {"loss": loss, "accuracy": 1 - loss / 2.6}
        self.trainer.emit(self._progress(loss), BEGAN + second + 0.4)
        self.trainer.emit(events.Allocator(devices=self._allocated()), BEGAN + second + 0.401)
        if self.step % self.epoch_steps == 0:
            self.metrics |= {"val_loss": loss * 1.1 + 0.03, "val_accuracy": 1 - (loss * 1.1 + 0.03) / 2.6}
            epoch, seconds = self.step // self.epoch_steps, float(self.of.epoch_seconds)
            end = events.EpochEnd(epoch=epoch, step=self.step, metrics=self.metrics, seconds=seconds)
            self.trainer.emit(end, BEGAN + second + 0.5)

    def _progress(self, loss: float) -> events.Progress:
        p50 = 1000 * 1024 / self.of.samples_per_second * self._about(0.02)
        return events.Progress(
            epoch=(self.step - 1) // self.epoch_steps + 1, epochs=self.epochs, step=self.step, steps=self.steps,
            samples_per_second=1000 * 1024 / p50, step_ms_p50=p50, step_ms_p95=p50 * (1.1 + 0.1 * self.random.random()),
            input_wait=0.08 * self._about(0.3), loss=loss, metrics={"accuracy": 1 - loss / 2.6},
            eta_seconds=(self.steps - self.step) / STEPS_A_SECOND, mfu=self.of.mfu,
            window_loss=loss * (1 + 0.1 * math.sin(self.step)),
        )  # fmt: skip

    def _about(self, spread: float) -> float:
        return 1 + spread * (2 * self.random.random() - 1)

    def _gpus(self, second: int) -> list[Gpu]:
        return [Gpu.from_json(self._gpu(index, second)) for index in range(self.of.gpus)]

    def _gpu(self, index: int, second: int) -> dict[str, Any]:
        busy = 0.0 if second < 12 else min(1.0, 0.93 * self._about(0.06))
        return {
            "index": index, "uuid": f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000", "name": "NVIDIA H100 80GB HBM3",
            "busy": round(busy, 2), "memory_used_bytes": int((0.6 if second < 12 else 61.4) * GIB),
            "memory_total_bytes": int(79.6 * GIB),
            "temperature_c": 38 + min(26, second // 2) + self.random.randrange(2),
            "power_w": round(95 + 520 * busy * self._about(0.03), 1), "power_limit_w": 700.0,
            "sm_clock_mhz": 1980 - 15 * self.random.randrange(3), "memory_clock_mhz": 2619,
            "throttle": ["power cap"] if index == 2 and second > 30 else [], "pstate": 0,
            "sm_active": round(0.9 * busy, 3), "tensor_active": round(0.48 * busy, 3),
            "dram_active": round(0.61 * busy, 3), "pcie_rx_bytes_per_second": int(1.4 * GIB * busy),
            "pcie_tx_bytes_per_second": int(0.2 * GIB * busy),
            "nvlink": {"links": 18, "rx_bytes_per_second": int(31 * GIB * busy), "tx_bytes_per_second": 29 * GIB},
            "ecc_errors": {"corrected": 0, "uncorrected": 2 if index == 3 else 0}, "mig": None,
            "processes": self._processes(index), "reasons": {"memory_reserved_bytes": "unsupported"},
        }  # fmt: skip

    def _processes(self, index: int) -> list[dict[str, Any]]:
        own = {"pid": 5303, "memory_used_bytes": int(60.8 * GIB), "name": "python", "own": True}
        other = {"pid": 911, "memory_used_bytes": int(0.6 * GIB), "name": "Xorg", "own": False}
        return [own, other] if index == 1 else [own]

    def _host(self, second: int) -> events.HostReading:
        return events.HostReading(
            cpu=0.34 * self._about(0.2), memory_used_bytes=int(88 * GIB * self._about(0.002)),
            memory_total_bytes=512 * GIB, engine_bytes=36_000_000, trainer_bytes=int(14.2 * GIB),
            trainer_cpu=11.4 * self._about(0.1),
        )  # fmt: skip

    def _allocated(self) -> dict[str, dict[str, int]]:
        if not self.of.gpus:
            return {"CPU:0": {"current_bytes": 2 * GIB, "peak_bytes": 3 * GIB}}
        own = {"current_bytes": int(38.2 * GIB), "peak_bytes": int(57.9 * GIB)}
        return {f"GPU:{index}": own for index in range(self.of.gpus)}

    def _finish(self, t: float) -> None:
        outcome = self.of.outcome or "ok"
        summary = asdict(self._summary(outcome))
        if fault := FAULTS.get(outcome):
            self.trainer.emit(events.Fault(**fault), t)
        write_atomically(self.run.file("result.json"), json.dumps(events.plain(summary), indent=1))
        self.trainer.emit(events.Phase(phase="ended"), t + 0.01)
        self.trainer.emit(events.Finished(outcome=outcome, summary=summary), t + 0.02)

    def _summary(self, outcome: events.Outcome) -> events.Summary:
        p50 = 1000 * 1024 / self.of.samples_per_second
        return events.Summary(
            outcome=outcome, trainer_returncode=0 if outcome == "ok" else -6,
            samples_per_second=self.of.samples_per_second, step_ms={"p50": p50, "p95": p50 * 1.15},
            measured_steps=max(0, self.step - 20), first_step_seconds=4.0, startup_seconds=12.0, input_wait=0.08,
            peak_memory_bytes=int(57.9 * GIB), gpu_busy_mean=0.93 if self.of.gpus else None, mfu=self.of.mfu,
            epochs=self.step // self.epoch_steps, steps=self.step, metrics=self.metrics,
            seconds=float(self.of.seconds), goodput=0.86, error=FAULTS.get(outcome),
        )  # fmt: skip
