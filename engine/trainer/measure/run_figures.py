"""The figures of a run as they grow: its speed, its progress, and the times of work that is done only once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ...learning import EpochsSeen
from ...runs import events
from .step_clock import WINDOW_SECONDS, Samples, Spent, StepClock, Totals

RECENT_SECONDS = 5.0


@dataclass
class Moment:
    """The state of the training at a pulse: its epoch and step (from 1), times since the start (`spent`), and the
    running metrics.

    `samples` is the number of samples on which this process has trained.
    `traces` is the number of traces of the training function, `loss_scale` and `skipped_steps` are those of
    mixed_float16, and `window_loss` is the mean loss since the last pulse. None: unknown.
    """

    epoch: int
    step: int
    spent: Spent
    metrics: Mapping[str, float]
    samples: int | None = None
    traces: int | None = None
    loss_scale: float | None = None
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
        self,
        warmup_steps: int,
        on_gpu: bool,
        totals: Totals = lambda: (None, None),
        samples: Samples = lambda: None,
    ) -> StepClock:
        """Return the clock of a training that begins. Its figures leave out the first `warmup_steps` steps.

        With `on_gpu`, the clock ends a window only when the host has waited for the device. `totals` returns the
        seconds of waiting for input and of the graph, and `samples` the samples of the steps up to now.
        """
        self.clock = StepClock(warmup_steps, math.inf if on_gpu else WINDOW_SECONDS, totals, samples)
        return self.clock

    def begin_measuring(self, spent: Spent, step: int = 0) -> None:
        """To be called when the warm-up is over. `spent` are the times up to now, and `step` is the last step."""
        self.warm = True
        self._begin = self._at_warm = self._previous = spent
        self._recent = deque([(spent, step)])

    def progress(self, moment: Moment) -> events.Progress:
        """Return the progress event of a pulse. Its shares are those of the time since the last pulse. None if no step
        was done since.
        """
        stepped = self.last is None or moment.step > self.last.step
        self.last, self._begun_at_last = moment, self.clock.begun_steps
        if self._at_warm and self._at_warm.input_wait is None:
            self._at_warm = moment.spent
        p50, p95 = self.clock.recent_ms()
        rate, step_seconds = self._recent_means(moment)
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
        """The last step that has ended: the step of the last pulse, plus the steps that the clock has counted since.

        0 before the first pulse.
        """
        since = max(0, self.clock.ended_steps - self._begun_at_last)
        return self.last.step + since if self.last else 0

    def shares(self) -> tuple[float | None, float | None]:
        """Return the share (0 to 1) of waiting for input and the share of Python, from the end of the warm-up to the
        last pulse. None if unknown.

        If there was no reading at the end of the warm-up, the shares count from the first pulse that has one.
        """
        return self.last.spent.shares_since(self._at_warm) if self.last and self._at_warm else (None, None)

    def _recent_means(self, moment: Moment) -> tuple[float | None, float | None]:
        """Return the samples per second and the seconds of a step, both as means over the last RECENT_SECONDS of steps.
        None before the end of the warm-up.
        """
        if not self._recent:
            return None, None
        self._recent.append((moment.spent, moment.step))
        while len(self._recent) > 2 and moment.spent.measured - self._recent[1][0].measured >= RECENT_SECONDS:
            self._recent.popleft()
        earlier, step = self._recent[0]
        steps = moment.step - step
        seconds = (moment.spent.measured - earlier.measured) / steps if steps > 0 else None
        return moment.spent.samples_per_second_since(earlier), seconds

    @property
    def samples_per_second(self) -> float | None:
        """The samples trained in a second of step time, from the end of the warm-up to the last pulse."""
        return self.last.spent.samples_per_second_since(self._begin) if self.last and self._begin else None

    def transfer(self, step_ms: float | None) -> float | None:
        """Return the time of copying a batch to a GPU, as a share (at most 1) of the step time `step_ms`. None if one
        of them is unknown.
        """
        if self.transfer_seconds is None or not step_ms:
            return None
        return min(1.0, 1000 * self.transfer_seconds / step_ms)

    def mfu(self, samples_per_second: float | None) -> float | None:
        most = self.samples_per_second_at_peak
        return samples_per_second / most if samples_per_second and most else None


class Epochs:
    """The number of epochs that have ended, and the figures of the last of them."""

    def __init__(self) -> None:
        self.done = 0
        self.metrics: Mapping[str, float | None] = {}
        self.seen = EpochsSeen()
        self._began = time.monotonic()

    def begin(self) -> None:
        self._began = time.monotonic()

    def end(self, epoch: int, step: int, metrics: Mapping[str, float]) -> events.EpochEnd:
        seconds = time.monotonic() - self._began
        self.done = epoch
        self.metrics = {name: events.finite(value) for name, value in metrics.items()}
        self.seen.take(epoch, step, self.metrics)
        return events.EpochEnd(epoch=epoch, step=step, metrics=self.metrics, seconds=seconds)
