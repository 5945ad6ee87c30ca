"""`Monitor`, a Keras callback: any model.fit in any script becomes a run that gputui's viewers see.

Separates looking on from taking part: nothing of the fit is changed. The script's process is engine and trainer of its
run in one: it writes the events of both, and a run without a result whose process is gone has crashed.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
import threading
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import yaml

from ... import runs
from ...runs import Run, events
from ...telemetry.machine import visible_gpus
from ..common.step_logs import floats
from ..measure.clock import WINDOW_SECONDS, Spent, StepClock, warmup_steps
from ..measure.run_report import Moment, Plan, RunReport
from ..setup.devices import Devices, peak_bytes
from .fit_frame import Fit
from .fit_life import Life

PULSE_SECONDS = 0.25
MEMORY_SECONDS = 1.0
INTERRUPTED = {
    "kind": "interrupted",
    "message": "the fit ended before its time: it was interrupted, or failed",
    "hint": "the script's own output says why",
}


class Monitor(keras.callbacks.Callback):
    """model.fit(..., callbacks=[Monitor("name")]): `gputui watch`, `runs` and `compare` see the fit as a run.

    `batch_size` (of all replicas) is found out where fit knows it; give it where the speed in samples is missing.
    The device is waited for at most every 250 ms.
    """

    async_safe = True

    def __init__(self, name: str = "fit", batch_size: int | None = None, sample_seconds: float = 1.0) -> None:
        super().__init__()
        self.name, self.batch_size, self.sample_seconds = name, batch_size, sample_seconds
        self.run: Run | None = None
        self._watched: _Watched | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.gone()
        fit = Fit()
        batch_size = self.batch_size or fit.batch_size()
        try:
            self._watched = _Watched(self.name, self.model, self.params or {}, batch_size, self.sample_seconds, fit)
            self.run = self._watched.run
        except OSError as fault:  # whoever looks on must not end what it looks at
            self._watched = self.run = None
            with contextlib.suppress(OSError):  # it may be redirected to the same disk
                print(f"gputui: this fit is not watched: {fault.strerror or fault}: {fault.filename}", file=sys.stderr)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_begins(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.execution_begins(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called in a thread of Keras, which does not wait for it, or for the logs, in the loop."""
        if self._watched:
            self._watched.ended, self._watched.logs = batch, logs

    def on_test_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.tests_begin()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._watched and batch:
            self._watched.test_traced()

    def on_test_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.tests_end()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._watched:
            self._watched.epoch_ends(epoch, floats(logs))

    def on_train_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.finish()
            self._watched = None


