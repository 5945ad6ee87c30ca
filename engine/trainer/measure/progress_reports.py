"""Pulses: a few times a second a training reports its progress and the loss of its last steps, and its memory."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence

import keras

from ... import units
from ..common.model_facts import as_numpy
from ..common.versions import BACKEND, TENSORFLOW
from ..common.versions import tensorflow as tf
from .run_report import Moment, RunReport

PULSE_SECONDS = 0.25
SLOW_PULSE_SECONDS = 1.0
SLOW_AFTER_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class Pulses:
    """Decides when the next pulse is due, and writes its events: the progress, and the memory of the devices."""

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

    def first_step_done(self, seconds: float) -> None:
        """Write the memory of the first step, in which cuDNN tries its algorithms, and reset the GPUs' memory peaks."""
        self._report.first_step_done(seconds)
        on_gpus = [name for name in self._device_names if "GPU:" in name]
        self._report.memory(peak_bytes(on_gpus), first_step=True)
        for name in on_gpus:
            with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
                tf.config.experimental.reset_memory_stats(_short(name))
        self._report.phase("training")

    def out_of_turn(self, moment: Moment) -> None:
        """Write progress and memory now, even if no pulse is due, because an epoch or the training has ended."""
        self._report.pulse(moment)
        self._report.memory(peak_bytes(self._device_names))


def peak_bytes(device_names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return `current_bytes` and `peak_bytes` of the devices of which TensorFlow counts them, by name."""
    devices = {}
    for short in map(_short, device_names):
        with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
            info = tf.config.experimental.get_memory_info(short)
            if info["peak"]:  # the CPU's allocator does not count small tensors: 0 means that nothing was counted
                devices[short] = {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"])}
    return devices


def _short(name: str) -> str:
    return name.split("device:")[-1]


class LossWindow:
    """The mean loss of the steps since the last reading, from the sum that Keras keeps for its mean over the epoch.
    It reads two numbers of the device, once it has finished its work, and of this process's replicas alone. A model
    without such a running mean has no window.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._loss = self._weight = 0.0  # sums at the last reading
        self._last: float | None = None  # the window before an evaluation
        self._used_otherwise = False  # the sums hold earlier steps, or steps of an evaluation

    def begin(self, within_epoch: bool) -> None:
        """To be called when the training begins. `within_epoch`: the sums may contain earlier steps."""
        self._used_otherwise = within_epoch

    def take(self) -> float | None:
        """Return the mean over the steps since the last call. None without a step, or if the sums contain others."""
        if (sums := _sums(self._model)) is None:
            return None
        loss, weight, before = *sums, (self._loss, self._weight)
        before_loss, before_weight = before if weight >= before[1] else (0.0, 0.0)  # else Keras has reset the sums
        usable = weight > before_weight and not self._used_otherwise
        self._loss, self._weight, self._used_otherwise = loss, weight, False
        return (loss - before_loss) / (weight - before_weight) if usable else None

    def evaluation_begins(self) -> None:
        """To be called before an evaluation, which uses the same sums. The mean up to now is kept for `end_epoch`."""
        self._last, self._used_otherwise = self.take(), True

    def end_epoch(self) -> float | None:
        """Return the mean loss of the epoch's last steps, or None. Keras begins the next epoch with empty sums."""
        last = self._last if self._used_otherwise else self.take()
        self._loss, self._weight, self._last, self._used_otherwise = 0.0, 0.0, None, False
        return last


class SampleCount:
    """The number of samples that a fit of Keras' own has trained on, from the weights of its running loss. Keras'
    own step adds each batch's samples. Of a step of the user's, each counts `samples_per_step`, if known.
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
        return sums[1] if sums else 0.0


def _sums(model: keras.Model) -> tuple[float, float] | None:
    """Of the losses of all samples since Keras began to count, and of the samples' weights, on the replicas of this
    process: an aggregate over all replicas would need all processes at once.
    """
    tracker = next((metric for metric in model.metrics if metric.name == "loss"), None)
    if not isinstance(tracker, keras.metrics.Mean):
        return None
    values = (variable.value for variable in (tracker.total, tracker.count))
    parts = (getattr(value, "values", [value]) if BACKEND == TENSORFLOW else [value] for value in values)
    loss, weight = (float(sum(map(as_numpy, each))) for each in parts)
    return loss, weight


class FirstEvaluation:
    """Reports the tracing and compiling of the first evaluation as a phase, and keeps its time."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._since: float | None = None

    @property
    def done(self) -> bool:
        return self._report.first_seconds.evaluation is not None

    def begins(self) -> None:
        # The first one also makes the iterator over its data, which counts as compiling.
        self._since = None  # of an evaluation that ended before it ran
        if self.done:
            self._report.phase("evaluating")
        else:
            self.compile()

    def compile(self) -> None:
        """Report that compiling begins. Does nothing if it has already begun."""
        if self._since is None:
            self._since = time.perf_counter()
            self._report.phase("compiling", "evaluation")

    def compiled(self) -> None:
        """Report that the compiling has ended, and add its time to the time of the first evaluation."""
        if self._since is not None:
            seconds = time.perf_counter() - self._since
            self._report.first_seconds.evaluation = (self._report.first_seconds.evaluation or 0.0) + seconds
            self._since = None
        self._report.phase("evaluating")


MUCH = 0.05  # of an epoch's time
LEAST_SECONDS = 0.25  # less is noise of a busy machine, and no reason to change anything


class EpochBegins:
    """Compares the first execution of an epoch with the mean of its others, if `held_back` says why batches are not
    made ahead of their epoch. Of the first epoch nothing is used, because the step is traced in it.
    """

    def __init__(self, held_back: str, report: RunReport) -> None:
        self._held_back, self._report = held_back, report
        self._fits = 0
        self._seconds: list[float] = []  # of the executions of an epoch

    def epoch_begins(self) -> None:
        self._fits += 1
        self._seconds = []

    def executed(self, seconds: float, last: bool) -> None:
        """Note the time of an execution. After the `last` one of the second epoch in this process, warn of a wait."""
        if not self._held_back or self._fits != 2:
            return
        self._seconds.append(seconds)
        first, *others = self._seconds
        if not last or not others:
            return
        waited, whole = first - sum(others) / len(others), sum(self._seconds)
        if waited > max(LEAST_SECONDS, MUCH * whole):
            self._report.warn(
                "epoch_waits",
                f"an epoch waits {units.seconds(waited)} for its first batch, {units.share(waited / whole)} of the "
                f"time of its steps: its batches are made only when it begins, because {self._held_back}",
                "if the data follow nothing of the training, set input.across_epochs=true",
            )
