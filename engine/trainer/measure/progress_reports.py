"""Pulses: a few times a second a training reports its progress and the loss of its last steps, and its memory."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from .run_figures import Moment
from .run_report import RunReport

PULSE_SECONDS = 0.25
SLOW_PULSE_SECONDS = 1.0
SLOW_AFTER_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class Pulses:
    """Decides when the next pulse is due, and writes its events to `report`: the progress, and the memory of the
    devices.

    With `slows_down`, there are fewer pulses after the first SLOW_AFTER_SECONDS of the run. With `always`, one is due
    after each execution.
    """

    def __init__(self, report: RunReport, device_names: Sequence[str], slows_down: bool, always: bool = False) -> None:
        self._report, self._device_names = report, device_names
        self._young_seconds = SLOW_AFTER_SECONDS if slows_down else math.inf
        self._next_pulse = self._next_memory = 0.0
        self._always = always

    def due(self, now: float) -> bool:
        return self._always or now >= self._next_pulse

    def pulse(self, moment: Moment) -> None:
        """Write the progress, and the memory if it is due, and plan the next pulse."""
        now = time.perf_counter()
        young = self._report.elapsed < self._young_seconds
        self._next_pulse = now + (PULSE_SECONDS if young else SLOW_PULSE_SECONDS)
        self._report.pulse(moment)
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            self._report.memory(peak_bytes(self._device_names))

    def first_step_done(self) -> None:
        """Write the memory of the first step, in which cuDNN tries its algorithms, and reset the memory peaks of the
        GPUs.
        """
        on_gpus = [name for name in self._device_names if "GPU:" in name]
        self._report.memory(peak_bytes(on_gpus), first_step=True)
        for name in on_gpus:
            with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
                tf.config.experimental.reset_memory_stats(_short(name))

    def out_of_turn(self, moment: Moment) -> None:
        """Write progress and memory now, even if no pulse is due, because an epoch or the training has ended."""
        self._report.pulse(moment)
        self._report.memory(peak_bytes(self._device_names))


def peak_bytes(device_names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the current and peak bytes of each device (`current_bytes`, `peak_bytes`) by its name, as TensorFlow
    counts them.

    Devices without such counts are left out.
    """
    devices = {}
    for name in device_names:
        short = _short(name)
        try:
            info = tf.config.experimental.get_memory_info(short)
        except (ValueError, RuntimeError, tf.errors.OpError):
            continue
        if info["peak"]:  # the CPU's allocator does not count small tensors: 0 means that nothing was counted
            devices[short] = {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"])}
    return devices


def _short(name: str) -> str:
    """Return the name of a device in the form that TensorFlow's functions about memory take."""
    return name.split("device:")[-1]


class _Sums(NamedTuple):
    """The sum of the losses of all samples since Keras began to count, and the sum of the samples' weights."""

    loss: float = 0.0
    weight: float = 0.0


class LossWindow:
    """The mean loss of the last steps, from the running sum that Keras keeps for its mean over the epoch.

    A window is the steps since the last reading. It reads two numbers of the device, and only after the device has
    finished its work. With several replicas the sums are those of this process's replicas. A model without such a
    running mean has no window.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._read = _Sums()
        self._last: float | None = None  # the window before an evaluation
        self._used_otherwise = False  # the sums hold earlier steps, or steps of an evaluation

    def begin(self, within_epoch: bool) -> None:
        """To be called when the training begins. If it begins within an epoch (`within_epoch`), the sums may contain
        earlier steps.
        """
        self._used_otherwise = within_epoch

    def take(self) -> float | None:
        """Return the mean loss over the steps since the last call. None if there was no step, or if the sums contain
        other steps or an evaluation.
        """
        now = _sums(self._model)
        if now is None:
            return None
        before = self._read if now.weight >= self._read.weight else _Sums()  # else Keras has reset the sums
        usable = now.weight > before.weight and not self._used_otherwise
        self._read, self._used_otherwise = now, False
        return (now.loss - before.loss) / (now.weight - before.weight) if usable else None

    def evaluation_begins(self) -> None:
        """To be called before an evaluation, which uses the same sums. The mean of the steps up to now is kept for
        `end_epoch`.
        """
        self._last, self._used_otherwise = self.take(), True

    def end_epoch(self) -> float | None:
        """Return the mean loss of the last steps of the epoch. None as in `take`. Keras begins the next epoch with
        empty sums.
        """
        last = self._last if self._used_otherwise else self.take()
        self._read, self._last, self._used_otherwise = _Sums(), None, False
        return last


class SampleCount:
    """The number of samples that a fit of Keras' own has trained on, from the weights of its running loss.

    Keras' own step adds the samples of each batch to them. Of a step of the user's, each step counts
    `samples_per_step`, None if they are unknown.
    """

    def __init__(self, model: keras.Model, samples_per_step: float | None) -> None:
        self._model, self._samples_per_step = model, samples_per_step
        own_step = type(model).train_step is not keras.Model.train_step or "train_step" in vars(model)
        self._counts, self._evaluated = not own_step, False
        self._before, self._total, self._step = 0.0, 0.0, 0

    def epoch_begins(self) -> None:
        """To be called before the first step of an epoch. The sums may contain the samples of an evaluation."""
        self._before, self._evaluated = self._weight(), False

    def evaluation_begins(self, step: int) -> None:
        """To be called before an evaluation, which uses the same sums until the next epoch begins."""
        self.take(step)
        self._evaluated = True

    def take(self, step: int) -> int | None:
        """Return the number of samples of the `step` steps up to now. None if it is unknown."""
        if not self._counts:
            self._total += (self._samples_per_step or 0.0) * (step - self._step)
        elif not self._evaluated:
            before, self._before = self._before, self._weight()
            self._total += self._before - before
        self._step = step
        return round(self._total) if self._total else None

    def _weight(self) -> float:
        sums = _sums(self._model) if self._counts else None
        self._counts = sums is not None
        return sums.weight if sums else 0.0


def _sums(model: keras.Model) -> _Sums | None:
    tracker = next((metric for metric in model.metrics if metric.name == "loss"), None)
    if not isinstance(tracker, keras.metrics.Mean):
        return None
    return _Sums(_total(tracker.total), _total(tracker.count))


def _total(variable: Any) -> float:
    """Return the sum of a variable over the replicas of this process. An aggregate over all replicas would need all
    processes at once.
    """
    value = variable.value
    return float(sum(part.numpy() for part in getattr(value, "values", [value])))
