"""The training loop around `model.fit`: what happens in which order, from any step to the last. fit calls `_execute`
for each execution, which is one or several steps in one graph. No step waits for the device, and the only Python
work of a step is a mark of the clock.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ... import plan
from ...runs import part_of_sweep
from ...system.heartbeat import TrainerHeartbeat
from ..checkpoint import object_graph
from ..checkpoint.checkpoints import CheckpointSaver
from ..cluster.exchange import Agreement, Wishes
from ..common.logs import as_keras, floats
from ..common.stopping import StopRequested
from ..common.training_errors import TrainerError
from ..data.batches import full_batch
from ..data.finishing import none_of
from ..data.stages import StageMeter, StageWatch
from ..measure import communication, step_parts
from ..measure.communication import ExchangeTimer
from ..measure.health import Health
from ..measure.profile import Profiler
from ..measure.progress_reports import EpochBegins, FirstTimes, LossWindow, Pulses
from ..measure.run_figures import Moment, Plan
from ..measure.step_parts import StepParts
from . import train_function
from .built_training import Built
from .called_callbacks import CalledCallbacks, EndDue, Restoring
from .epoch_rules import EpochRules
from .model_fit import FitData, ModelFit, more_to_come, refuse_limits
from .train_function import Executions, constant

_NO_STEP = "Keras ended an epoch before its first step: an operation reported the end of its data"
_NO_STEP_HINT = (
    "the end of engine.log may name the operation; compile.xla_cache=false leaves out what XLA kept, "
    "if one of its files is damaged"
)


class _Measured(Exception):
    """Raised if the time of run.measure_seconds has been measured."""


class TrainingLoop:
    """The training of a model that is built and compiled, with everything that happens around its steps."""

    def __init__(self, built: Built) -> None:
        refuse_limits()
        self.built = built
        options, model, pipeline, report = built.options, built.model, built.pipeline, built.report
        self.steps_per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
        self.steps = self.steps_per_epoch * options.train.epochs
        self.step = 0
        self.heartbeat = report.heartbeat
        self.data = FitData(options, model.distribute_strategy, built.devices, pipeline.on_demand)
        self._model_fit = ModelFit(model, built.own, self.data, report)
        self._on_gpu = built.devices.kind == "GPU"
        self.parts = step_parts.step_parts_for(options.train.deterministic, self._on_gpu)
        self._clock = report.speed.clock
        self.profiler = Profiler(report, options.run.profile_steps, model)
        self.executions = Executions(model, pipeline, self.parts, options.train.micro_batches)
        self.watch = Watch(built, self.data, self.parts, self.executions.traces, self.steps_per_epoch)
        self._saver = CheckpointSaver(built.checkpoints, report, options.run.checkpoint)
        ours = self.parts.clock.variables
        self._restoring = Restoring(built, self.watch.health, ours, self.steps_per_epoch)
        self.rules = EpochRules(built)
        self._first = FirstTimes(report, pipeline, built.xla.compiles)
        joined = built.joined
        self.agreement = Agreement(joined.cluster, joined.exchange, built.stop) if joined else None
        self.exchange_timer = ExchangeTimer(model, joined.exchange, report) if joined else None
        self.watch.health.together = joined is not None
        together = options.compile.steps_per_execution
        self._evaluation = Evaluation(
            model, together, self._check_stop, self._first, self._restoring, report.heartbeat, pipeline.device_scale,
            options.train.micro_batches,
        )  # fmt: skip
        model.train_function = self._execute
        self.writes_checkpoints = options.run.checkpoint != "off"
        self._may_execute = False  # callbacks have begun an execution, and no stop may come before it
        self._at_begin: Callable[[], None] | None = None
        self._running: Any = None  # the iterator of the training pipeline
        self._epoch_end = EpochEnd(built, self.data)
        self._begins = EpochBegins(pipeline.held_back if pipeline.apart else "", report)

    # ---- the training as a whole --------------------------------------------------------------

    def run(self, resume_at: int | None) -> None:
        """Train from the checkpoint of step `resume_at`, if given. Raises StopRequested, TrainerError or OpError."""
        pipeline, report = self.built.pipeline, self.built.report
        self.rules.require_figures()
        first = pipeline.fit.initial_epoch * self.steps_per_epoch
        self._is_trial = bool(part_of_sweep.read(report.run).sweep)
        epochs = part_of_sweep.read(report.run).pause_after or self.built.options.train.epochs
        self._pause_at = first + epochs * self.steps_per_epoch
        self.step = first if resume_at is None else resume_at
        callbacks = self._callbacks()
        due = self._restoring.begin(resume_at, callbacks)
        if self.built.own is not None and resume_at is not None:
            pipeline.go_to(self.built.checkpoints.saved_place(resume_at))
        warmup = self._warmup(self.steps - self.step)
        self._clock = report.speed.begin(warmup, self._on_gpu, self.parts.totals, self.parts.timed_samples)
        if self.exchange_timer is not None:
            self.exchange_timer.begin(self.step, warmup)
        report.speed.plan = Plan(self.built.options.train.epochs, self.steps, full_batch(pipeline))
        self.watch.health.begin(self.step)
        self.watch.loss.begin(within_epoch=self.step % self.steps_per_epoch > 0)
        try:
            self._fit_to_the_end(callbacks, due)
            stopped = "early_stop" if self.rules.stopped else "callback"
            report.ended_by = "last_step" if self.step >= self.steps else stopped
        except _Measured:
            report.ended_by = "measured"
        finally:
            pipeline.close()
        self._restoring.training_ends()
        self.watch.finish()
        self.profiler.close()

    def _callbacks(self) -> CalledCallbacks:
        own, model, epochs = self.built.own, self.built.model, self.built.options.train.epochs
        called_too = [*(own.callbacks if own else []), *([self.rules] if self.rules.callbacks else [])]
        called = CalledCallbacks(self, model, epochs, called_too)
        called.attributes, self.built.checkpoints.callbacks = self.built.checkpoints.state.attributes, called.state
        return called

    def _warmup(self, steps: int) -> int:
        # With run.measure_seconds and a cache, the whole first pass is left out, because it fills the cache.
        options, least = self.built.options, plan.warmup_steps(steps)
        caches = options.input.cache != "off" and not options.input.one_batch
        fills = options.run.measure_seconds is not None and caches
        return max(least, self.built.pipeline.batches_per_pass) if fills else least

    def _fit_to_the_end(self, callbacks: CalledCallbacks, due: EndDue) -> None:
        model, epochs = self.built.model, self.built.options.train.epochs
        model.stop_training = False
        if self._restoring.is_due and (due.ended or due.logs is not None or self.step == self.steps):
            self._finish(callbacks, due)
        self._pause_if_due()  # it was killed after the checkpoint of that epoch
        while self.step < self.steps and not model.stop_training:
            # The rest of a resumed epoch is a fit of its own, and so is each epoch whose batches are made apart.
            epoch, done = divmod(self.step, self.steps_per_epoch)
            beyond = epoch + 1 if done or self.built.pipeline.apart else epochs
            before = self.step
            with more_to_come(model) if beyond < epochs else contextlib.nullcontext():
                self._fit(callbacks, epoch, beyond, self.steps_per_epoch - done)
            if self.step == before and not model.stop_training:
                raise TrainerError("input", _NO_STEP, _NO_STEP_HINT)

    def _finish(self, callbacks: CalledCallbacks, due: EndDue) -> None:
        """End an epoch or the training in a fit without a step, which calls all callbacks as at any end."""
        model, beyond = self.built.model, -(-self.step // self.steps_per_epoch)

        def trace() -> Any:
            batches = iter(self.data.training(none_of(self.built.pipeline.batch_spec)))
            count = min(self.built.options.compile.steps_per_execution, self.steps_per_epoch)
            return self.executions.trace(batches, count)

        def at_begin() -> None:
            self._restoring.epoch_begins()
            if self._restoring.is_due:
                self._restoring.first_step_comes(trace)
            model.stop_training = due.ended
            if due.logs is not None:
                self._epoch_end.make_up(callbacks, beyond - 1, due.logs)

        self._at_begin = at_begin
        with more_to_come(model) if beyond < self.built.options.train.epochs else contextlib.nullcontext():
            self._fit(callbacks, beyond, beyond, self.steps_per_epoch)

    def _fit(self, callbacks: CalledCallbacks, first: int, beyond: int, steps: int) -> None:
        pipeline = self.built.pipeline
        self._begins.epoch_begins()
        validation_batches, batches = pipeline.validation_batches, pipeline.stream(self.step)
        if steps and first < beyond:
            pipeline.fit_begins(self.step)
        self._model_fit(
            batches,
            pipeline.validation() if validation_batches else None,
            callbacks,
            initial_epoch=first,
            epochs=beyond,
            steps_per_epoch=steps,
            validation_steps=validation_batches or None,
            validation_freq=pipeline.fit.validation_freq,
            shuffle=False,
            verbose=0,
        )

    def leave(self, metrics: dict[str, float] | None = None) -> None:
        """Report the progress before the training ends early, and write a checkpoint if checkpoints are on."""
        self.profiler.close()
        self.watch.training_ends(self.step, metrics)
        if self.writes_checkpoints:
            self.save()
        elif self._evaluation.epoch_metrics:  # stopped during the evaluation, which no resumed run repeats
            self.built.report.epoch_done(self.step // self.steps_per_epoch, self.step, self._evaluation.epoch_metrics)
        if self.built.own is not None:
            self.built.own.end_iterators((self._running, self._evaluation.running))

    # ---- one execution ------------------------------------------------------------------------

    def _execute(self, iterator: Any) -> Any:
        """Run one execution for Keras' fit, with the batches of `iterator`. Return the logs of its last step."""
        if not isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
            run_one = self.executions.run_one  # a callback has called train_on_batch
            traced = run_one.experimental_get_tracing_count()
            with contextlib.nullcontext() if traced else self._restoring.as_traced("batch"):
                return run_one(next(iterator))
        began = self._now()
        self._running = self.data.pipeline_iterator(iterator)
        if not self._may_execute:
            self._leave_if_it_is_time(began)
        self._may_execute = False
        if self.exchange_timer is not None and self.exchange_timer.due(self.step):
            self._stand_still()
            self.exchange_timer.measure(self.step)
            began = self._now()
        left_of_epoch = self.steps_per_epoch - self.step % self.steps_per_epoch
        count = min(self.built.options.compile.steps_per_execution, left_of_epoch)
        if self.profiler.begins(self.step + 1, count):
            self._stand_still()
            self.profiler.start()
            began = time.perf_counter()
        logs = self._epoch_end.step_logs = self._run(iterator, count, began)
        self.step += count
        self.watch.execution_ran(self.step, began, iterator)
        self._begins.executed(time.perf_counter() - began, last=count == left_of_epoch)
        if self.profiler.ends(self.step):
            self._stand_still()
            self.profiler.close()
        if count == left_of_epoch:
            self._stand_still()  # before evaluating, Keras frees the last evaluation's data: up to a second
        self._saver.execution_ran(self.step, count)
        return logs

    def _now(self) -> float:
        # Before the first measured step, wait until the GPU is idle.
        if self._on_gpu and not self.built.report.speed.warm:
            self.parts.wait_for_device()
        return time.perf_counter()

    def _leave_if_it_is_time(self, now: float) -> None:
        seconds, clock = self.built.options.run.measure_seconds, self._clock
        enough = seconds is not None and plan.enough(clock.measured_until(now), clock.measured_steps, seconds)
        if self.agreement is not None:
            wishes = self.agreement.wishes
            wishes.enough, wishes.check_weights = enough, self.watch.health.wants_check
            enough = self._obeyed(self.agreement.before_execution).enough
        elif self.built.stop.reason:
            self.pause()
            self.built.stop.check()
        if enough:
            self.leave(self._stand_still())  # work that is still on the device belongs to the measured time
            raise _Measured

    def _obeyed(self, exchange: Callable[[], Wishes]) -> Wishes:
        """Return the requests of all workers, and do what they ask. Raises StopRequested if one was asked to stop."""
        try:
            agreed = exchange()
        except StopRequested as request:
            self.pause()
            joined, agreement = self.built.joined, self.agreement
            if not request.engine_of and joined and agreement and agreement.asked_by is not None:
                who = joined.cluster.named(agreement.asked_by)
                self.built.report.warn("peer_stopped", f"{who} stops, as its own run says, and all stop together")
            raise
        if agreed.check_weights:
            self.watch.health.wants_check = False
            self.watch.check_weights(self.step)
        if agreed.end:
            self.built.model.stop_training = True
        return agreed

    def _check_stop(self, of_run: bool) -> None:
        if self.writes_checkpoints and (not of_run or (self._is_trial and self.step in (self._pause_at, self.steps))):
            return
        if self.agreement is None:
            self.built.stop.check()
        else:
            self._obeyed(self.agreement.before_execution)

    def _run(self, iterator: Any, count: int, began: float) -> Any:
        """Run the `count` steps of an execution. One in which something is compiled is timed separately."""
        first = self.built.report.first_seconds.step is None
        compiles = self._first.meets_smaller_batch(self.step, count) and not first
        adds_clock = self.executions.clock_is_due and not first
        if compiles or adds_clock:
            self._stand_still()
        else:
            self._clock.mark(began, count)
        if self.profiler.running:
            self.profiler.begin_step(self.step + 1)
        speed = self.built.report.speed
        if self._clock.warm and not speed.warm:
            speed.begin_measuring(self._clock.spent(began), self.step)
        if first:
            return self._run_first(iterator, count, began)
        if compiles:
            return self._run_smaller_batch(iterator, count)
        if adds_clock:  # the graph is traced meanwhile: the time is left out of the shares of input and Python
            with self.parts.left_out(), self._restoring.as_traced("train"):
                logs = self.executions.run_clock_first(iterator, self.step, count)
                floats(logs)
            return logs
        self.parts.before()
        return self.executions.run(iterator, self.step, count)

    def _run_first(self, iterator: Any, count: int, began: float) -> Any:
        report, trace = self.built.report, functools.partial(self.executions.trace, iterator, count)
        report.phase("compiling", "XLA" if self.built.xla.compiles else "tracing")
        self._restoring.first_step_comes(trace)
        if self.built.own is not None and self.parts.samples and object_graph.draws(trace().graph):
            self.executions.always_with_clock()
        logs = self.executions.run(iterator, self.step, count)
        floats(logs)  # waits for the device: the first step has ended when its figures are known
        self._restoring.first_step_ran(trace)
        self.built.stop.at_once = False
        report.first_step_done(time.perf_counter() - began)
        self.watch.pulses.first_step_done()
        report.phase("training")
        pipeline = self.built.pipeline
        samples = full_batch(pipeline) // pipeline.replicas
        report.speed.transfer_seconds = communication.transfer_seconds(self.data.spec, samples, self.data.gpus)
        return logs

    def _run_smaller_batch(self, iterator: Any, count: int) -> Any:
        # XLA compiles for this size, so the time does not count as time of steps.
        self.built.report.phase("compiling", "smaller batch")
        with self.parts.left_out():
            logs = self.executions.run(iterator, self.step, count)
            floats(logs)
        self.built.report.phase("training")
        return logs

    # ---- called by the callbacks of fit -------------------------------------------------------

    def training_begins(self) -> None:
        """Do what `_finish` asks for, when fit has called on_train_begin of all callbacks."""
        at_begin, self._at_begin = self._at_begin, None
        if at_begin is not None:
            at_begin()

    @property
    def restores_later(self) -> bool:
        """True if the checkpoint is restored only when the first step has been traced."""
        return self._restoring.is_due

    def leave_if_it_is_time(self) -> None:
        """Callbacks that begin an execution once more in a resumed run would count it twice."""
        if not self._may_execute:
            self._leave_if_it_is_time(self._now())
            self._may_execute = True

    def restore_again(self, is_needed: bool) -> None:
        """Restore the checkpoint of this step once more, if that `is_needed` on one of the workers."""
        if self.built.joined is not None:
            is_needed = bool(self.built.joined.exchange.rows([is_needed]).any())
        if is_needed:
            self.built.checkpoints.restore(self.step)

    def end_due(self) -> tuple[bool, dict[str, Any] | None]:
        """Return what has to be done at this moment besides the remaining steps, as the fields of EndDue."""
        ended = bool(self.built.model.stop_training)
        ended |= self.agreement is not None and self.agreement.wishes.end
        return ended, self._epoch_end.due(ended, within_epoch=self.step % self.steps_per_epoch > 0)

    def pause(self) -> None:
        """Interrupt the clock: the time until the next execution does not count as time of steps."""
        self._clock.pause(time.perf_counter())
        self.profiler.end_step()

    def _stand_still(self) -> dict[str, float]:
        metrics = self.parts.wait_for_device()
        self.pause()
        return metrics

    def execution_ends(self) -> None:
        """Write a checkpoint after the callbacks; that of an epoch's end follows its evaluation."""
        if self.agreement is not None and self.built.model.stop_training:
            # By figures of this worker alone: all end together, with the next execution.
            self.built.model.stop_training, self.agreement.wishes.end = False, True
        if self.step % self.steps_per_epoch == 0 and not self.built.model.stop_training:
            with self.heartbeat:
                self.built.pipeline.epoch_trained()
        if self.step % self.steps_per_epoch and self._saver.take_due():
            self.save()

    def epoch_begins(self) -> None:
        if self.agreement is not None:
            self.agreement.soon()
        self.built.report.epochs.begin()
        self._restoring.epoch_begins()

    def evaluation_begins(self) -> None:
        self.pause()
        epoch_ended = self.step % self.steps_per_epoch == 0
        metrics = self._epoch_metrics() if epoch_ended else None
        if self._epoch_end.unfinished is None:
            self._epoch_end.unfinished = self._epoch_end.logs()
        self.watch.loss.evaluation_begins()
        if self.agreement is not None:
            self.agreement.soon()
        self.built.pipeline.evaluation_begins(-(-self.step // self.steps_per_epoch) - 1)
        self._evaluation.begin(self.built.pipeline.validation_batches, metrics)

    def _epoch_metrics(self) -> dict[str, float]:
        # If the step returns figures of its own, those of the last step.
        logs = self.parts.wait_for_device()
        if self._epoch_end.unfinished is not None:  # an interrupted evaluation is repeated
            return floats(self._epoch_end.unfinished)
        metrics = floats(self.built.model.get_metrics_result())
        return metrics if logs.keys() == metrics.keys() else logs

    def evaluation_ends(self) -> None:
        self._evaluation.end()
        self.built.report.phase("training")

    def epoch_ends(self, epoch: int, logs: dict[str, Any]) -> None:
        metrics, self._evaluation.epoch_metrics, self._epoch_end.unfinished = floats(logs), None, None
        self.watch.epoch_ends(self.step, metrics)
        self.built.report.epoch_done(epoch + 1, self.step, metrics)
        self._restoring.epoch_ends()
        if self._saver.take_due(epoch_ends=True):
            self.save()
        self._pause_if_due()
        if self.agreement is not None:  # all end the training if a callback of one worker has ended it
            self.agreement.wishes.end |= bool(self.built.model.stop_training)
            self._obeyed(self.agreement.now)

    def _pause_if_due(self) -> None:
        # A trial of a sweep trains its next steps when it goes on.
        if self._pause_at <= self.step < self.steps and not self.built.model.stop_training:
            self.built.stop.request("stopped")

    def save(self) -> None:
        """Write a checkpoint of this step. With train.stop_on_nan, weights that are NaN raise TrainerError first."""
        if self._restoring.is_due:  # the state is not yet that of this step
            return
        self.watch.health.check(self.step)
        self.pause()
        if self.built.own is not None:
            self.built.own.record_code(self.built.report.run)
        if self._saver.save(self.step):
            self.rules.checkpoint_written()


class EpochEnd:
    """Knows the figures of the epoch's steps until its end is complete."""

    def __init__(self, built: Built, data: FitData) -> None:
        self._built, self._data = built, data
        self.step_logs: Any = {}  # of the last step
        self.unfinished: dict[str, Any] | None = None  # logs of an epoch whose evaluation or on_epoch_end is to follow

    def logs(self) -> dict[str, Any]:
        """Return the logs of the steps of the epoch up to now, as Keras' fit gives them to callbacks."""
        results = self._built.model.get_metrics_result()
        return as_keras(results if self.step_logs.keys() == results.keys() else self.step_logs)

    def due(self, ended: bool, within_epoch: bool) -> dict[str, Any] | None:
        """Return the logs of an epoch whose end has to follow, for a checkpoint. `ended`: by a callback."""
        return self.logs() if self.unfinished is None and ended and within_epoch else self.unfinished

    def make_up(self, callbacks: CalledCallbacks, epoch: int, logs: dict[str, Any]) -> None:
        """Evaluate the model if that follows the epoch (from 0), and call on_epoch_end with `logs` of its steps."""
        pipeline = self._built.pipeline
        self.unfinished = logs
        if pipeline.validation_batches and pipeline.fit.evaluates_after(epoch):
            batches, steps = self._data.validation(pipeline.validation()), pipeline.validation_batches
            values = self._built.model.evaluate(batches, steps=steps, callbacks=callbacks, return_dict=True, verbose=0)
            logs = {**logs, **{f"val_{name}": value for name, value in values.items()}}
        callbacks.on_epoch_end(epoch, logs)


BEAT_SECONDS = 5.0


class Evaluation:
    """Runs the model's test function, for the run's own evaluations and for those of a user's callbacks.
    `check_stop` raises StopRequested, with True in the run's own. `scale` is the factor for inputs that are bytes.
    """

    def __init__(
        self,
        model: keras.Model,
        steps_per_execution: int,
        check_stop: Callable[[bool], object],
        first: FirstTimes,
        restoring: Restoring,
        heartbeat: TrainerHeartbeat,
        scale: float | None,
        micro_batches: int,
    ) -> None:
        self._steps_per_execution, self._check_stop = steps_per_execution, check_stop
        self._first, self._restoring = first, restoring
        self._heartbeat, self._next_beat = heartbeat, 0.0
        function = train_function.testing(model, scale, micro_batches)
        self._run: train_function.Execution = function
        self._trace = function.get_concrete_function
        self._run_one = train_function.one(model, micro_batches, trains=False)
        self._left = 0  # steps of the run's own evaluation
        self._traced = set[bool]()  # whether for the run's own, or for a callback's
        self.running: Any = None  # its iterator
        self.epoch_metrics: dict[str, float] | None = (
            None  # figures of the epoch that is evaluated, until they are reported
        )
        model.test_function = self._execute

    def begin(self, steps: int, epoch_metrics: dict[str, float] | None) -> None:
        """Begin the run's own evaluation of `steps` steps, after an epoch with these metrics, if there was one."""
        self.epoch_metrics = epoch_metrics
        self._first.evaluation.begins()
        self._left = steps
        self._next_beat = time.monotonic() + BEAT_SECONDS

    def end(self) -> None:
        self._left = 0

    def _execute(self, iterator: Any) -> Any:
        """Run one execution of the test function for Keras' evaluate, and return its logs."""
        own = self._left > 0
        self.running = iterator if own else None
        self._check_stop(own)
        traces, self._traced = own not in self._traced, self._traced | {own}
        with self._restoring.as_traced("test") if traces else contextlib.nullcontext():
            if own:
                return self._execute_own(iterator)
            # The number of remaining batches is unknown, so they are drawn one by one.
            logs = self._run_one(next(iterator))
            for data in itertools.islice(iterator, self._steps_per_execution - 1):
                logs = self._run_one(data)
            return logs

    def _execute_own(self, iterator: Any) -> Any:
        count = min(self._steps_per_execution, self._left)
        self._left -= count
        compiles = self._first.test_begins(self._left)
        logs, _ = self._run(iterator, constant(count))
        if compiles:
            floats(logs)  # waits for the device
            self._first.evaluation.compiled()
        elif time.monotonic() >= self._next_beat:
            floats(logs)
            self._heartbeat.beat()
            self._next_beat = time.monotonic() + BEAT_SECONDS
        self._restoring.first_test_ran(functools.partial(self._trace, iterator, constant(count)))
        return logs


class Watch:
    """Watches health, progress, memory and input stages, at pulses, a few times a second: the host waits for the
    device, then figures are read and reported. Between pulses it costs little.
    """

    def __init__(
        self, built: Built, data: FitData, parts: StepParts, traces: Callable[[], int], steps_per_epoch: int
    ) -> None:
        options, pipeline, report = built.options, built.pipeline, built.report
        self._data, self._parts, self._traces, self._steps_per_epoch = data, parts, traces, steps_per_epoch
        self._speed = report.speed
        train = options.train
        self.health = Health(built.model, train.nan_check_steps, train.stop_on_nan, report, parts.not_python)
        self.health.own_optimizer = built.own is not None and "train.learning_rate" in built.own.inapplicable
        self.loss = LossWindow(built.model)
        each = train.schedule == "ramp"  # a range test needs the loss at each rate
        self.pulses = Pulses(report, built.devices.names, slows_down=True, always=each)
        functions = built.own.stage_functions() if built.own else {}
        self._stages = StageWatch(StageMeter(pipeline.stages(), pipeline.replicas_here, functions), report.writer.emit)
        self._metrics: dict[str, float] = {}  # metrics at the last pulse

    def execution_ran(self, step: int, began: float, iterator: Any) -> None:
        self.health.check_by_steps(step)
        if self.pulses.due(began):
            self._pulse(step, iterator)

    def _pulse(self, step: int, iterator: Any) -> None:
        self._metrics = self._parts.wait_for_device()
        self._parts.pulse()
        self._speed.clock.device_was_waited_for()
        window_loss = self.loss.take()
        self.health.check_by_cost(step, self._metrics)
        self.pulses.pulse(self._moment(step, self._metrics, window_loss))
        self._stages.pulse(self._data.pipeline_iterator(iterator))

    def check_weights(self, step: int) -> None:
        """Check the weights after `step` steps now, with the metrics of the last pulse. See `Health.check`."""
        self.health.check(step, self._metrics)

    def epoch_ends(self, step: int, metrics: dict[str, float]) -> None:
        window_loss = self.loss.end_epoch()
        self.health.check(step, metrics)
        training = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        self.pulses.out_of_turn(self._moment(step, training, window_loss))

    def training_ends(self, step: int, metrics: dict[str, float] | None = None) -> None:
        """Report the figures of the last step before the training ends, or else those of the last pulse."""
        self.finish()
        self.pulses.out_of_turn(self._moment(step, self._metrics if metrics is None else metrics))

    def finish(self) -> None:
        self._stages.finish()

    def _moment(self, step: int, metrics: dict[str, float], window_loss: float | None = None) -> Moment:
        return Moment(
            epoch=(step - 1) // self._steps_per_epoch + 1,
            step=step,
            spent=self._speed.clock.spent(time.perf_counter()),
            metrics=metrics,
            samples=self._parts.trained_samples(),
            traces=self._traces(),
            loss_scale=self.health.loss_scale(),
            skipped_steps=self.health.skipped_steps(step),
            window_loss=window_loss,
        )
