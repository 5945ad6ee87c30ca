"""The figures of a run as they grow: its speed, its progress, the times of steps, and those of work that is done once.
The report writes the events and the summary that are made of them, a few times a second.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...learning import judged
from ...options import OPTIONS, Options
from ...options.own_code import remedy
from ...runs import Run, code_files, events, results
from ...runs.event_reading import events_of, read_events
from ...runs.events import TELEMETRY_FILE
from ...runs.parsing import EventWriter
from ...runs.run_state import RunState
from ...system import process_memory
from ...system.heartbeat import TrainerHeartbeat
from ...telemetry.gpu_totals import GpuTotals

WINDOW_SECONDS = 0.05
RECENT_WINDOWS = 100
Totals = Callable[[], tuple[float | None, float | None]]  # seconds of waiting for input, and of the graph
Samples = Callable[[], int | None]


@dataclass(frozen=True)
class Spent:
    """The seconds since the start, None without a reading; `samples` include those of steps that are not measured."""

    measured: float
    input_wait: float | None = None
    graph: float | None = None
    samples: int | None = None

    def shares_since(self, earlier: Spent) -> tuple[float | None, float | None]:
        """Return the shares (0 to 1) of the step time since `earlier` of waiting for input, and of Python."""
        seconds = self.measured - earlier.measured
        waited, ran = _difference(self.input_wait, earlier.input_wait), _difference(self.graph, earlier.graph)
        return _share(waited, seconds), _share(_difference(seconds, ran), seconds)

    def samples_per_second_since(self, earlier: Spent) -> float | None:
        """Return the samples trained in a second of step time since `earlier`. None without readings."""
        seconds, samples = self.measured - earlier.measured, _difference(self.samples, earlier.samples)
        return samples / seconds if samples and seconds > 0 else None


class StepClock:
    """Measures step times by marks between executions, combined into windows of whole executions of at least
    `window_seconds`: short steps are measured in groups. On a GPU, which works asynchronously, a window ends when
    the host has waited for it. `totals` has the seconds of input wait and graph, as in step_parts.py.
    """

    def __init__(
        self,
        warmup: int,
        window_seconds: float = WINDOW_SECONDS,
        totals: Totals = lambda: (None, None),
        samples: Samples = lambda: None,
    ) -> None:
        self.warmup = warmup
        self.warm = False  # the warm-up is over: measure from now on
        self.ended_steps = 0  # of all executions that have ended
        self.measured_steps = 0
        self.measured_seconds = 0.0
        self.step_seconds_total = 0.0  # all steps but the first execution, warm-up included
        self._window_seconds, self._totals, self._samples = window_seconds, totals, samples
        self._first = True
        self._cut = False
        self._since: float | None = None
        self._running = 0
        self._open_seconds, self._open_steps = 0.0, 0
        self.windows = array("d")  # their step times in ms

    @property
    def begun_steps(self) -> int:
        return self.ended_steps + (0 if self._since is None else self._running)

    def mark(self, now: float, count: int) -> None:
        """An execution of `count` steps begins at `now` (seconds of any steady clock)."""
        self._close_execution(now)
        self._since, self._running = now, count

    def pause(self, now: float) -> None:
        """Record that no execution follows directly. The time until the next mark does not count as time of steps."""
        self._close_execution(now)
        self._since = None

    def measured_until(self, now: float) -> float:
        """Return the measured seconds up to `now`, including the present execution if the warm-up is over."""
        running = now - self._since if self._since is not None and self.warm else 0.0
        return self.measured_seconds + running

    def step_seconds_until(self, now: float) -> float:
        """Return the seconds of all steps up to `now` but the first execution, including the present execution."""
        return self.step_seconds_total + (0.0 if self._since is None or self._first else now - self._since)

    def spent(self, now: float) -> Spent:
        return Spent(self.measured_until(now), *self._totals(), self._samples())

    def device_was_waited_for(self) -> None:
        """On a GPU the window then ends with the present execution."""
        self._cut = self._window_seconds == math.inf

    def _close_execution(self, now: float) -> None:
        if self._since is None:
            return
        seconds, steps, was_warm = now - self._since, self._running, self.warm
        self.ended_steps += steps
        self.warm = self.ended_steps >= self.warmup
        if self._first:
            self._first = False
            return
        self.step_seconds_total += seconds
        if not was_warm:
            return
        self.measured_seconds += seconds
        self.measured_steps += steps
        self._open_seconds += seconds
        self._open_steps += steps
        if self._open_seconds >= self._window_seconds or self._cut:
            self._cut = False
            self.windows.append(1000 * self._open_seconds / self._open_steps)
            self._open_seconds, self._open_steps = 0.0, 0

    def overall_ms(self) -> tuple[float | None, float | None]:
        """Return median and 95th percentile of the step time in ms over the whole run, or its mean if it is short."""
        if not self.windows and self._open_steps:
            mean = 1000 * self._open_seconds / self._open_steps
            return mean, mean
        return _percentiles(self.windows)


def _difference(now: float | None, earlier: float | None) -> float | None:
    return None if now is None or earlier is None else now - earlier


def _share(part: float | None, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if part is not None and whole > 0 else None


def _percentiles(values: array[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], values[0]
    return statistics.median(values), statistics.quantiles(values, n=20, method="inclusive")[18]


RECENT_SECONDS = 5.0


@dataclass
class Moment:
    """The state at a pulse: epoch and step (from 1), times since the start, and the running metrics."""

    epoch: int
    step: int
    spent: Spent
    metrics: Mapping[str, float]
    samples: int | None = None  # on which this process has trained
    traces: int | None = None  # of the training function
    loss_scale: float | None = None  # of mixed_float16, and the steps that it has skipped
    skipped_steps: int | None = None
    window_loss: float | None = None  # mean of the steps since the pulse before
    learning_rate: float | None = None  # of the next step


@dataclass
class Plan:
    """The size of the run. A number that is not known is 0."""

    epochs: int
    steps: int
    global_batch_size: int


@dataclass
class FirstSeconds:
    """The seconds of work that is done only once in a run. None if it is not done yet."""

    step: float | None = None
    startup: float | None = None  # from the person's command to the end of the first step
    evaluation: float | None = None
    checkpoint: float | None = None


class Speed:
    """The time of the steps, and the figures that are computed from it."""

    def __init__(self) -> None:
        self.clock = StepClock(warmup=0)
        self.plan = Plan(0, 0, 0)
        self.samples_per_second_at_peak: float | None = None  # of the GPUs
        self.transfer_seconds: float | None = None  # of copying one batch to a GPU
        self.exchange_ms: float | None = None  # of exchanging the gradients of a step with other machines
        self.warm = False
        self.last: Moment | None = None
        self._begun_at_last = 0  # steps of this process at the last pulse
        self._begin: Spent | None = None  # at the end of the warm-up
        self._at_warm: Spent | None = None  # the same, or the first reading of the shares
        self._previous: Spent | None = None
        self._recent: deque[tuple[Spent, int]] = deque()  # with the step, the oldest first

    def begin(
        self, warmup_steps: int, on_gpu: bool, totals: Totals = lambda: (None, None), samples: Samples = lambda: None
    ) -> StepClock:
        """The first steps are a warm-up. On a GPU, a window ends when the host has waited for the device."""
        self.clock = StepClock(warmup_steps, math.inf if on_gpu else WINDOW_SECONDS, totals, samples)
        return self.clock

    def begin_measuring(self, spent: Spent, step: int = 0) -> None:
        """To be called when the warm-up is over, after `step`. `spent` are the times up to now."""
        self.warm = True
        self._begin = self._at_warm = self._previous = spent
        self._recent = deque([(spent, step)])

    def progress(self, moment: Moment) -> events.Progress:
        """Return the progress event of a pulse. Its shares are those since the last pulse, None without a step."""
        stepped = self.last is None or moment.step > self.last.step
        self.last, self._begun_at_last = moment, self.clock.begun_steps
        if self._at_warm and self._at_warm.input_wait is None:
            self._at_warm = moment.spent
        p50, p95 = _percentiles(self.clock.windows[-RECENT_WINDOWS:])
        rate: float | None = None
        step_seconds: float | None = None
        if self._recent:  # over the last RECENT_SECONDS of steps, after the warm-up
            self._recent.append((moment.spent, moment.step))
            while len(self._recent) > 2 and moment.spent.measured - self._recent[1][0].measured >= RECENT_SECONDS:
                self._recent.popleft()
            earlier, step = self._recent[0]
            rate = moment.spent.samples_per_second_since(earlier)
            if moment.step > step:
                step_seconds = (moment.spent.measured - earlier.measured) / (moment.step - step)
        left = max(0, self.plan.steps - moment.step)
        wait, python = moment.spent.shares_since(self._previous) if self._previous and stepped else (None, None)
        self._previous = moment.spent if self.warm else None
        return events.Progress(
            epoch=moment.epoch,
            epochs=self.plan.epochs,
            step=moment.step,
            steps=self.plan.steps,
            samples_per_second=rate,
            samples=moment.samples,
            step_ms_p50=p50,
            step_ms_p95=p95,
            input_wait=wait,
            loss=moment.metrics.get("loss"),
            metrics={k: v for k, v in moment.metrics.items() if k != "loss"},
            eta_seconds=left * step_seconds if step_seconds and self.plan.steps else None,
            mfu=self.mfu(rate),
            loss_scale=moment.loss_scale,
            skipped_steps=moment.skipped_steps,
            python_share=python,
            transfer=self.transfer(p50),
            traces=moment.traces,
            window_loss=moment.window_loss,
            learning_rate=moment.learning_rate,
        )

    @property
    def step(self) -> int:
        """The last step that has ended: that of the last pulse, plus those that the clock has counted since."""
        since = max(0, self.clock.ended_steps - self._begun_at_last)
        return self.last.step + since if self.last else 0

    def shares(self) -> tuple[float | None, float | None]:
        """Return those of waiting for input and of Python (0 to 1), from the warm-up to the last pulse."""
        return self.last.spent.shares_since(self._at_warm) if self.last and self._at_warm else (None, None)

    @property
    def samples_per_second(self) -> float | None:
        return self.last.spent.samples_per_second_since(self._begin) if self.last and self._begin else None

    def transfer(self, step_ms: float | None) -> float | None:
        """Return the time of copying a batch to a GPU, as a share (at most 1) of the step time. None if unknown."""
        if self.transfer_seconds is None or not step_ms:
            return None
        return min(1.0, 1000 * self.transfer_seconds / step_ms)

    def mfu(self, samples_per_second: float | None) -> float | None:
        most = self.samples_per_second_at_peak
        return samples_per_second / most if samples_per_second and most else None


# ---- the report -------------------------------------------------------------------------------------


MOST_NAMED = 4
CREATE_EARLY = (
    "create them in __init__ or in on_train_begin, which are called before a checkpoint is restored; a keras.Variable "
    "is restored whenever it is created"
)


NO_EFFECT = {"train.validation_split": 0.0}  # values other than the default that ask for nothing


def unapplied(inapplicable: Mapping[str, str], options: Options) -> list[dict[str, str]]:
    """Return the inapplicable options that were set to another value than their default, each with the reason; none
    that the fit of a script has set.
    """
    return [
        {"option": info.key, "why": inapplicable[info.key]}
        for info in OPTIONS
        if info.key in inapplicable
        and info.key not in (options.workload.left_to_fit or ())
        and options.value(info.key) not in (info.default, NO_EFFECT.get(info.key, info.default))
    ]


class RunReport:
    """Events by `writer`, the trainer's event file, and the result, with the figures for both."""

    def __init__(self, run: Run, writer: EventWriter) -> None:
        self.run, self.writer = run, writer
        self.engine_pipe: int | None = None  # the pipe to the engine, if there is an engine
        self.heartbeat = TrainerHeartbeat()  # the engine, if there is one, watches it
        self.doing = "importing"  # the phase
        self.gpus: set[str] = set()  # UUIDs of the GPUs that train
        self.device_batches = 0  # copied ahead into the memory of each of them
        self.speed, self.first_seconds = Speed(), FirstSeconds()
        self._epochs, self._epoch_began = 0, time.monotonic()  # epochs that have ended, and when this one has begun
        self._metrics: Mapping[str, float | None] = {}  # of the last epoch
        self._tested: Mapping[str, float | None] = {}  # of the test data
        self._test_epoch: int | None = None
        self.training_since: float | None = None
        self.when_finished: Callable[[int], None] = lambda _returncode: None
        self.when_first_step_is_done: Callable[[], None] = lambda: None
        self.peak_memory_bytes: int | None = None
        self.first_step_memory_bytes: int | None = None
        self.ended_by: str | None = None  # why a training that is ok has ended
        self.resumes = False
        self.missed: list[str] = []  # what was not restored, in this launch or an earlier one
        self.best: dict[str, dict[str, Any]] = {}  # the best epoch, by the option that asks for it
        self._first_steps = 0  # of the first execution
        self._pauses: list[tuple[float, float]] = []  # beginning and end of each, between phases of training
        self._paused_at: float | None = None
        self._warned: set[str] = set()
        self._finishing = threading.Lock()
        self._finished = False

    @property
    def elapsed(self) -> float:
        return self.writer.clock.elapsed()

    def phase(self, phase: events.PhaseName, detail: str = "") -> None:
        now = self.writer.clock.now()
        if self.doing == "training" and phase != "training":
            self._paused_at = now
        elif phase == "training" and self._paused_at is not None:
            self._pauses.append((self._paused_at, now))
            self._paused_at = None
        self.doing = "evaluating" if (phase, detail) == ("compiling", "evaluation") else phase
        self.writer.emit(events.Phase(phase=phase, detail=detail), now)

    def warn(self, kind: str, message: str, hint: str = "", option: str = "") -> None:
        """Only the first warning of each kind and option with the same hint is written."""
        if (key := f"{kind} {option} {hint}") not in self._warned:
            self._warned.add(key)
            self.missed += [message] * (self.resumes and kind in results.INEXACT)
            self.writer.emit(events.Warn(kind=kind, message=message, hint=hint, option=option))

    def not_restored(self, names: Sequence[str]) -> None:
        """Warn that a resumed run has not restored the variables of a user's code with these names, each once."""
        names = [name for name in names if f"not restored: {name}" not in self._warned]
        if not names:
            return
        self._warned |= {f"not restored: {name}" for name in names}
        self.missed += names
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        message = (
            f"not restored: {', '.join(names[:MOST_NAMED])}{more}; they begin with their first values, and figures may "
            "differ from those of a run without a stop"
        )
        self.writer.emit(events.Warn(kind="not_restored", message=message, hint=CREATE_EARLY, variables=list(names)))

    def not_applied(self, options: Sequence[Mapping[str, str]]) -> None:
        """Warn about options that were set but have no effect, each with `why`."""
        for item in options:
            key, why = item["option"], item["why"]
            self.warn("not_applied", f"{key} does nothing here: {why}", remedy(key, why), key)

    def first_step_done(self, seconds: float) -> None:
        self.first_seconds.step, self._first_steps = seconds, self.speed.clock.begun_steps
        self.first_seconds.startup = self.elapsed
        self.training_since = self.writer.clock.now()
        self.when_first_step_is_done()

    def pulse(self, moment: Moment) -> None:
        """The time left includes evaluations, checkpoints and all else between steps, as long as up to now."""
        progress, clock = self.speed.progress(moment), self.speed.clock
        if progress.eta_seconds is not None and self.training_since is not None and clock.begun_steps:
            between = self.writer.clock.now() - self.training_since - clock.step_seconds_until(time.perf_counter())
            between = max(0.0, between - (self.first_seconds.evaluation or 0.0))
            left = max(0, progress.steps - progress.step)
            progress = replace(progress, eta_seconds=progress.eta_seconds + left * between / clock.begun_steps)
        self.writer.emit(progress)

    def memory(self, devices: Mapping[str, Mapping[str, int]], first_step: bool = False) -> None:
        """Write the figures of TensorFlow's allocator, and keep the highest peak. That of the first step is kept
        apart: then readings before the second execution do not count for the other.
        """
        if not devices:
            return
        self.writer.emit(events.Allocator(devices=devices, first_step=first_step))
        peak = max(info["peak_bytes"] for info in devices.values())
        if first_step:
            self.first_step_memory_bytes = peak
        elif self.first_step_memory_bytes is None or self.speed.clock.begun_steps > self._first_steps:
            self.peak_memory_bytes = max(peak, self.peak_memory_bytes or 0)

    def epoch_begins(self) -> None:
        self._epoch_began = time.monotonic()

    def epoch_done(self, epoch: int, step: int, metrics: Mapping[str, float]) -> None:
        seconds = time.monotonic() - self._epoch_began
        self._epochs, self._metrics = epoch, {name: events.finite(value) for name, value in metrics.items()}
        self.writer.emit(events.EpochEnd(epoch=epoch, step=step, metrics=self._metrics, seconds=seconds))

    def tested(self, epoch: int | None, metrics: Mapping[str, float], samples: int | None, seconds: float) -> None:
        """The test data are evaluated, with the weights of the end of `epoch`."""
        self._test_epoch = epoch
        self._tested = {f"test_{name}": events.finite(value) for name, value in metrics.items()}
        self.writer.emit(events.TestEnd(epoch=epoch, metrics=self._tested, samples=samples, seconds=seconds))

    def best_epoch(self, best: events.Best) -> None:
        self.best[best.option] = asdict(best)
        self.writer.emit(best)

    def finish(self, outcome: events.Outcome, returncode: int, error: Mapping[str, str] | None = None) -> None:
        """result.json and the last events, once, in whichever thread. `error` has `kind`, `message`, `hint`."""
        with self._finishing:
            if not self._finished:
                self._finished = True
                summary = events.plain(asdict(self._summary(outcome, returncode, error)))
                if error:
                    self.writer.emit(events.Fault(**error))
                refused = results.write(self.run, summary, results.TRAINER_SECONDS)
                self.phase("ended")
                self.writer.emit(events.Finished(outcome=outcome, summary=summary))
                missing = self.writer.drain(0.0 if refused else results.TRAINER_SECONDS)
                if (refused or missing) and self.engine_pipe is not None:
                    lines = self.writer.unwritten()
                    left = results.Report(summary if refused else None, lines, missing - len(lines))
                    results.hand_over(left, self.engine_pipe)
                elif refused:
                    with contextlib.suppress(OSError):  # a script's standard error may be on the same disk
                        print(f"gputui: the result could not be written: {refused}", file=sys.stderr)
                self.when_finished(returncode)

    def _summary(self, outcome: events.Outcome, returncode: int, error: Mapping[str, str] | None) -> events.Summary:
        speed, first, clock, last = self.speed, self.first_seconds, self.speed.clock, self.speed.last
        p50, p95 = clock.overall_ms()
        seconds = self.elapsed
        wait, python = speed.shares()
        of_engine = read_events(self.run.path, [TELEMETRY_FILE])
        peaks = process_memory.peaks()
        if last is None:  # this process has not trained
            reached = results.reached(read_events(self.run.path))
        else:
            epochs = max(self._epochs, last.epoch - 1)  # a resumed run may have ended none itself
            reached = results.Reached(epochs, speed.step, self._metrics or dict(last.metrics))
        # With the epochs before a resume.
        started, ended = (events_of(self.run.path, kind) for kind in (events.Started, events.EpochEnd))
        learning = judged(RunState.of([*started[-1:], *ended]))
        return events.Summary(
            outcome=outcome,
            trainer_returncode=returncode,
            samples_per_second=speed.samples_per_second,
            step_ms={"p50": p50, "p95": p95} if p50 is not None and p95 is not None else None,
            measured_steps=clock.measured_steps,
            measured_seconds=clock.measured_seconds if clock.measured_steps else None,
            global_batch_size=speed.plan.global_batch_size or None,
            first_step_seconds=first.step,
            startup_seconds=first.startup,
            first_evaluation_seconds=first.evaluation,
            first_checkpoint_seconds=first.checkpoint,
            input_wait=wait,
            python_share=python,
            transfer=speed.transfer(p50),
            exchange_ms=speed.exchange_ms,
            traces=last.traces if last else None,
            peak_memory_bytes=self.peak_memory_bytes or self.first_step_memory_bytes,
            first_step_memory_bytes=self.first_step_memory_bytes,
            peak_process_bytes=peaks.resident,
            peak_address_space_bytes=peaks.address_space,
            **self._gpu_figures(of_engine.of(events.GpuReadings), speed.samples_per_second),
            mfu=speed.mfu(speed.samples_per_second),
            epochs=reached.epochs,
            steps=reached.steps,
            skipped_steps=last.skipped_steps if last else None,
            metrics={**reached.metrics, **self._tested},
            test_epoch=self._test_epoch,
            ended_by=self.ended_by if outcome == "ok" else None,
            best=list((self.best if last else results.best_epochs(read_events(self.run.path))).values()),
            seconds=seconds,
            goodput=clock.step_seconds_total / seconds if seconds else None,
            error=error,
            memory_answers=[events.fields_of(event) for event in of_engine.of(events.MemoryAnswer)],
            xla_answer=events.fields_of(answer) if (answer := of_engine.last(events.XlaAnswer)) else None,
            watch=[events.fields_of(event) for event in of_engine.of(events.WatchAnswer)],
            learning=learning.what,
            learning_remedy=learning.remedy,
            code_changes=code_files.read(self.run).changes,
            not_restored=list(dict.fromkeys(self.missed)),
        )

    def _gpu_figures(
        self, readings: Iterable[events.GpuReadings], samples_per_second: float | None
    ) -> dict[str, float | None]:
        """Return the training GPUs' means while they train, and their energy since the last start, None if unknown."""
        training, whole = GpuTotals(), GpuTotals()
        pauses = deque([*self._pauses, (math.inf if self._paused_at is None else self._paused_at, math.inf)])
        begin = self.writer.clock.now() - self.elapsed
        for event in readings:
            while event.t >= pauses[0][1]:
                pauses.popleft()
                training.pause()
            mine = [gpu for gpu in event.gpus if gpu.uuid in self.gpus]
            trains = self.training_since is not None and self.training_since <= event.t < pauses[0][0]
            for gpu in mine:
                if event.t >= begin:
                    whole.take(event.t, gpu)
                if trains:
                    training.take(event.t, gpu)
        watts, rate = training.watts, samples_per_second
        return training.figures() | {  # Wh of the run and J of a sample; `_estimated`: the driver does not count energy
            f"gpu_energy{'' if whole.counts_energy else '_estimated'}_wh": whole.energy_wh,
            f"sample_energy{'' if training.counts_energy else '_estimated'}_j": (
                watts / rate if watts is not None and rate else None
            ),
        }
