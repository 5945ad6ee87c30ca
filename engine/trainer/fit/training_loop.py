"""One training from any step to the last. Keras' fit drives it, to which the loop is both its list of callbacks and the
function of an execution, which is one or several steps in one graph: the methods stand in the order in which they are
called. No step waits for the device, and the only Python work of a step is a mark of the clock.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ... import plan
from ...runs import events, part_of_sweep
from ...runs.controls import ControlRequest
from ...units import amount, times
from ..checkpoint import callback_state, object_graph
from ..checkpoint.callback_state import Arrays
from ..checkpoint.checkpoints import NotWritten
from ..checkpoint.training_state import Attributes, parts_of, restore_kept
from ..cluster.exchange import Agreement, Wishes
from ..common.logs import as_keras, floats
from ..common.model_facts import present_rate
from ..common.stopping import StopRequested
from ..common.training_errors import TrainerError
from ..common.versions import is_op_determinism_enabled
from ..data.batches import INDEPENDENT
from ..data.finishing import none_of
from ..data.stage_times import StageMeter, StageWatch
from ..measure import step_parts
from ..measure.health import Health
from ..measure.profile import Profiler
from ..measure.progress_reports import EpochBegins, FirstEvaluation, LossWindow, Pulses
from ..measure.run_report import Moment, Plan
from ..measure.step_costs import ExchangeTimer, transfer_seconds
from . import train_function
from .controls import Controls
from .epoch_rules import Built, EpochRules
from .model_fit import FitData, ModelFit, more_to_come, refuse_limits
from .train_function import Executions, constant

_NO_STEP = "Keras ended an epoch before its first step: an operation reported the end of its data"
_NO_STEP_HINT = (
    "the end of engine.log may name the operation; compile.xla_cache=false leaves out what XLA kept, "
    "if one of its files is damaged"
)


class _Measured(Exception):
    """Raised if the time of run.measure_seconds has been measured."""


Trace = Callable[[], Any]  # traces a step without running it, or returns the earlier trace
BEAT_SECONDS = 5.0


class TrainingLoop(keras.callbacks.CallbackList):
    """The training of a model that is built and compiled. At an event the loop comes first, and the user's callbacks
    after it, except if a checkpoint is to contain changes that they make.
    """

    def __init__(self, built: Built) -> None:
        refuse_limits()
        super().__init__(add_history=True, model=built.model)  # fit returns model.history
        self.built = built
        options, model, pipeline, report = built.options, built.model, built.pipeline, built.report
        self.steps_per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
        self.steps = self.steps_per_epoch * options.train.epochs
        self.step = 0
        self.data = FitData(options, model.distribute_strategy, built.devices, pipeline.on_demand)
        self._on_gpu = built.devices.kind == "GPU"
        self.parts = step_parts.step_parts_for(is_op_determinism_enabled(), self._on_gpu)
        self._clock = report.speed.clock
        self.profiler = Profiler(report, options.run.profile_steps, model)
        self.executions = Executions(model, pipeline, self.parts, options.train.micro_batches)
        train = options.train
        self.health = Health(model, train.nan_check_steps, train.stop_on_nan, report, self.parts.not_python)
        self.health.own_optimizer = built.own is not None and "train.learning_rate" in built.own.inapplicable
        self.health.together = built.joined is not None
        self._loss = LossWindow(model)
        each = train.schedule == "ramp"  # a range test needs the loss at each rate
        self._pulses = Pulses(report, built.devices.names, slows_down=True, always=each)
        functions = built.own.stage_functions() if built.own else {}
        self._stages = StageWatch(StageMeter(pipeline.stages(), pipeline.replicas_here, functions), report.writer.emit)
        self._metrics: dict[str, float] = {}  # at the last pulse
        self._saves_now, self._left_out = False, 0  # a checkpoint is due; those not written since the last one
        self.writes_checkpoints = options.run.checkpoint != "off"
        self.rules = EpochRules(built)
        called_too = [*(built.own.callbacks if built.own else []), *([self.rules] if self.rules.callbacks else [])]
        self.called = CalledCallbacks(built, self.steps_per_epoch, called_too)
        self.controls = Controls(report.run, model)
        self._traces_again = False  # the learning rate follows another schedule
        self._model_fit = ModelFit(model, built.own, self.data, report, self.called.add)
        self._restores = False  # a checkpoint of the present step is still to be restored
        self._held: list[Callable[[], None]] = []  # calls of callbacks that wait until then
        self._resumed, self._as_traced = False, built.checkpoints.state.attributes.as_traced
        # Until XLA has compiled its smaller last batch, the batches of a pass.
        self._per_pass = pipeline.batches_per_pass if built.xla.compiles and pipeline.smaller_last_batch else None
        joined = built.joined
        self.agreement = Agreement(joined.cluster, joined.exchange, built.stop) if joined else None
        self.exchange_timer = ExchangeTimer(model, joined.exchange, report) if joined else None
        self._begins = EpochBegins(pipeline.held_back if pipeline.apart else "", report)
        # Methods would lead checkpoints to the loop.
        model.train_function = lambda iterator: self._execute(iterator)
        model.test_function = lambda iterator: self._execute_test(iterator)
        self._test: Any = train_function.testing(model, pipeline.train.device_scale, train.micro_batches)
        self._test_one = train_function.one(model, train.micro_batches, trains=False)
        self._first_evaluation = FirstEvaluation(report)
        # XLA compiles once more for a smaller last batch.
        samples = pipeline.validation_samples
        may_be_smaller = pipeline.replicas == 1 and (samples is None or samples % pipeline.global_batch_size != 0)
        self._smaller_test = built.xla.compiles and may_be_smaller
        self._tests_left, self._next_beat = 0, 0.0  # steps of the run's own evaluation
        self._traced_tests = set[bool]()  # whether for the run's own, or for a callback's
        self._evaluated: Any = None  # the iterator of the run's own evaluation
        self._trained = 0  # steps of a resumed epoch that were trained before
        self._may_execute = False  # callbacks have begun an execution, and no stop may come before it
        self._at_begin: Callable[[], None] | None = None  # for `_finish`, when all callbacks know of the begin
        self._running: Any = None  # the iterator of the training pipeline
        self._step_logs: Any = {}  # of the last step
        self._unfinished: dict[str, Any] | None = None  # logs of an epoch whose evaluation or on_epoch_end is to follow

    # ---- the training as a whole --------------------------------------------------------------

    def run(self, resume_at: int | None) -> None:
        """Train from the checkpoint of step `resume_at`, if given. Raises StopRequested, TrainerError or OpError."""
        built, pipeline, report = self.built, self.built.pipeline, self.built.report
        self.rules.require_figures()
        first = pipeline.fit.initial_epoch * self.steps_per_epoch
        self._is_trial = bool(part_of_sweep.read(report.run).sweep)
        pause_after = part_of_sweep.read(report.run).pause_after or built.options.train.epochs
        self._pause_at = first + pause_after * self.steps_per_epoch
        self.step = first if resume_at is None else resume_at
        self.called.add(())
        built.checkpoints.callbacks = self._state_of_callbacks
        # Was it ended by a callback, and the logs of an epoch whose evaluation and on_epoch_end have to follow.
        ended, logs = False, None
        self._restores = self._resumed = resume_at is not None
        if resume_at is not None:
            ended, logs = self.called.resume_from(built.checkpoints.callbacks_at(resume_at))
            ended = built.holds_anywhere(ended)
            pipeline.go_to(built.checkpoints.saved_place(resume_at))
        self.controls.restore(self.called.saved[0].get("controls", {}) if self.called.saved else {})
        ended = ended or self._is_told_to_end
        warmup = plan.warmup_steps(self.steps - self.step)
        caches = built.options.input.cache != "off" and not built.options.input.one_batch
        if caches and built.options.run.measure_seconds is not None:  # the whole first pass, which fills the cache
            warmup = max(warmup, pipeline.batches_per_pass)
        self._clock = report.speed.begin(warmup, self._on_gpu, self.parts.totals, self.parts.timed_samples)
        if self.exchange_timer is not None:
            self.exchange_timer.begin(self.step, warmup)
        report.speed.plan = Plan(built.options.train.epochs, self.steps, pipeline.full_batch)
        self.health.begin(self.step)
        self._loss.begin(within_epoch=self.step % self.steps_per_epoch > 0)
        model, epochs = built.model, built.options.train.epochs
        try:
            model.stop_training = False
            if self._restores and (ended or logs is not None or self.step == self.steps):
                self._finish(ended, logs)
            self._pause_if_due()  # it was killed after the checkpoint of that epoch
            while self.step < self.steps and not model.stop_training:
                # The rest of a resumed epoch is a fit of its own, and so is each epoch whose batches are made apart.
                epoch, done = divmod(self.step, self.steps_per_epoch)
                beyond = epoch + 1 if done or pipeline.apart else epochs
                before = self.step
                with more_to_come(model) if beyond < epochs else contextlib.nullcontext():
                    self._fit(epoch, beyond, self.steps_per_epoch - done)
                if self.step == before and not model.stop_training:
                    raise TrainerError("input", _NO_STEP, _NO_STEP_HINT)
            other = "control" if self._is_told_to_end else "callback"
            stopped = "early_stop" if self.rules.stopped else other
            report.ended_by = "last_step" if self.step >= self.steps else stopped
        except _Measured:
            report.ended_by = "measured"
        finally:
            pipeline.close()
        state = built.checkpoints.state
        report.not_restored([*state.missed(), *(entry.name for entry in state.later.waiting)])
        state.later.close()
        self._stages.finish()
        self.profiler.close()

    def _finish(self, ended: bool, logs: dict[str, Any] | None) -> None:
        """End an epoch or the training in a fit without a step, which calls all callbacks as at any end."""
        model, pipeline, beyond = self.built.model, self.built.pipeline, -(-self.step // self.steps_per_epoch)

        def trace() -> Any:
            batches = iter(self.data.training(none_of(pipeline.batch_spec)))
            count = min(self.built.options.compile.steps_per_execution, self.steps_per_epoch)
            return self.executions.trace(batches, count)

        def at_begin() -> None:
            self._restore_if_it_fits()
            if self._restores:
                self._first_step_comes(trace)
            model.stop_training = ended
            if logs is None:
                return
            self._unfinished = values = logs
            if pipeline.validation_batches and pipeline.fit.evaluates_after(beyond - 1):
                batches, steps = self.data.validation(pipeline.validation()), pipeline.validation_batches
                figures = model.evaluate(batches, steps=steps, callbacks=self, return_dict=True, verbose=0)
                values = {**logs, **{f"val_{name}": value for name, value in figures.items()}}
            self.on_epoch_end(beyond - 1, values)

        self._at_begin = at_begin
        with more_to_come(model) if beyond < self.built.options.train.epochs else contextlib.nullcontext():
            self._fit(beyond, beyond, self.steps_per_epoch)

    def _fit(self, first: int, beyond: int, steps: int) -> None:
        pipeline = self.built.pipeline
        self._begins.epoch_begins()
        validation_batches, batches = pipeline.validation_batches, pipeline.stream(self.step)
        self._trained = self.steps_per_epoch - steps
        if steps and first < beyond:
            pipeline.train.fit_begins(self.step)
        self._model_fit(
            batches,
            pipeline.validation() if validation_batches else None,
            self,
            initial_epoch=first,
            epochs=beyond,
            steps_per_epoch=steps,
            validation_steps=validation_batches or None,
            validation_freq=pipeline.fit.validation_freq,
            shuffle=False,
            verbose=0,
        )

    # ---- what fit calls: the begin ------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        self.called.begin_training(as_keras(logs), self.writes_checkpoints)
        at_begin, self._at_begin = self._at_begin, None
        if at_begin is not None:
            at_begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.agreement is not None:
            self.agreement.soon()
        self.built.report.epoch_begins()
        self._restore_if_it_fits()
        self._begin(lambda: self._callbacks_begin_epoch(epoch, as_keras(logs)))

    def _callbacks_begin_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        # In a resumed epoch, its changes are already in the checkpoint, and are undone.
        self.called("on_epoch_begin", epoch, logs)
        if self.step % self.steps_per_epoch:
            if self.built.holds_anywhere(any(map(_may_change_model, self.called.callbacks))):
                self.built.checkpoints.restore(self.step)
            if self.called.saved is not None:
                self.called.restore()

    # ---- an execution -------------------------------------------------------------------------

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.called.at_batches["on_train_batch_begin"]:
            self._begin(lambda: self.called("on_train_batch_begin", self._trained + batch, as_keras(logs)))

    def _begin(self, call: Callable[[], None]) -> None:
        # Callbacks that begin an execution once more in a resumed run would count it twice.
        if self._restores:
            self._held.append(call)
            return
        if not self._may_execute:
            self._leave_if_it_is_time(self._now())
            self._may_execute = True
        call()

    def _execute(self, iterator: Any) -> Any:
        """Run one execution for Keras' fit, with the batches of `iterator`. Return the logs of its last step."""
        if not isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
            run_one = self.executions.run_one  # a callback has called train_on_batch
            traced = run_one.experimental_get_tracing_count()
            with contextlib.nullcontext() if traced else self._as_traced("batch"):
                return run_one(next(iterator))
        began = self._now()
        self._running = self.data.pipeline_iterator(iterator)
        if not self._may_execute and self._leave_if_it_is_time(began):
            began = self._now()
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
        logs = self._step_logs = self._run(iterator, count, began)
        self.step += count
        self.health.check_by_steps(self.step)
        if self._pulses.due(began):
            self._pulse(iterator)
        self._begins.executed(time.perf_counter() - began, last=count == left_of_epoch)
        if self.profiler.ends(self.step):
            self._stand_still()
            self.profiler.close()
        if count == left_of_epoch:
            self._stand_still()  # before evaluating, Keras frees the last evaluation's data: up to a second
        every = self.built.options.run.checkpoint
        self._saves_now = isinstance(every, int) and self.step // every != (self.step - count) // every
        return logs

    def _now(self) -> float:
        # Before the first measured step, wait until the GPU is idle.
        if self._on_gpu and not self.built.report.speed.warm:
            self.parts.wait_for_device()
        return time.perf_counter()

    def _leave_if_it_is_time(self, now: float) -> bool:
        """Return True if time has passed since `now`, as something was done that a person has asked for."""
        seconds, clock = self.built.options.run.measure_seconds, self._clock
        enough = seconds is not None and plan.enough(clock.measured_until(now), clock.measured_steps, seconds)
        if self.agreement is not None:
            wishes = self.agreement.wishes
            wishes.enough, wishes.check_weights = enough, self.health.wants_check
            enough = self._obeyed(self.agreement.before_execution).enough
        elif self.built.stop.reason:
            self._pause()
            self.built.stop.check()
        if enough:
            self.leave(self._stand_still())  # work that is still on the device belongs to the measured time
            raise _Measured
        return self._do_controls()

    def _obeyed(self, exchange: Callable[[], Wishes]) -> Wishes:
        """Return the requests of all workers, and do what they ask. Raises StopRequested if one was asked to stop."""
        try:
            agreed = exchange()
        except StopRequested as request:
            self._pause()
            joined, agreement = self.built.joined, self.agreement
            if not request.engine_of and joined and agreement and agreement.asked_by is not None:
                who = joined.cluster.named(agreement.asked_by)
                self.built.report.warn("peer_stopped", f"{who} stops, as its own run says, and all stop together")
            raise
        if agreed.check_weights:
            self.health.wants_check = False
            self.health.check(self.step, self._metrics)
        if agreed.end:
            self.built.model.stop_training = True
        return agreed

    def _run(self, iterator: Any, count: int, began: float) -> Any:
        """Run the `count` steps of an execution. One in which something is compiled is timed separately."""
        report = self.built.report
        first = report.first_seconds.step is None
        smaller = self._per_pass is not None and self.step // self._per_pass != (self.step + count) // self._per_pass
        self._per_pass = None if smaller else self._per_pass
        compiles = (smaller or self._traces_again) and not first
        adds_clock = self.executions.clock_is_due and not first
        if compiles or adds_clock:
            self._stand_still()
        else:
            self._clock.mark(began, count)
        if self.profiler.running:
            self.profiler.begin_step(self.step + 1)
        if self._clock.warm and not report.speed.warm:
            report.speed.begin_measuring(self._clock.spent(began), self.step)
        if first:
            trace = functools.partial(self.executions.trace, iterator, count)
            report.phase("compiling", "XLA" if self.built.xla.compiles else "tracing")
            self._first_step_comes(trace)
            self._trace_again(iterator, count)
            own = self.built.own
            if own is not None and self.parts.samples and object_graph.draws(trace().graph):
                self.executions.always_with_clock()
            logs = self.executions.run(iterator, self.step, count)
            floats(logs)  # waits for the device: the first step has ended when its figures are known
            if own is not None:
                self.built.checkpoints.state.saw(trace().graph, self.parts.clock.variables)
                self._warn_of_draws(trace)
            self.built.stop.at_once = False
            self._pulses.first_step_done(time.perf_counter() - began)
            samples = self.built.pipeline.full_batch // self.built.pipeline.replicas
            report.speed.transfer_seconds = transfer_seconds(self.data.spec, samples, self.data.gpus)
            return logs
        if not compiles and not adds_clock:
            self.parts.before()
            return self.executions.run(iterator, self.step, count)
        if compiles:
            report.phase("compiling", "smaller batch" if smaller else "another learning rate")
        # XLA compiles for this size, or the graph is traced: the time does not count as time of steps.
        with self.parts.left_out():
            self._trace_again(iterator, count)
            if adds_clock:  # traced apart from its run, in which the data may draw random numbers
                with self._as_traced("train"):
                    self.executions.trace(iterator, count, with_clock=True)
            logs = self.executions.run(iterator, self.step, count)
            floats(logs)
        if compiles:
            report.phase("training")
        return logs

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write a checkpoint after the callbacks; that of an epoch's end follows its evaluation."""
        self.called.at_batch("on_train_batch_end", self._trained + batch, logs)
        model, within_epoch = self.built.model, self.step % self.steps_per_epoch > 0
        if self.agreement is not None and model.stop_training:
            # By figures of this worker alone: all end together, with the next execution.
            model.stop_training, self.agreement.wishes.end = False, True
        if not within_epoch and not model.stop_training:
            if self.built.pipeline.ends_by_a_step:
                self.called.at_batch("on_train_batch_begin", self.steps_per_epoch, None)
                with contextlib.suppress(tf.errors.OutOfRangeError):
                    self.executions.run_steps(self.data.iterator, constant(1))
            with self.built.report.heartbeat:
                self.built.pipeline.train.epoch_trained()
        if within_epoch and self._saves_now:
            self.save()

    # ---- an evaluation ------------------------------------------------------------------------

    def on_test_begin(self, logs: Any = None) -> None:
        self._pause()
        if self._unfinished is None:  # else an interrupted evaluation is repeated
            self._unfinished = self._logs_of_epoch()
        self._loss.evaluation_begins()
        if self.agreement is not None:
            self.agreement.soon()
        self.built.pipeline.evaluation_begins(-(-self.step // self.steps_per_epoch) - 1)
        self._tests_left = self.built.pipeline.validation_batches
        self._first_evaluation.begins()
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self.called("on_test_begin", as_keras(logs))

    def _logs_of_epoch(self) -> dict[str, Any]:
        # Of its steps up to now, as Keras' fit gives them to callbacks. If the step returns figures of its own, these.
        results = self.built.model.get_metrics_result()
        return as_keras(results if self._step_logs.keys() == results.keys() else self._step_logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.called.at_batch("on_test_batch_begin", batch, logs)

    def _check_stop(self, of_run: bool) -> None:
        if self.writes_checkpoints and (not of_run or (self._is_trial and self.step in (self._pause_at, self.steps))):
            return
        if self.agreement is None:
            self.built.stop.check()
        else:
            self._obeyed(self.agreement.before_execution)

    def _execute_test(self, iterator: Any) -> Any:
        """Run one execution for Keras' evaluate, the run's own or one of a user's callback, and return its logs."""
        own, together = self._tests_left > 0, self.built.options.compile.steps_per_execution
        self._evaluated = iterator if own else None
        self._check_stop(own)
        traces, self._traced_tests = own not in self._traced_tests, self._traced_tests | {own}
        if not own:  # the number of remaining batches is unknown, so they are drawn one by one
            data = next(iterator)
            with self._as_traced("test") if traces else contextlib.nullcontext():
                logs = self._test_one(data)
            for data in itertools.islice(iterator, together - 1):
                logs = self._test_one(data)
            return logs
        count = min(together, self._tests_left)
        self._tests_left -= count
        smaller = self._smaller_test and self._tests_left == 0
        compiles = smaller or not self._first_evaluation.done
        if compiles:
            self._smaller_test = self._smaller_test and not smaller
            self._first_evaluation.compile()
        if traces and self.built.own is not None:  # apart from its run, in which the data may draw random numbers
            with self._as_traced("test"):
                traced = self._test.get_concrete_function(iterator, constant(count))
            self._warn_of_draws(lambda: traced)
        logs, _ = self._test(iterator, constant(count))
        if not self._tests_left:
            self._evaluated = None  # kept until the next evaluation, its end would be waited for then
        if compiles:
            floats(logs)  # waits for the device
            self._first_evaluation.compiled()
        elif time.monotonic() >= self._next_beat:
            floats(logs)
            self.built.report.heartbeat.beat()
            self._next_beat = time.monotonic() + BEAT_SECONDS
        return logs

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.called.at_batch("on_test_batch_end", batch, logs)

    def on_test_end(self, logs: Any = None) -> None:
        self.called("on_test_end", as_keras(logs))
        self._tests_left = 0
        self.built.report.phase("training")

    # ---- the end of an epoch, and of the training ---------------------------------------------

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._pause()
        values = as_keras(logs)
        self.called.saved, self.called.epoch_logs = None, dict(values)
        self.called("on_epoch_end", epoch, values)
        metrics, self._unfinished = floats(values), None
        window_loss = self._loss.end_epoch()
        self.health.check(self.step, metrics)
        training = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        self._pulses.out_of_turn(self._moment(training, window_loss))
        self.built.report.epoch_done(epoch + 1, self.step, metrics)
        self.built.report.not_restored(self.built.checkpoints.state.missed())
        own, joined = self.built.own, self.built.joined
        if own is not None and self.built.options.run.measure_seconds is None:
            writes = joined is None or joined.cluster.is_chief
            own.show_preview(epoch + 1, self.built.checkpoints.state, self.built.report, writes)
        self.controls.read()
        self._do_controls()
        if self._is_told_to_end:
            self.built.model.stop_training = True
        if self._saves_now or self.built.options.run.checkpoint == "epoch":
            self.save()
        self._pause_if_due()
        if self.agreement is not None:  # all end the training if a callback of one worker has ended it
            self.agreement.wishes.end |= bool(self.built.model.stop_training)
            self._obeyed(self.agreement.now)

    def _pause_if_due(self) -> None:
        # A trial of a sweep trains its next steps when it goes on.
        if self._pause_at <= self.step < self.steps and not self.built.model.stop_training:
            self.built.stop.request("stopped")

    def on_train_end(self, logs: Any = None) -> None:
        if self.step >= self.steps or self.built.model.stop_training:
            self.called("on_train_end", as_keras(logs) or self.called.epoch_logs)

    def leave(self, metrics: dict[str, float] | None = None) -> None:
        """Report the progress before the training ends early (without `metrics` those of the last pulse), and write a
        checkpoint if checkpoints are on.
        """
        self.profiler.close()
        self._stages.finish()
        self._pulses.out_of_turn(self._moment(self._metrics if metrics is None else metrics))
        if self.writes_checkpoints:
            self.save()
        elif self._unfinished and self.step % self.steps_per_epoch == 0:  # in an evaluation that no run repeats
            self.built.report.epoch_done(self.step // self.steps_per_epoch, self.step, floats(self._unfinished))
        if self.built.own is not None:
            self.built.own.end_iterators((self._running, self._evaluated))

    def test(self) -> None:
        """Evaluate the test data, if there are any, with the weights of the best epoch that an option knows."""
        pipeline, report, model = self.built.pipeline, self.built.report, self.built.model
        if (stream := pipeline.test) is None or not stream.batches:
            return
        epoch, file = self.rules.weights_to_test()
        report.phase("evaluating", "test data")
        began = time.perf_counter()
        self._tests_left, self._next_beat = stream.batches, time.monotonic() + BEAT_SECONDS
        self._smaller_test = self.built.xla.compiles and pipeline.replicas == 1
        try:
            with report.heartbeat:
                if file is not None:
                    model.load_weights(file)
            batches = self.data.validation(pipeline.evaluated(stream, stream.batches))
            none = keras.callbacks.CallbackList(model=model)  # those of fit do not know of it
            figures = model.evaluate(batches, steps=stream.batches, callbacks=none, return_dict=True, verbose=0)
        finally:
            stream.close()
        epoch = epoch or -(-self.step // self.steps_per_epoch)
        report.tested(epoch, floats(figures), stream.samples, time.perf_counter() - began)

    # ---- between executions -------------------------------------------------------------------

    def _pause(self) -> None:
        """Interrupt the clock: the time until the next execution does not count as time of steps."""
        self._clock.pause(time.perf_counter())
        self.profiler.end_step()

    def _pulse(self, iterator: Any) -> None:
        """A few times a second the host waits for the device, and figures are read and reported."""
        self._metrics = self.parts.wait_for_device()
        self.parts.pulse()
        self._clock.device_was_waited_for()
        window_loss = self._loss.take()
        self.health.check_by_cost(self.step, self._metrics)
        self._pulses.pulse(self._moment(self._metrics, window_loss))
        self.controls.read()
        self._stages.pulse(self.data.pipeline_iterator(iterator))

    def _moment(self, metrics: dict[str, float], window_loss: float | None = None) -> Moment:
        return Moment(
            epoch=(self.step - 1) // self.steps_per_epoch + 1,
            step=self.step,
            spent=self._clock.spent(time.perf_counter()),
            metrics=metrics,
            samples=self.parts.trained_samples(),
            traces=self.executions.traces(),
            loss_scale=self.health.loss_scale(),
            skipped_steps=self.health.skipped_steps(self.step),
            window_loss=window_loss,
            learning_rate=present_rate(self.built.model.optimizer),
        )

    def _stand_still(self) -> dict[str, float]:
        metrics = self.parts.wait_for_device()
        self._pause()
        return metrics

    # ---- what a person asks of it -------------------------------------------------------------

    @property
    def _is_told_to_end(self) -> bool:
        return self.controls.ends_epoch and self.step % self.steps_per_epoch == 0

    def _do_controls(self, again: bool = False) -> bool:
        """Do what was asked and is due after this step, and return True if there was something; `again`: before the
        first step of a resumed run what was done then, which gets no event.
        """
        is_first = self.built.report.first_seconds.step is None
        if self.step < self.controls.next_step or self._restores or is_first != again:
            return False
        for request in self.controls.due(self.step, again):
            is_new, answer = request.id not in self.controls.answered, dict[str, Any]()
            if request.control == "rate":
                answer = self._scale_rate(request)
            elif request.control == "end-epoch":
                self.controls.ends_epoch, answer = True, {"message": "the training ends after this epoch"}
            elif is_new:
                answer = self._evaluate_now() if request.control == "evaluate" else self._save_now()
            self.controls.done.setdefault(request.id, None)
            if is_new:
                event = events.Control(id=request.id, control=request.control, step=self.step, **answer)
                self.built.report.writer.emit(event)
                print(f"gputui tell: after step {self.step}: {event.message}", flush=True)
        return True

    def _scale_rate(self, request: ControlRequest) -> dict[str, Any]:
        if why := self.controls.not_scaled(self.called.callbacks):
            return {"refused": True, "message": f"the learning rate stays as it is: {why}"}
        if self.controls.scale(request):
            parts, pieces = self.parts, self.built.options.train.micro_batches
            self.executions, self._traces_again = Executions(self.built.model, self.built.pipeline, parts, pieces), True
        rate = present_rate(self.built.model.optimizer)
        message = f"the learning rate is {amount(rate)}, {times(request.factor)} the former"
        return {"factor": request.factor, "learning_rate": rate, "message": message}

    def _trace_again(self, iterator: Any, count: int) -> None:
        if not self._traces_again:
            return
        self._traces_again = False
        with self._as_traced("train"):
            graph = self.executions.trace(iterator, count).graph
        if self.built.own is not None and self.parts.samples and object_graph.draws(graph):
            self.executions.always_with_clock()

    def _evaluate_now(self) -> dict[str, Any]:
        model, pipeline, held_out = self.built.model, self.built.pipeline, self.built.pipeline.held_out
        why = "" if held_out is not None else "there is no validation data"
        if held_out is not None and (held_out.draws or held_out.nature is not INDEPENDENT):
            why = "the validation data may be other samples each time it is read"
        if why:
            return {"refused": True, "message": f"nothing is evaluated: {why}"}
        self._stand_still()
        # Keras resets the figures of the epoch so far.
        parts = [part for variable in model.metrics_variables for part in parts_of(variable.value)]
        values = [part.numpy() for part in parts]
        steps = self._tests_left = pipeline.validation_batches
        self._first_evaluation.begins()
        try:
            figures = model.evaluate(
                self.data.validation(pipeline.validation()), steps=steps, return_dict=True, verbose=0
            )
        finally:
            self._tests_left = 0
            for part, value in zip(parts, values, strict=True):
                part.assign(value)
        self.built.report.phase("training")
        metrics = {f"val_{name}": value for name, value in floats(figures).items()}
        return {"metrics": metrics, "message": ", ".join(f"{name} {amount(of)}" for name, of in metrics.items())}

    def _save_now(self) -> dict[str, Any]:
        why = "the disk refuses it"
        try:
            self.save()
        except TrainerError as fault:  # without run.checkpoint, a callback may have a state that cannot be saved
            if self.writes_checkpoints or fault.kind == "nan":
                raise
            why = str(fault)
        if self.built.checkpoints.last_step == self.step:
            return {"message": "the checkpoint is written"}
        return {"refused": True, "message": f"no checkpoint is written: {why}"}

    # ---- checkpoints --------------------------------------------------------------------------

    def _restore_if_it_fits(self) -> None:
        """Restore the epoch's running metrics, too, which Keras' fit has just reset, if the variables exist."""
        if self._restores and self.built.checkpoints.fits(self.step):
            self._restore()

    def _first_step_comes(self, trace: Trace) -> None:
        """Restore all state, before callbacks change anything. The step of a user's model may create variables, write
        any, and draw from any generator: it is traced before, and its graph shows this.
        """
        if self.built.own is not None:
            with self._as_traced("train"):
                traced = trace()
            if self._restores:
                self.built.checkpoints.state.saw(traced.graph, self.parts.clock.variables)
        self.health.note_start()
        if self._restores:
            self._restore()
            held, self._held = self._held, []
            for call in held:
                call()
        self._do_controls(again=True)

    def _restore(self) -> None:
        checkpoints, report = self.built.checkpoints, self.built.report
        self.health.note_start()
        report.not_restored(checkpoints.restore(self.step))
        self._restores = False
        if checkpoints.state.begins_anew:
            report.warn("begins_anew", checkpoints.state.begins_anew)
        self.health.begin(self.step)
        if self.step % self.steps_per_epoch == 0:
            self.built.model.reset_metrics()  # figures of the previous epoch, or of its evaluation
        if texts := self.called.restore():
            report.warn("callbacks_not_restored", "; ".join(texts))

    def _warn_of_draws(self, trace: Trace) -> None:
        if self.built.own is not None and self._resumed:
            self.built.own.warn_of_draws(trace().graph, self.built.report)

    def save(self) -> None:
        """Write a checkpoint of this step, or warn if the disk refuses it, and go on. With train.stop_on_nan, weights
        that are NaN raise TrainerError first.
        """
        self._saves_now = False
        if self._restores:  # the state is not yet that of this step
            return
        self.health.check(self.step)
        self._pause()
        if self.built.own is not None:
            self.built.own.code.record(self.built.report.run)
        report, step = self.built.report, self.step
        report.phase("saving", "checkpoint")
        began = time.perf_counter()
        try:
            self.built.checkpoints.save(step)
            if report.first_seconds.checkpoint is None:
                report.first_seconds.checkpoint = time.perf_counter() - began
            if self._left_out:
                message = f"there is a checkpoint again, of step {step}; {self._left_out} were left out"
                report.writer.emit(events.Warn(kind="checkpoint", message=message))
            self._left_out = 0
        except NotWritten as reason:
            self._left_out += 1
            if self._left_out == 1:
                hint = "the training goes on, and the next one is tried again"
                report.writer.emit(events.Warn(kind="checkpoint", message=str(reason), hint=hint))
        report.phase("training")
        if not self._left_out:
            self.rules.checkpoint_written()

    def _state_of_callbacks(self, arrays: Arrays) -> Any:
        # With what is due at this moment besides the remaining steps.
        ended = bool(self.built.model.stop_training) or bool(self.agreement and self.agreement.wishes.end)
        ends_within = self._unfinished is None and ended and self.step % self.steps_per_epoch > 0
        state = self.called.state(arrays, ended, self._logs_of_epoch() if ends_within else self._unfinished)
        return state | {"controls": self.controls.state()}


_AT_BATCHES = {  # methods, each with those that Keras calls by it
    "on_train_batch_begin": ("on_train_batch_begin", "on_batch_begin"),
    "on_train_batch_end": ("on_train_batch_end", "on_batch_end"),
    "on_test_batch_begin": ("on_test_batch_begin",),
    "on_test_batch_end": ("on_test_batch_end",),
}


class CalledCallbacks:
    """Calls the callbacks of the user's code, and gputui's like them, with their states in checkpoints. Those that
    override a method for batches are called for each execution, and the host then waits for the device. It does nothing
    at each step, where Keras' own list of callbacks converts every metric.
    """

    def __init__(self, built: Built, steps_per_epoch: int, given: Sequence[keras.callbacks.Callback]) -> None:
        self._built, self._given, self.steps_per_epoch = built, list(given), steps_per_epoch
        self._kept = built.own.kept if built.own else []
        self._attributes: Attributes = built.checkpoints.state.attributes
        self.callbacks: list[keras.callbacks.Callback] = []
        self.at_batches: dict[str, list[keras.callbacks.Callback]] = {}  # by a method that they override
        self._handed: list[keras.callbacks.Callback] = []
        self._begun: list[keras.callbacks.Callback] = []
        self.saved: tuple[Any, Arrays] | None = None  # of the checkpoint, until its epoch has ended
        self._resumed = False
        # Of the last epoch that has ended, without what the callbacks add, as Keras passes it to on_train_end.
        self.epoch_logs: dict[str, Any] = {}

    def add(self, handed: Sequence[keras.callbacks.Callback]) -> None:
        """Also call the callbacks `handed` over by the model's own fit. If an earlier fit of the same training has
        handed over the same classes, its callbacks go on with what they have counted.
        """
        new = [callback for callback in handed if callback not in self._given]
        if not self._handed or [*map(type, new)] != [*map(type, self._handed)]:
            self._handed = new
        self.callbacks = [*self._given, *self._handed]
        for callback in self.callbacks:
            epochs = self._built.options.train.epochs
            callback.set_params({"verbose": 0, "epochs": epochs, "steps": self.steps_per_epoch})
            callback.set_model(self._built.model)
        self.at_batches = {
            method: [callback for callback in self.callbacks if _overrides(callback, names)]
            for method, names in _AT_BATCHES.items()
        }

    def __call__(self, method: str, *values: Any) -> None:
        with self._built.report.heartbeat:  # a long call does not count as a hang
            for callback in self.at_batches.get(method, self.callbacks):
                getattr(callback, method)(*values)

    def at_batch(self, method: str, batch: int, logs: Any) -> None:
        if self.at_batches[method]:
            self(method, batch, as_keras(logs))

    def begin_training(self, logs: dict[str, Any], saves: bool) -> None:
        # Once in a run: the rest of a resumed epoch is trained by a separate fit.
        new = [callback for callback in self.callbacks if callback not in self._begun]
        self._begun = list(self.callbacks)
        with self._built.report.heartbeat:
            for callback in new:
                callback_state.begin_training(callback, logs, resumed=self._resumed)
        if saves:
            callback_state.state_of(new, Arrays())  # raises an error now rather than hours later

    # ---- checkpoints ----------------------------------------------------------------------------

    def state(self, arrays: Arrays, ended: bool, unfinished: dict[str, Any] | None) -> Any:
        """Return the states for JSON, with which end is due, and arrays in `arrays`. Raises TrainerError."""
        logs = {"unfinished": unfinished, "epoch": self.epoch_logs}
        states = callback_state.state_of(self.callbacks, arrays)
        attributes = {"now": self._attributes.changed(), "traced": self._attributes.traced}
        kept = [[each.label, each.packed(arrays)] for each in self._kept if each.values]
        packed = arrays.pack(_numbers(logs))
        return {"callbacks": states, "kept": kept, "ended": ended, "logs": packed, "attributes": attributes}

    def resume_from(self, saved: tuple[Any, Arrays] | None) -> tuple[bool, dict[str, Any] | None]:
        """Take `state`'s result before the training begins, and return what was due. None: of an older gputui."""
        self.saved, self._resumed = saved, saved is not None
        if saved is None:
            return False, None
        state, arrays = saved
        logs = arrays.unpack(state["logs"])
        self.epoch_logs = logs["epoch"]
        self._attributes.traced = state.get("attributes", {"traced": {}})["traced"]
        return state["ended"], logs["unfinished"]

    def restore(self) -> list[str]:
        """When the model is restored. Returns a text for each callback that starts again."""
        if self.saved is None:
            older = "the checkpoint is of an older gputui"
            return [f"{type(callback).__name__} starts again: {older}" for callback in self.callbacks]
        saved, arrays = self.saved
        lost = self._attributes.restore(saved["attributes"]["now"]) if "attributes" in saved else []
        none = [[each.label, []] for each in self._kept]  # of an older gputui
        lost += restore_kept(self._kept, saved.get("kept", none), arrays)
        return callback_state.restore(self.callbacks, saved["callbacks"], arrays) + lost


def _overrides(callback: keras.callbacks.Callback, names: tuple[str, ...]) -> bool:
    """Return True if the callback acts at each batch (ModelCheckpoint: by steps)."""
    if isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_freq == "epoch":
        return False
    return any(
        name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
        for name in names
    )


def _may_change_model(callback: keras.callbacks.Callback) -> bool:
    """on_epoch_begin is overridden, other than by classes of Keras that only take notes."""
    harmless = (keras.callbacks.Callback, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
    function = getattr(callback.on_epoch_begin, "__func__", callback.on_epoch_begin)
    return all(function is not kind.on_epoch_begin for kind in harmless)


def _numbers(logs: Any) -> Any:
    if isinstance(logs, dict):
        return {str(name): _numbers(value) for name, value in logs.items()}
    return logs if isinstance(logs, float | np.ndarray | None) else str(logs)
