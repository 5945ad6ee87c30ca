"""`Monitor`, a Keras callback: makes any model.fit in any script a run that gputui's viewers can follow. The fit is
not changed. The script's process is engine and trainer of its run. Without a result it counts as crashed when it
ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import yaml

from ... import plan, runs
from ...files.writing import write_atomically
from ...finding import Finding
from ...job import environment_variables, machine_gpus, this_machine
from ...notify import sending
from ...options import OPTIONS
from ...options.own_code import SCRIPT
from ...runs import Run, events
from ...runs.events import EVENTS_FILE, TELEMETRY_FILE
from ...runs.parsing import EventWriter
from ...system import locks, stop_signals
from ...system.identity import Place, Process
from ...system.locks import ENGINE_LOCK
from ...system.run_clock import RunClock
from ...telemetry import resource_limits
from ...telemetry.sampler import Sampler
from ..common import versions
from ..common.logs import floats
from ..common.model_facts import loss_of, present_rate
from ..common.versions import BACKEND, TENSORFLOW, current_iterator, ended_step
from ..common.versions import tensorflow as tf
from ..data.stage_times import StageMeter, StageWatch
from ..measure.progress_reports import FirstEvaluation, LossWindow, Pulses, SampleCount
from ..measure.run_report import Moment, Plan, RunReport
from ..setup import environment
from ..setup.devices import Devices, chips_too_old, identify, unseen

HEARTBEAT_SECONDS = 1.0


class Life:
    """Keeps the status of the run, takes readings, and handles the stop signals while `fit` runs. `stop` asks the
    fit to stop, and `gone` is called if the fit has ended without a report.
    """

    def __init__(
        self,
        run: Run,
        sample_seconds: float,
        fit: Fit,
        stop: Callable[[], None],
        gone: Callable[[], None],
        clock: RunClock,
    ) -> None:
        self._run, self._fit, self._stop, self._gone = run, fit, stop, gone
        self._me = Process.current()
        self._lock = locks.take(run.file(ENGINE_LOCK))
        self._telemetry = EventWriter(run.file(TELEMETRY_FILE), run.id, clock)
        self._sampler = Sampler(self._telemetry, os.getpid(), sample_seconds)
        self._done = threading.Event()
        self._asked_at, self._by_person, self._listens = 0.0, 0, False
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def begin(self) -> None:
        """Begin with the thread that notices the end of the fit: an interruption may come at any time after it."""
        self._heart.start()
        self._write(alive=True)
        self._sampler.start()
        self._listens = self._listen()

    def _listen(self) -> bool:
        """Handle the stop signals in the main thread, unless the script has handlers that no ended fit has left."""
        present = signal.getsignal(signal.SIGTERM)
        left = getattr(present, "__self__", None)
        free = present == signal.SIG_DFL or (isinstance(left, Life) and not left.needed)
        if not free or threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(stop_signals.BY_PERSON) in (signal.SIG_DFL, getattr(left, "_on_person", None)):
            signal.signal(stop_signals.BY_PERSON, self._on_person)
        return True

    @property
    def needed(self) -> bool:
        return not self._done.is_set() and self._fit.runs()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        """Ask the fit to stop. After stop_signals.GRACE_SECONDS, or without a fit, end the script as the signal
        would. Schedulers may send it several times.
        """
        self._asked_at = self._asked_at or time.monotonic()
        if self.needed and time.monotonic() - self._asked_at < stop_signals.GRACE_SECONDS:
            self._stop()
        else:
            self._end_script()

    def _on_person(self, _number: int, _frame: Any) -> None:
        # SIGTERM comes with the first one.
        self._by_person += 1
        if self._by_person > 1:
            self._end_script()

    def _end_script(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_SECONDS):
            if not self._fit.runs():
                self._gone()
                return
            self._write(alive=True)

    def _write(self, alive: bool) -> None:
        phase = "training" if alive else "ended"
        status: dict[str, Any] = {"phase": phase, "heartbeat": time.time(), "stop_requests": 0}
        if alive:
            status |= Place.here().as_fields() | self._me.as_fields("engine") | self._me.as_fields("trainer")
        with contextlib.suppress(OSError):  # the disk is full: it is written again with the next heartbeat
            write_atomically(self._run.file("status.json"), json.dumps(status), durable=False)

    def end(self) -> None:
        """End the readings and the status when the fit has ended. The script itself continues."""
        self._done.set()
        self._fit.forget()
        if threading.current_thread() is not self._heart:
            self._heart.join()
        self._sampler.stop()
        self._telemetry.close()
        self._lock.release()
        self._write(alive=False)
        mine = self._listens and signal.getsignal(signal.SIGTERM) == self._on_signal
        if mine and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(stop_signals.BY_PERSON) == self._on_person:
                signal.signal(stop_signals.BY_PERSON, signal.SIG_DFL)


class Fit:
    """A fit, seen from a callback by its frame until `forget`: its batch size, its waits, and whether it still runs."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        fits = (frame for frame, _ in traceback.walk_stack(sys._getframe())
                if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals)  # fmt: skip
        self._frame = next(fits, None)
        self._known = self._frame is not None
        # Read once: each reading of f_locals keeps the iterator of that moment, with its buffers, until the next one.
        self._batches = self._frame.f_locals["epoch_iterator"] if self._frame else None
        self.iterator: Any = None  # over the batches of the present epoch, None if it is not available
        self.waited: float | None = None  # seconds for batches, if known
        self.waited_until = 0, 0.0  # a step and a measured second

    def batch_size(self) -> int | None:
        """Return the batch size, read from fit's iterator: at most the samples of the data, if it is available."""
        data = self._data()
        size = getattr(data, "batch_size", None)
        if not isinstance(size, int) or size < 1:
            return None
        return getattr(data, "partial_batch_size", None) or size if getattr(data, "num_batches", None) == 1 else size

    def samples_per_step(self) -> float | None:
        """Return the mean number of samples of a step of an epoch. None if it is not available."""
        data = self._data()
        size, batches = getattr(data, "batch_size", None), getattr(data, "num_batches", None)
        last = getattr(data, "partial_batch_size", None)
        return size - (size - last) / batches if size and batches and last else size

    def _data(self) -> Any:
        return getattr(self._batches, "data_adapter", None)

    def epoch_begins(self) -> None:
        self.iterator = current_iterator(self._batches) if BACKEND == TENSORFLOW else None

    def add_wait(self, measured: float, step: int) -> None:
        """Count the wait of the steps up to `step`, of which `measured` seconds were measured: their time without the
        gaps between the end of a request for a batch and the next one, which TensorFlow notes.
        """
        if self.iterator is None:
            return
        last, seconds = self.waited_until[0], measured - self.waited_until[1]
        try:
            gaps = [gap / 1e6 for gap in tf.data.experimental.get_model_proto(self.iterator).gap_times][last - step :]
        except (ValueError, AttributeError, TypeError, tf.errors.OpError):  # of several replicas, or no model is kept
            return
        if step > last and seconds > 0 and gaps:
            self.waited_until = step, measured
            self.waited = (self.waited or 0.0) + max(0.0, seconds - (step - last) * sum(gaps) / len(gaps))

    def runs(self) -> bool:
        """Return True if the fit still runs. Always True for a training loop other than Keras' own."""
        present = sys._current_frames().get(self._thread)
        frames = traceback.walk_stack(present) if present is not None else ()
        return not self._known or any(each is self._frame for each, _ in frames)

    def forget(self) -> None:
        """Release the frame, which holds the data of the fit."""
        self._frame = self._batches = self.iterator = None


