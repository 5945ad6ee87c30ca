"""The training loop around `model.fit`: executions, stops, checkpoints, looks at the model's health, the profile.

Reads like the run: fit calls `_execute` for each execution; between two of them everything else happens, rarely.
No per-step device synchronisation and no per-step Python beyond a mark of the clock.
"""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import tensorflow as tf

from ..options import Options
from . import train_function
from .checkpoints import Checkpoints
from .clock import WINDOW_SECONDS, StepClock, warmup_steps
from .data.pipeline import Pipeline
from .devices import Devices, peak_bytes
from .faults import TrainerError
from .figures import Figures, Moment, Plan
from .health import Health
from .input_wait import InputWait
from .profile import Profiler
from .stopping import StopSwitch

PULSE_SECONDS = 0.25
SLOW_PULSE_SECONDS = 1.0
SLOW_AFTER_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class TrainingLoop:
    """One training of a built and compiled model, from any step to the last."""

    def __init__(
        self,
        options: Options,
        model: keras.Model,
        pipeline: Pipeline,
        devices: Devices,
        figures: Figures,
        checkpoints: Checkpoints,
        stop: StopSwitch,
    ) -> None:
        self.options, self.model, self.pipeline, self.devices = options, model, pipeline, devices
        self.figures, self.checkpoints, self.stop = figures, checkpoints, stop
        self.steps_per_epoch = options.train.steps_per_epoch or pipeline.batches_per_pass
        self.steps = self.steps_per_epoch * options.train.epochs
        self.step = 0
        self.health = Health(model, options.train.nan_check_steps)
        self.profiler = Profiler(figures.run.file("profile"), options.run.profile_steps)
        self._on_gpu = devices.kind == "GPU"
        self._input_wait = InputWait(options.train.deterministic, self._on_gpu)
        self._run_steps = train_function.training(model, self._input_wait.meter)
        self._run_tests = train_function.testing(model)
        self._restore_from: int | None = None
        self._tests_done = 0
        self._next_pulse = self._next_memory = 0.0
        self._epoch_began = time.time()
        self._metrics: dict[str, float] = {}
        self._counts: dict[int, Any] = {}
        model.train_function = self._execute
        model.test_function = self._evaluate

    def run(self, resume_at: int | None) -> None:
        """Train to the end; raises StopRequested, TrainerError or what TensorFlow raises."""
        self.step = resume_at or 0
        self._restore_from = resume_at
        left = self.steps - self.step
        self.figures.clock = StepClock(warmup_steps(left), math.inf if self._on_gpu else WINDOW_SECONDS)
        self.figures.plan = Plan(self.options.train.epochs, self.steps, self.pipeline.global_batch_size)
        self.health.begin(self.step)
        callbacks = _Callbacks(self)
        while self.step < self.steps:
            # A resumed epoch is a fit of its own, as long as what is left of the epoch.
            epoch, done = divmod(self.step, self.steps_per_epoch)
            self._fit(callbacks, epoch, epoch + 1 if done else self.options.train.epochs, self.steps_per_epoch - done)
        self.profiler.close()

    def leave(self) -> None:
        """After a stop: say where it stands, and write a checkpoint where checkpoints are on."""
        self.profiler.close()
        self.figures.pulse(self._moment(self._metrics))
        self.figures.memory(peak_bytes(self.devices))
        if self.options.run.checkpoint != "off":
            self.save()

    def _fit(self, callbacks: keras.callbacks.CallbackList, first: int, beyond: int, steps: int) -> None:
        validation_batches = self.pipeline.validation_batches
        self.model.fit(
            self._distributed(self.pipeline.stream(self.step)),
            initial_epoch=first,
            epochs=beyond,
            steps_per_epoch=steps,
            validation_data=self._distributed(self.pipeline.validation()) if validation_batches else None,
            validation_steps=validation_batches or None,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )

    def _distributed(self, batches: tf.data.Dataset) -> Any:
        if self.options.strategy.kind == "single":
            return batches
        ahead = self.options.input.prefetch != "off"
        # The strategy reads ahead for each replica, too, if it may.
        settings = tf.distribute.InputOptions(
            experimental_fetch_to_device=ahead, experimental_per_replica_buffer_size=int(ahead)
        )
        return self.model.distribute_strategy.distribute_datasets_from_function(lambda context: batches, settings)

    # ---- between executions -------------------------------------------------------------------

    def _execute(self, iterator: Any) -> Any:
        """What fit calls as its train function."""
        now = time.perf_counter()
        if self.stop.reason:
            self.figures.clock.pause(now)
            self.stop.check()
        in_epoch = self.step % self.steps_per_epoch
        count = min(self.options.compile.steps_per_execution, self.steps_per_epoch - in_epoch)
        self.figures.clock.mark(now, count)
        if self.figures.clock.warm and not self.figures.warm:
            self.figures.begin_measuring(self._input_wait.total())
        if self.figures.first_step_seconds is None:
            logs = self._first_execution(iterator, count, now)
        else:
            self._input_wait.before()
            with self.profiler.step(self.step + 1, count):
                logs = self._run_steps(iterator, self._count(count))
        self.step += count
        self._input_wait.after(count, logs)
        if self.health.every is not None and self.health.due(self.step):
            self._look({})
        if now >= self._next_pulse:
            self._pulse(logs)
        self._checkpoint_by_steps(count)
        return logs

    def _first_execution(self, iterator: Any, count: int, began: float) -> Any:
        self.figures.phase("compiling", "XLA" if self.options.compile.xla else "tracing")
        with self.profiler.step(self.step + 1, count):
            logs = self._run_steps(iterator, self._count(count))
        tf.nest.map_structure(float, logs)  # wait for it: the first step has ended when its figures are there
        self.stop.at_once = False
        self.figures.first_step_done(time.perf_counter() - began)
        self.figures.phase("training")
        return logs

    def _count(self, count: int) -> Any:
        if count not in self._counts:
            with tf.device("/CPU:0"):
                self._counts[count] = tf.constant(count)
        return self._counts[count]

    def _pulse(self, logs: Any) -> None:
        """A few times a second: read the running metrics, look after the model, say where it stands."""
        metrics = {name: float(value) for name, value in logs.items()}  # waits for the device
        self._metrics = metrics
        self._input_wait.pulse()
        if self._on_gpu:
            self.figures.clock.cut()
        lost = metrics.get("loss") != metrics.get("loss")  # NaN
        if lost or (self.health.every is None and self.health.due(self.step)):
            self._look(metrics)
        now = time.perf_counter()
        young = time.time() - self.figures.began < SLOW_AFTER_SECONDS
        self._next_pulse = now + (PULSE_SECONDS if young else SLOW_PULSE_SECONDS)
        self.figures.pulse(self._moment(metrics))
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            self.figures.memory(peak_bytes(self.devices))

    def _moment(self, metrics: dict[str, float]) -> Moment:
        return Moment(
            epoch=(self.step - 1) // self.steps_per_epoch + 1,
            step=self.step,
            input_wait_seconds=self._input_wait.total(),
            metrics=metrics,
            loss_scale=self.health.loss_scale(),
            skipped_steps=self.health.skipped_steps(self.step),
        )

    def _look(self, metrics: dict[str, float]) -> None:
        """The truth about NaN: dead weights end the run; a NaN loss over living ones is mended."""
        if not self.health.alive(self.step):
            message = (
                f"weights are not finite (NaN or infinity), first seen at step {self.step}; "
                f"at step {self.health.last_good_step} they still were"
            )
            hint = "lower train.learning_rate, set train.global_clip_norm=1, or look for NaN in the data"
            if self.options.train.stop_on_nan:
                raise TrainerError("nan", message, hint)
            self.figures.warn("nan", message, hint, "train.stop_on_nan")
        elif metrics.get("loss") != metrics.get("loss"):
            self.figures.warn(
                "loss_restarted",
                f"the running loss was NaN at step {self.step} over healthy weights (a step that loss scaling "
                "skipped); it is counted anew from here",
            )
            self.model.reset_metrics()

    def _checkpoint_by_steps(self, count: int) -> None:
        every = self.options.run.checkpoint
        if isinstance(every, int) and self.step // every != (self.step - count) // every:
            self.save()

    def save(self) -> None:
        """Write a checkpoint of this very step, unless the model is dead: the older ones are better then."""
        self._look({})
        self.figures.clock.pause(time.perf_counter())
        self.figures.phase("saving", "checkpoint")
        self.checkpoints.save(self.step)
        self.figures.phase("training")

    # ---- epochs -------------------------------------------------------------------------------

    def epoch_begins(self) -> None:
        self._epoch_began = time.time()
        if self._restore_from is not None:
            # After fit has reset the metrics: the epoch's running figures go on, too.
            self.checkpoints.restore(self._restore_from)
            self.health.begin(self._restore_from)
            self._restore_from = None

    def epoch_ends(self, epoch: int, logs: dict[str, float]) -> None:
        metrics = {name: float(value) for name, value in logs.items()}
        self._look(metrics)
        self.figures.pulse(self._moment({k: v for k, v in metrics.items() if not k.startswith("val_")}))
        self.figures.memory(peak_bytes(self.devices))
        self.figures.epoch_done(epoch + 1, self.step, metrics, time.time() - self._epoch_began)
        if self.options.run.checkpoint == "epoch":
            self.save()

    def tests_begin(self) -> None:
        self.figures.clock.pause(time.perf_counter())
        self.figures.phase("evaluating")
        self._tests_done = 0

    def tests_end(self) -> None:
        self.figures.phase("training")

    def _evaluate(self, iterator: Any) -> Any:
        """What evaluate calls as its test function; a stop does not wait for the rest of the evaluation."""
        self.stop.check()
        count = min(self.options.compile.steps_per_execution, self.pipeline.validation_batches - self._tests_done)
        self._tests_done += count
        return self._run_tests(iterator, self._count(count))


class _Callbacks(keras.callbacks.CallbackList):
    """Passes on what happens once an epoch, and nothing each step: Keras' own converts every metric every time."""

    def __init__(self, loop: TrainingLoop) -> None:
        super().__init__(add_history=True, model=loop.model)  # fit returns model.history
        self._loop = loop

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._loop.epoch_begins()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.figures.clock.pause(time.perf_counter())
        self._loop.epoch_ends(epoch, logs or {})

    def on_test_begin(self, logs: Any = None) -> None:
        self._loop.tests_begin()

    def on_test_end(self, logs: Any = None) -> None:
        self._loop.tests_end()


