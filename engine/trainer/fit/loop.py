"""The training loop around `model.fit`: executions, stops, checkpoints, looks at the model's health, the profile.

Reads like the run: fit calls `_execute` for each execution; between two of them everything else happens, rarely.
No per-step device synchronisation and no per-step Python beyond a mark of the clock.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import keras
import tensorflow as tf

from ... import measuring
from ...files import disk
from ...options import Options
from ..checkpoint.checkpoints import Checkpoints
from ..checkpoint.saver import CheckpointSaver
from ..common.epoch_callbacks import EpochCallbacks
from ..common.faults import TrainerError
from ..common.step_logs import floats
from ..common.stopping import StopSwitch
from ..data.batches import Batches
from ..data.stages import StageMeter, StageWatch
from ..measure.clock import WINDOW_SECONDS, Spent, StepClock, warmup_steps
from ..measure.first_times import FirstTimes
from ..measure.health import Health
from ..measure.profile import Profiler
from ..measure.run_report import Moment, Plan, RunReport
from ..measure.step_parts import StepParts
from ..setup.devices import Devices, peak_bytes
from . import train_function
from .fit_data import FitData

if TYPE_CHECKING:
    from ..own.building import Own

PULSE_SECONDS = 0.25
SLOW_PULSE_SECONDS = 1.0
SLOW_AFTER_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class _Measured(Exception):
    """What run.measure_seconds asks for has been measured."""


class TrainingLoop:
    """One training of a built and compiled model, from any step to the last."""

    def __init__(
        self,
        options: Options,
        model: keras.Model,
        pipeline: Batches,
        devices: Devices,
        report: RunReport,
        checkpoints: Checkpoints,
        stop: StopSwitch,
        own: Own | None = None,
    ) -> None:
        self.options, self.model, self.pipeline, self.devices = options, model, pipeline, devices
        self.report, self.checkpoints, self.stop, self.own = report, checkpoints, stop, own
        self._saver = CheckpointSaver(checkpoints, report)
        self.steps_per_epoch = options.train.steps_per_epoch or pipeline.batches_per_pass
        self.steps = self.steps_per_epoch * options.train.epochs
        self.step = 0
        self.health = Health(model, options.train.nan_check_steps)
        self.profiler = Profiler(report.run.file("profile"), options.run.profile_steps, self._no_profile)
        self.data = FitData(options, model.distribute_strategy)
        self._on_gpu = devices.kind == "GPU"
        self._parts = StepParts(options.train.deterministic, self._on_gpu)
        self._first = FirstTimes(report, pipeline, options.compile.xla)
        self._stages = StageWatch(StageMeter(pipeline.stages(), pipeline.replicas), report.writer.emit)
        self._measure_seconds = options.run.measure_seconds
        function = train_function.training(model, self._parts.clock)
        self._run_steps: Callable[[Any, Any], dict[str, Any]] = function
        self._trace_steps = function.get_concrete_function
        self._traces = function.experimental_get_tracing_count
        tests = train_function.testing(model)
        self._run_tests: Callable[[Any, Any], dict[str, Any]] = tests
        self._trace_tests = tests.get_concrete_function
        self._tests_traced = False
        self._run_their_test = train_function.testing_one(model)
        self._sizes_differ = pipeline.replicas > 1 and pipeline.smaller_last_batch
        self._restore_from: int | None = None
        self._resumed = False
        self._checkpoint_due = False
        self._tests_left = 0  # steps of the run's own evaluation
        self._untold: dict[str, float] | None = None  # figures of an epoch that has ended, while it is evaluated
        self._next_pulse = self._next_memory = 0.0
        self._epoch_began = time.monotonic()
        self._metrics: dict[str, float] = {}
        self._counts: dict[int, Any] = {}
        self._iterator: Any = None
        model.train_function = self._execute
        model.test_function = self._evaluate

    def run(self, resume_at: int | None) -> None:
        """Train to the end; raises StopRequested, TrainerError or what TensorFlow raises."""
        first = self.own.pipeline.fit.initial_epoch * self.steps_per_epoch if self.own else 0
        self.step = first if resume_at is None else resume_at
        self._restore_from, self._resumed = resume_at, resume_at is not None
        left = self.steps - self.step
        self.report.clock = StepClock(self._warmup(left), math.inf if self._on_gpu else WINDOW_SECONDS)
        self.report.plan = Plan(self.options.train.epochs, self.steps, self.pipeline.global_batch_size)
        self.health.begin(self.step)
        with contextlib.suppress(_Measured):
            self._fit_to_the_end(self.own.callbacks_of(self) if self.own else EpochCallbacks(self))
        self.profiler.close()

    def _warmup(self, steps: int) -> int:
        """Steps left out of the figures; where a time is measured, the pass that fills the cache is among them."""
        wanted, least = self.options.input, warmup_steps(steps)
        fills = self._measure_seconds is not None and wanted.cache != "off" and not wanted.one_batch
        return max(least, self.pipeline.batches_per_pass) if fills else least

    def _fit_to_the_end(self, callbacks: keras.callbacks.CallbackList) -> None:
        self.model.stop_training = False
        while self.step < self.steps and not self.model.stop_training:
            # A resumed epoch is a fit of its own, as long as what is left of the epoch.
            epoch, done = divmod(self.step, self.steps_per_epoch)
            self._fit(callbacks, epoch, epoch + 1 if done else self.options.train.epochs, self.steps_per_epoch - done)

    def leave(self) -> None:
        """Before the last step: say where it stands, and write a checkpoint where checkpoints are on."""
        self.profiler.close()
        self.report.pulse(self._moment(self._metrics))
        self.report.memory(peak_bytes(self.devices))
        if self._untold:  # stopped in the evaluation, which is not made up for
            epoch, seconds = self.step // self.steps_per_epoch, time.monotonic() - self._epoch_began
            self.report.epoch_done(epoch, self.step, self._untold, seconds)
        if self.options.run.checkpoint != "off":
            self.save()

    def _fit(self, callbacks: keras.callbacks.CallbackList, first: int, beyond: int, steps: int) -> None:
        with self._more_to_come() if beyond < self.options.train.epochs else contextlib.nullcontext():
            self._fit_epochs(callbacks, first, beyond, steps)

    @contextlib.contextmanager
    def _more_to_come(self) -> Iterator[None]:
        """The end of this fit is not that of the training, at which Keras replaces weights by their moving average."""
        optimizer = self.model.optimizer
        finalize = optimizer.finalize_variable_values
        optimizer.finalize_variable_values = lambda weights: finalize(weights) if self.model.stop_training else None
        try:
            yield
        finally:
            del optimizer.finalize_variable_values

    def _fit_epochs(self, callbacks: keras.callbacks.CallbackList, first: int, beyond: int, steps: int) -> None:
        validation_batches = self.pipeline.validation_batches
        self.model.fit(
            self.data.training(self.pipeline.stream(self.step)),
            initial_epoch=first,
            epochs=beyond,
            steps_per_epoch=steps,
            validation_data=self.data.validation(self.pipeline.validation()) if validation_batches else None,
            validation_steps=validation_batches or None,
            validation_freq=self.own.pipeline.fit.validation_freq if self.own else 1,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )

    # ---- between executions -------------------------------------------------------------------

    def _execute(self, iterator: Any) -> Any:
        """What fit calls as its train function."""
        if self._on_gpu and not self.report.warm:
            self._parts.wait_for_device()  # what is measured begins with the device idle
        now = time.perf_counter()
        if self.stop.reason:
            self.report.clock.pause(now)
            self.stop.check()
        if self._measure_seconds is not None and self._enough(now, self._measure_seconds):
            self._end_measured()
        in_epoch = self.step % self.steps_per_epoch
        count = min(self.options.compile.steps_per_execution, self.steps_per_epoch - in_epoch)
        if self.profiler.begins(self.step + 1, count):
            self._stand_still()
            self.profiler.start()
            now = time.perf_counter()
        compiles = self._first.meets_smaller_batch(self.step, count) and self.report.first_step_seconds is not None
        if compiles:
            self._stand_still()
        else:
            self.report.clock.mark(now, count)
        self.profiler.begin_step(self.step + 1)
        if self.report.clock.warm and not self.report.warm:
            self.report.begin_measuring(self._spent(now))
        if self.report.first_step_seconds is None:
            logs = self._first_execution(iterator, count, now)
        elif compiles:
            logs = self._compile_smaller_batch(iterator, count)
        else:
            self._parts.before()
            logs = self._run(iterator, count)
        self.step += count
        if self.health.every is not None and self.health.due(self.step):
            self._look({})
        if now >= self._next_pulse:
            self._pulse(iterator)
        if self.profiler.ends(self.step):
            self._stand_still()
            self.profiler.close()
        if self.step % self.steps_per_epoch == 0:
            self._stand_still()  # before it evaluates, Keras drops the last evaluation's data: up to a second
        self._checkpoint_due = self._is_checkpoint_due(count)
        return logs

    def _run(self, iterator: Any, count: int) -> Any:
        """The steps of an execution, in one graph.

        Replicas exchange gradients of embeddings by their size, which may not change within a graph's run: there a
        smaller last batch of a pass is a run of its own.
        """
        logs: Any = {}
        for part in self._same_size(count) if self._sizes_differ else (count,):
            logs = self._run_steps(iterator, self._count(part))
            self._parts.after(part, logs)
        return logs

    def _same_size(self, count: int) -> Iterator[int]:
        step, beyond, batches = self.step, self.step + count, self.pipeline.batches_per_pass
        while step < beyond:
            before_last = batches - 1 - step % batches
            part = min(beyond - step, before_last or 1)
            yield part
            step += part

    def pause(self) -> None:
        """No execution follows directly: the time until the next one is not the steps'."""
        self.report.clock.pause(time.perf_counter())
        self.profiler.end_step()

    def _stand_still(self) -> None:
        """What follows is no step's time, and the device has done all that it was given."""
        self._parts.wait_for_device()
        self.pause()

    def _enough(self, now: float, asked: float) -> bool:
        clock = self.report.clock
        return measuring.enough(clock.measured_until(now), clock.measured_steps, asked)

    def _end_measured(self) -> NoReturn:
        """All that was asked for has been measured: what is still on the device belongs to it."""
        self._metrics = self._parts.wait_for_device()
        self.pause()
        self.leave()
        raise _Measured

    def _first_execution(self, iterator: Any, count: int, began: float) -> Any:
        self.report.phase("compiling", "XLA" if self.options.compile.xla else "tracing")
        if self._restore_from is not None:
            # A user's model that makes its variables in its first step: they have to be there.
            self._look_at_step(self._trace_steps(iterator, self._count(count)))
            self._restore()
        logs = self._run(iterator, count)
        floats(logs)  # wait for it: the first step has ended when its figures are there
        if self.own is not None:
            traced = self._trace_steps(iterator, self._count(count))
            self._look_at_step(traced)
            self._tell_drawing(traced)
        self.stop.at_once = False
        self.report.first_step_done(time.perf_counter() - began)
        self.report.phase("training")
        return logs

    def _compile_smaller_batch(self, iterator: Any, count: int) -> Any:
        """An execution whose time is XLA's, and no step's."""
        self.report.phase("compiling", "smaller batch")
        with self._parts.left_out():
            logs = self._run(iterator, count)
            floats(logs)
        self.report.phase("training")
        return logs

    def _look_at_step(self, traced: Any) -> None:
        """A user's step may write what nobody has listed: its graph tells."""
        if self.own is not None:
            self.checkpoints.state.saw(traced.graph, self._parts.clock.variables)

    def _tell_drawing(self, traced: Any) -> None:
        if self.own is not None and self._resumed:
            self.own.tell_drawing(traced.graph, self.report)

    def _count(self, count: int) -> Any:
        if count not in self._counts:
            with tf.device("/CPU:0"):
                self._counts[count] = tf.constant(count)
        return self._counts[count]

    def _pulse(self, iterator: Any) -> None:
        """A few times a second: read the running metrics, look after the model, say where it stands."""
        self._metrics = metrics = self._parts.wait_for_device()
        self._parts.pulse()
        if self._on_gpu:
            self.report.clock.cut()
        lost = metrics.get("loss") != metrics.get("loss")  # NaN
        if lost or (self.health.every is None and self.health.due(self.step)):
            self._look(metrics)
        now = time.perf_counter()
        young = self.report.elapsed < SLOW_AFTER_SECONDS
        self._next_pulse = now + (PULSE_SECONDS if young else SLOW_PULSE_SECONDS)
        self.report.pulse(self._moment(metrics))
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            self.report.memory(peak_bytes(self.devices))
        # Kept until the process ends, which is at once then: TensorFlow's tuning thread of an iterator that is given up
        # may sleep on, for up to a minute, and be waited for (seen as 19 and 49 s).
        self._iterator = iterator
        self._stages.pulse(self.data.pipeline_iterator(iterator))

    def _moment(self, metrics: dict[str, float]) -> Moment:
        return Moment(
            epoch=(self.step - 1) // self.steps_per_epoch + 1,
            step=self.step,
            spent=self._spent(time.perf_counter()),
            metrics=metrics,
            traces=self._traces(),
            loss_scale=self.health.loss_scale(),
            skipped_steps=self.health.skipped_steps(self.step),
        )

    def _spent(self, now: float) -> Spent:
        return Spent(self.report.clock.measured_until(now), *self._parts.totals())

    def _look(self, metrics: dict[str, float]) -> None:
        """The truth about NaN: dead weights end the run; a NaN loss over living ones is mended."""
        with self._parts.not_python():
            alive = self.health.alive(self.step)
        if not alive:
            message = (
                f"weights are not finite (NaN or infinity), first seen at step {self.step}; "
                f"at step {self.health.last_good_step} they still were"
            )
            hint = "lower train.learning_rate, set train.global_clip_norm=1, or look for NaN in the data"
            if self.options.train.stop_on_nan:
                raise TrainerError("nan", message, hint)
            self.report.warn("nan", message, hint, "train.stop_on_nan")
        elif metrics.get("loss") != metrics.get("loss"):
            self.report.warn(
                "loss_restarted",
                f"the running loss was NaN at step {self.step} over healthy weights (a step that loss scaling "
                "skipped); it is counted anew from here",
            )
            self.model.reset_metrics()

    def _is_checkpoint_due(self, count: int) -> bool:
        every = self.options.run.checkpoint
        return isinstance(every, int) and self.step // every != (self.step - count) // every

    def execution_ends(self) -> None:
        """After the callbacks, which may change the state; at the end of an epoch the evaluation follows first."""
        if self._checkpoint_due and self.step % self.steps_per_epoch:
            self._checkpoint_due = False
            self.save()

    def save(self) -> None:
        """Write a checkpoint of this very step, unless the model is dead: the older ones are better then."""
        self._look({})
        self.pause()
        self.report.phase("saving", "checkpoint")
        self._saver.save(self.step)
        self.report.phase("training")

    def _no_profile(self, fault: BaseException) -> None:
        where = self.report.run.file("profile")
        self.report.warn("profile", f"{disk.reason(fault)}: {where}: there is no profile", option="run.profile")

    # ---- epochs -------------------------------------------------------------------------------

    def epoch_begins(self) -> None:
        self._epoch_began = time.monotonic()
        if self._restore_from is not None and self.checkpoints.fits(self._restore_from):
            self._restore()

    def _restore(self) -> None:
        """After fit has reset the metrics: the epoch's running figures go on, too."""
        assert self._restore_from is not None
        self.checkpoints.restore(self._restore_from)
        if self.checkpoints.state.begins_anew:
            self.report.warn("begins_anew", self.checkpoints.state.begins_anew)
        self.health.begin(self._restore_from)
        if self._restore_from % self.steps_per_epoch == 0:
            self.model.reset_metrics()  # those of the epoch before, or of its evaluation
        self._restore_from = None

    def epoch_ends(self, epoch: int, logs: dict[str, Any]) -> None:
        metrics, self._untold = floats(logs), None
        self._look(metrics)
        self.report.pulse(self._moment({k: v for k, v in metrics.items() if not k.startswith("val_")}))
        self.report.memory(peak_bytes(self.devices))
        self.report.epoch_done(epoch + 1, self.step, metrics, time.monotonic() - self._epoch_began)
        if self._checkpoint_due or self.options.run.checkpoint == "epoch":
            self._checkpoint_due = False
            self.save()

    def tests_begin(self) -> None:
        self.pause()
        self._untold = self._parts.wait_for_device() if self.step % self.steps_per_epoch == 0 else None
        self._first.tests_begin()
        self._tests_left = self.pipeline.validation_batches

    def tests_end(self) -> None:
        self._tests_left = 0
        self.report.phase("training")

    def _evaluate(self, iterator: Any) -> Any:
        """What evaluate calls as its test function; a stop does not wait for the rest of the evaluation."""
        self.stop.check()
        if not self._tests_left:
            return self._evaluate_theirs(iterator)
        count = min(self.options.compile.steps_per_execution, self._tests_left)
        self._tests_left -= count
        compiles = self._first.test_begins(self._tests_left)
        logs = self._run_tests(iterator, self._count(count))
        if compiles:
            floats(logs)  # wait for it
            self._first.test_ended()
        if self.own is not None and not self._tests_traced:
            self._tests_traced = True
            self._tell_drawing(self._trace_tests(iterator, self._count(count)))
        return logs

    def _evaluate_theirs(self, iterator: Any) -> Any:
        """A user's callback evaluates on data of its own, of which nobody knows how many batches are left."""
        logs = self._run_their_test(next(iterator))
        for data in itertools.islice(iterator, self.options.compile.steps_per_execution - 1):
            logs = self._run_their_test(data)
        return logs