LOOK = "gputui doctor --deep looks for the reason"


def devices_of(model: keras.Model) -> tuple[Devices, Finding | None]:
    """Return the devices that the fit trains on, and the fault because of which no GPU trains though one could."""
    if BACKEND != TENSORFLOW:
        return _of_variables(model), None
    here, seen = this_machine.read(), len(tf.config.list_physical_devices("GPU"))
    opened = tuple(device.name for device in tf.config.list_logical_devices("GPU"))
    if not opened:
        names = tuple(device.name for device in tf.config.list_logical_devices("CPU"))
        return Devices("CPU", names, shown=len(here.shown), seen=seen), _obstacle(here, seen)
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync > 1:
        places = strategy.extended.worker_devices
    else:  # TensorFlow's default strategy has no such list
        places = [variable.value.device for variable in model.variables]
    used = {str(place).rpartition("device:")[2] for place in places}
    names = tuple(name for name in opened if name.rpartition("device:")[2] in used) or opened[:1]
    gpus, uncertain = identify(names, here, {})
    return Devices("GPU", names, gpus=gpus, uncertain=uncertain, shown=len(here.shown), seen=seen), None


def _of_variables(model: keras.Model) -> Devices:
    """The devices of another backend than TensorFlow, by the texts of those that hold the variables: `cuda:0`."""
    texts = {str(device).lower() for variable in model.variables for device in _devices(variable.value)}
    numbers = {
        number for text in texts if "cuda" in text or "gpu" in text for number in re.findall(r"\d+", text) or "0"
    }
    names = tuple(f"GPU:{number}" for number in sorted(numbers, key=int))
    if not names:
        return Devices("CPU", ("CPU:0",))
    gpus, uncertain = identify(names, this_machine.read(), {})
    return Devices("GPU", names, gpus=gpus, uncertain=uncertain)