class _Watched:
    """One fit as it runs."""

    def __init__(
        self,
        name: str,
        model: keras.Model,
        params: dict[str, Any],
        batch_size: int | None,
        sample_seconds: float,
        fit: Fit,
    ) -> None:
        self.model = model
        self.epochs, self.per_epoch = int(params.get("epochs") or 1), params.get("steps")
        self.run = runs.create(name, _preset(name, model, params, batch_size))
        self._devices = _devices()
        self._on_gpu = self._devices.kind == "GPU"
        writer = events.EventWriter(self.run.file("events.jsonl"), self.run.id)
        self.report = RunReport(self.run, writer)
        self._steps(int(self.per_epoch or 0) * self.epochs, batch_size)
        total = self.report.plan.steps
        window = math.inf if self._on_gpu else WINDOW_SECONDS
        self.report.clock = StepClock(warmup_steps(total) if total else warmup_steps(1_000_000), window)
        self.epoch = self.step = 0
        self._epoch_began = time.monotonic()
        self._executions = 0
        self.ended = -1  # the last step of the epoch that has ended
        self.logs: Any = None  # what it returned
        self._before = self._next_pulse = self._next_memory = self._traced_since = 0.0
        self._stopping = False
        self._finishing = threading.Lock()
        self._announce(batch_size)
        self._life = Life(self.run, sample_seconds, fit, self._ask_to_stop, self.gone, self.report.writer.clock)

    def _steps(self, steps: int, batch_size: int | None) -> None:
        self.report.plan = Plan(self.epochs, steps, batch_size or 0)

    def _announce(self, batch_size: int | None) -> None:
        gpus = [gpu.uuid for gpu in visible_gpus() if gpu.uuid] if self._on_gpu else []
        self.report.gpus = set(gpus)
        self.report.writer.emit(
            events.Started(
                pid=os.getpid(),
                versions=_versions(),
                devices=list(self._devices.names),
                gpus=gpus,
                options=yaml.safe_load(self.run.file("preset.yaml").read_text(encoding="utf-8")),
                actual={"jit_compile": bool(self.model.jit_compile), "optimizer": type(self.model.optimizer).__name__},
                replicas=int(self.model.distribute_strategy.num_replicas_in_sync),
                global_batch_size=batch_size,
                steps_per_epoch=self.per_epoch,
                epochs=self.epochs,
                steps=self.report.plan.steps,
                train_samples=None,
                validation_samples=None,
                cpus=len(os.sched_getaffinity(0)),
            )
        )

    def epoch_begins(self, epoch: int) -> None:
        self.epoch, self._epoch_began = epoch, time.monotonic()
        if self._executions:
            self.report.phase("training")

    def execution_begins(self, batch: int) -> None:
        """What runs now has been handed over before; nothing is waited for but at a pulse."""
        now = time.perf_counter()
        if self._executions == 0:
            self.report.phase("compiling", "XLA" if self.model.jit_compile else "tracing")
        elif self._executions == 1:
            self._first_done()
            now = time.perf_counter()
        clock = self.report.clock
        if clock.warm and not self.report.warm:
            self._read()
            now = time.perf_counter()
            clock.mark(now, self._together)
            self.report.begin_measuring(self._spent(now))
        else:
            clock.mark(now, self._together)
        self._before = now
        self._executions += 1
        self.step = self.epoch * int(self.per_epoch or 0) + batch
        if self._executions > 1 and self.logs and now >= self._next_pulse:
            self._pulse(self._read())
        if self._stopping:
            self.model.stop_training = True

    @property
    def _together(self) -> int:
        return int(self.model.steps_per_execution)

    def _first_done(self) -> None:
        self._read()  # the first execution has ended when its figures are there
        self.report.first_step_done(time.perf_counter() - self._before)
        self.report.phase("training")

    def _read(self) -> dict[str, float]:
        """The running metrics, which waits for the device; or what a step returns that has figures of its own."""
        metrics, logs = floats(self.model.get_metrics_result()), floats(self.logs)
        return metrics if not logs or logs.keys() == metrics.keys() else logs

    def _pulse(self, metrics: dict[str, float]) -> None:
        if self._on_gpu:
            self.report.clock.cut()
        now = time.perf_counter()
        self._next_pulse = now + PULSE_SECONDS
        self.report.pulse(Moment(epoch=self.epoch + 1, step=self.step, spent=self._spent(now), metrics=metrics))
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            self.report.memory(peak_bytes(self._devices))

    def _spent(self, now: float) -> Spent:
        return Spent(self.report.clock.measured_until(now))

    def tests_begin(self) -> None:
        """What follows is no step; of the first evaluation, its first execution is tracing and compiling."""
        self.report.clock.pause(time.perf_counter())
        if self.report.first_evaluation_seconds is None:
            self._traced_since = time.perf_counter()
            self.report.phase("compiling", "evaluation")
        else:
            self.report.phase("evaluating")

    def test_traced(self) -> None:
        """An execution of the evaluation has returned."""
        if self.report.first_evaluation_seconds is None:
            self.report.first_evaluation_seconds = time.perf_counter() - self._traced_since
            self.report.phase("evaluating")

    def tests_end(self) -> None:
        self.test_traced()
        self.report.phase("training")

    def epoch_ends(self, epoch: int, metrics: dict[str, float]) -> None:
        if self._executions == 1:
            self._first_done()
        self.report.clock.pause(time.perf_counter())
        self._count(epoch)
        self._pulse({name: value for name, value in metrics.items() if not name.startswith("val_")})
        self.report.epoch_done(epoch + 1, self.step, metrics, time.monotonic() - self._epoch_began)

    def _count(self, epoch: int) -> None:
        """How many steps an epoch has is known at the end of the first, at the latest."""
        if not self.per_epoch:
            self.per_epoch = self.ended + 1
            self._steps(self.per_epoch * self.epochs, self.report.plan.global_batch_size)
        self.step = epoch * int(self.per_epoch) + self.ended + 1

    def _ask_to_stop(self) -> None:
        """`gputui stop`: Keras ends the fit after the step that runs."""
        self._stopping = True

    def finish(self) -> None:
        self._end("stopped" if self._stopping else "ok", 0)

    def gone(self) -> None:
        """Keras has not said that the fit is over, and it is no longer there."""
        self._end("stopped", 0) if self._stopping else self._end("error", 1, INTERRUPTED)

    def _end(self, outcome: str, returncode: int, error: dict[str, str] | None = None) -> None:
        """Once, by the fit or by whoever sees first that it is gone; the lock stays taken."""
        if self._finishing.acquire(blocking=False):
            self.report.finish(outcome, returncode, error)
            self._life.end()
            self.report.writer.close()


def _preset(name: str, model: keras.Model, params: dict[str, Any], batch_size: int | None) -> str:
    """What is known of the fit in the words of options; nothing that is not known."""
    script = Path(sys.argv[0]).name or "python"
    known: dict[str, Any] = {
        "schema_version": 1,
        "description": f"{name}: model.fit in {script}, looked at by Monitor",
        "precision": {"policy": keras.mixed_precision.global_policy().name},
        "compile": {"xla": bool(model.jit_compile), "steps_per_execution": int(model.steps_per_execution)},
        "train": {"epochs": int(params.get("epochs") or 1)},
    }
    if batch_size:
        replicas = int(model.distribute_strategy.num_replicas_in_sync)
        known["input"] = {"batch_size": max(1, batch_size // replicas)}
    return yaml.safe_dump(known, sort_keys=False, default_flow_style=None, allow_unicode=True)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}


def _devices() -> Devices:
    """What TensorFlow trains on; fit has opened the devices."""
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return Devices(kind, tuple(device.name for device in tf.config.list_logical_devices(kind)))
