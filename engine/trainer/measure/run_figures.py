"""The figures of a run as they grow: its speed, its progress, the times of steps, and those of work that is done
once.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...runs import events

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