def _devices(value: Any) -> Iterable[Any]:
    of_array = getattr(value, "devices", None)  # of JAX, whose arrays may be parted
    return of_array() if callable(of_array) else [getattr(value, "device", "")]


def replicas_of(model: keras.Model) -> int:
    return int(getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1))


def _obstacle(here: machine_gpus.Machine, seen: int) -> Finding | None:
    """Return the reason why no GPU of this machine trains, unless it has none, or the script has hidden them."""
    if here.on_cpu_by_variable or (seen and not tf.config.get_visible_devices("GPU")):
        return None
    if too_old := chips_too_old(here, seen, ()):
        return Finding("warning", "GPU", too_old, "gputui doctor says which chips it supports")
    if here.shown:
        return Finding("warning", "GPU", f"the driver shows {len(here.shown)} GPU(s), and TensorFlow none", LOOK)
    what = unseen(here)
    return here.fault or (Finding("warning", "GPU", what, LOOK) if what else None)


def warn_of_gpus(report: RunReport, present: Devices, obstacle: Finding | None) -> None:
    """Warn if no GPU trains although one could, which may be the script's own choice, or of an uncertain identity."""
    if obstacle is not None:
        report.warn("no_gpu", f"{obstacle.what}: the CPU trains", obstacle.remedy)
    if present.uncertain:
        report.warn("gpus_uncertain", present.uncertain, "GPU readings of this run may be of another GPU")


LONGEST = 300  # characters of a reason
UNKNOWN_STEPS = 1_000_000  # for a fit whose length is known only at the end of its first epoch
INTERRUPTED = {
    "kind": "interrupted",
    "message": "the fit ended early: it was interrupted, or failed",
    "hint": "the script's own output says why",
}


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Return the method, wrapped so that an exception in it ends the watching with a warning, and never the script."""

    @functools.wraps(method)
    def guarded(self: Monitor, *arguments: Any, **named: Any) -> None:
        try:
            method(self, *arguments, **named)
        except Exception as fault:  # noqa: BLE001 - see above
            self._give_up(fault)

    return guarded


def _handed_on(name: str) -> Callable[..., None]:
    """Return a method that the watched fit has, too."""

    def method(self: Monitor, *arguments: Any, **named: Any) -> None:
        if self._watched:
            getattr(self._watched, name)(*arguments, **named)

    return _harmless(method)


class Monitor(keras.callbacks.Callback):
    """model.fit(..., callbacks=[Monitor("name")]): `gputui watch`, `runs` and `compare` see the fit as a run.

    `batch_size` (over all replicas) is read from fit if fit knows it. Give it if the speed in samples is missing. The
    host waits for the device at most every 250 ms. `sample_seconds` is the time between two readings of GPUs and host.
    """

    async_safe = True
    notifies = True  # a notice is sent at the end, as the settings say

    def __init__(self, name: str = "fit", batch_size: int | None = None, sample_seconds: float = 1.0) -> None:
        super().__init__()
        self.name, self.batch_size, self.sample_seconds = name, batch_size, sample_seconds
        self.run: Run | None = None
        self._watched: WatchedFit | None = None

    @_harmless
    def on_train_begin(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.gone()
        fit = Fit()
        batch_size = self.batch_size or fit.batch_size()
        self._watched = self.run = None
        model, params = self.model, self.params or {}
        preset: dict[str, Any] = {
            "schema_version": 1,
            "description": f"{self.name}: model.fit in {Path(sys.argv[0]).name or 'python'}, looked at by Monitor",
            "precision": {"policy": keras.mixed_precision.global_policy().name},
            "compile": {"xla": bool(model.jit_compile), "steps_per_execution": int(model.steps_per_execution)},
            "train": {"epochs": int(params.get("epochs") or 1)},
        }
        if batch_size:
            preset["input"] = {"batch_size": max(1, batch_size // replicas_of(model))}
        text = yaml.safe_dump(preset, sort_keys=False, default_flow_style=None, allow_unicode=True)
        self.run = runs.create(self.name, text)
        self._watched = WatchedFit(self.run, model, params, batch_size, self.sample_seconds, fit, self.notifies)

    def _give_up(self, fault: Exception) -> None:
        """End the watching with the reason `fault`. A run that has not begun is deleted. The fit continues."""
        why = " ".join(f"{type(fault).__name__}: {fault}".split())[:LONGEST]
        if isinstance(fault, OSError):
            why = f"{fault.strerror or fault}: {fault.filename}"
        with contextlib.suppress(Exception):  # stderr may be redirected to the same disk
            print(f"gputui: this fit is not watched: {why}", file=sys.stderr)
        watched, self._watched = self._watched, None
        with contextlib.suppress(Exception):
            if watched:
                watched.failed(why)
            elif self.run is not None:
                shutil.rmtree(self.run.path, ignore_errors=True)  # the run has not begun
                self.run = None

    on_epoch_begin = _handed_on("on_epoch_begin")
    on_train_batch_begin = _handed_on("on_train_batch_begin")
    on_train_batch_end = _handed_on("on_train_batch_end")
    on_test_begin = _handed_on("on_test_begin")
    on_test_batch_begin = _handed_on("on_test_batch_begin")
    on_test_end = _handed_on("on_test_end")
    on_epoch_end = _handed_on("on_epoch_end")

    @_harmless
    def on_train_end(self, logs: Any = None) -> None:
        if self._watched:
            self._watched.finish()
            self._watched = None


class WatchedFit:
    """Writes the run of a fit that Keras itself runs. The host waits for the device only at a pulse."""

    def __init__(
        self,
        run: Run,
        model: keras.Model,
        params: dict[str, Any],
        batch_size: int | None,
        sample_seconds: float,
        fit: Fit,
        notifies: bool,
    ) -> None:
        self._notifies = notifies
        self.model, self.epochs = model, int(params.get("epochs") or 1)
        self.steps_per_epoch: int | None = params.get("steps")  # it may be known only after the first epoch
        self.epoch = self.step = 0
        self.ended = -1  # the last step of the epoch that has ended
        devices, obstacle = devices_of(model)
        self._on_gpu = devices.kind == "GPU" or BACKEND == "jax"  # which works asynchronously on a CPU, too
        self.report = RunReport(run, EventWriter(run.file(EVENTS_FILE), run.id))
        self.report.speed.plan = Plan(self.epochs, self.steps, batch_size or 0)
        self.report.gpus = {gpu.uuid for gpu in devices.gpus if gpu.uuid}
        self._fit = fit
        self._stages = StageWatch(StageMeter((), replicas=1), self.report.writer.emit)
        self._samples = SampleCount(model, batch_size if fit.samples_per_step() is None else fit.samples_per_step())
        self._trained: int | None = None  # samples
        self._clock = self.report.speed.begin(
            plan.warmup_steps(self.steps or UNKNOWN_STEPS),
            self._on_gpu,
            lambda: (fit.waited, None),
            lambda: self._trained,
        )
        names = devices.names if BACKEND == TENSORFLOW else ()  # only TensorFlow is asked for its memory
        self._pulses = Pulses(self.report, names, slows_down=False)
        self._first_evaluation = FirstEvaluation(self.report)
        self._loss = LossWindow(model)
        self._executions, self._began = 0, 0.0  # when the last one began
        self._logs: Any = None  # of the last execution
        self._stopping, self._finishing = False, threading.Lock()
        own = getattr(model, "optimizer", None)
        started = events.Started(
            pid=os.getpid(),
            versions=versions.of_packages(),
            devices=list(devices.names),
            gpus=[gpu.id for gpu in devices.gpus],
            gpu_devices=devices.gpus,
            options=yaml.safe_load(run.file("preset.yaml").read_text(encoding="utf-8")),
            actual={
                "jit_compile": bool(model.jit_compile),
                "optimizer": None if own is None else type(own).__name__,
                **loss_of(model),
                "tf32": BACKEND == TENSORFLOW
                and tf.config.experimental.tensor_float_32_execution_enabled()
                and not environment_variables.tf32_overridden(),
                "environment": environment_variables.recorded(os.environ),
            },
            replicas=replicas_of(model),
            global_batch_size=batch_size or None,
            steps_per_epoch=self.steps_per_epoch,
            epochs=self.epochs,
            steps=self.steps,
            train_samples=None,
            validation_samples=None,
            cpus=resource_limits.usable_cpus(),
            inapplicable=dict.fromkeys((info.key for info in OPTIONS), SCRIPT),
        )
        self.report.writer.emit(started)
        warn_of_gpus(self.report, devices, obstacle)
        environment.warn_of_harmful(
            environment_variables.recorded(os.environ), self.report, devices.kind, len(devices.gpus)
        )
        self._life = Life(run, sample_seconds, fit, self._ask_to_stop, self.gone, self.report.writer.clock)
        self._life.begin()

    @property
    def steps(self) -> int:
        """The number of steps of the whole fit. 0 if unknown."""
        return int(self.steps_per_epoch or 0) * self.epochs

    # ---- called as Keras' callbacks are ---------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        self.report.epoch_begins()
        if self._executions:
            self.report.phase("training")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Record that an execution begins with this step (from 0). Its work may already be on the device."""
        if self._executions == 0:
            self.report.phase("compiling", "XLA" if self.model.jit_compile else "tracing")
        elif self._executions == 1:
            self._first_done()
        self.step = self.epoch * int(self.steps_per_epoch or 0) + batch
        if batch == 0:
            self._samples.epoch_begins()
            self._fit.epoch_begins()
        steps = int(self.model.steps_per_execution)  # Keras counts the last execution of an epoch as a whole one
        if self.steps_per_epoch:
            steps = min(steps, int(self.steps_per_epoch) - batch)
        # Before the first execution that is measured, the host waits for the device.
        measures = self._clock.warm and not self.report.speed.warm
        if measures:
            self._read()
        self._began = time.perf_counter()
        self._clock.mark(self._began, steps)
        if measures:
            self._trained = self._samples.take(self.step)
            self._fit.waited_until = self.step, 0.0
            self.report.speed.begin_measuring(self._clock.spent(self._began), self.step)
        self._executions += 1
        if batch and self._logs and self._pulses.due(self._began):  # before the first step no metric has counted yet
            metrics = self._read()
            self._trained = self._samples.take(self.step)
            self._pulse(metrics, self._loss.take())
        if self._stopping:
            self.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record that an execution has ended. Keras calls this in a thread of its own, and the loop does not wait."""
        self.ended, self._logs = ended_step(batch, int(self.model.steps_per_execution)), logs

    def _first_done(self) -> None:
        if self.report.first_seconds.step is not None:  # at the end of an epoch of one execution
            return
        self._read()  # the first execution has ended when its figures are known
        self._pulses.first_step_done(time.perf_counter() - self._began)

    def _read(self) -> dict[str, float]:
        # The host waits for them. If the training step returns other figures, those. JAX keeps metrics, weights and
        # learning rate outside of the model until this method, which callbacks may call, puts them into it.
        getattr(self.model, "jax_state_sync", lambda: None)()
        metrics, logs = floats(self.model.get_metrics_result()), floats(self._logs)
        return metrics if not logs or logs.keys() == metrics.keys() else logs

    def _pulse(self, metrics: dict[str, float], window_loss: float | None) -> None:
        self._clock.device_was_waited_for()
        now, step = time.perf_counter(), self.step
        if self.report.speed.warm and not self._on_gpu:  # there, the host requests batches ahead of the steps
            self._fit.add_wait(self._clock.measured_until(now), step)
        spent = self._clock.spent(now)
        rate = present_rate(getattr(self.model, "optimizer", None))
        moment = Moment(
            self.epoch + 1, step, spent, metrics, self._trained, window_loss=window_loss, learning_rate=rate
        )
        self._pulses.pulse(moment)
        if self._fit.iterator is not None:
            self._stages.pulse(self._fit.iterator)

    def on_test_begin(self, logs: Any = None) -> None:
        self._clock.pause(time.perf_counter())
        self._samples.evaluation_begins(self.step)
        self._loss.evaluation_begins()
        self._first_evaluation.begins()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        # In the first evaluation, the time up to the second execution is tracing and compiling.
        if batch and not self._first_evaluation.done:
            self._first_evaluation.compiled()

    def on_test_end(self, logs: Any = None) -> None:
        if not self._first_evaluation.done:
            self._first_evaluation.compiled()
        self.report.phase("training")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        metrics = floats(logs)
        if self._executions == 1:
            self._first_done()
        self._clock.pause(time.perf_counter())
        self.steps_per_epoch = int(self.steps_per_epoch or self.ended + 1)
        self.step = epoch * self.steps_per_epoch + min(self.ended + 1, self.steps_per_epoch)
        self._trained = self._samples.take(self.step)
        self.report.speed.plan.steps = self.steps
        training = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        self._pulse(training, self._loss.end_epoch())
        self._fit.iterator = None  # it holds the buffers of its data
        self.report.epoch_done(epoch + 1, self.step, metrics)

    def _ask_to_stop(self) -> None:
        self._stopping = True

    def finish(self) -> None:
        self._end("stopped" if self._stopping else "ok", 0)

    def gone(self) -> None:
        """End the run of a fit that has ended although Keras did not report its end."""
        self._end("stopped", 0) if self._stopping else self._end("error", 1, INTERRUPTED)

    def failed(self, why: str) -> None:
        """End the run with the reason `why`. The fit itself continues, but is not watched any more."""
        error = {"kind": "monitor", "message": f"the fit goes on unwatched: {why}", "hint": "see the script's output"}
        self._end("error", 1, error)

    def _end(self, outcome: events.Outcome, returncode: int, error: dict[str, str] | None = None) -> None:
        """End once: at the end of the fit, or by the first thread that notices that the fit is gone."""
        if self._finishing.acquire(blocking=False):
            self._stages.finish()
            self.report.finish(outcome, returncode, error)
            self._life.end()
            # The fit does not wait for the notice, but the script's end does.
            threading.Thread(target=self._notify, name="notice").start()

    def _notify(self) -> None:
        if self._notifies:
            sending.after_run(self.report.run, self.report.writer.emit)
        self.report.writer.close()
