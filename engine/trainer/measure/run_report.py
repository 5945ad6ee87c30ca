"""The figures of a run as they grow, and the events made of them.

Separates measuring and saying from training: the loop tells what happened, this turns it into events and, at the
end, into the summary. Nothing here is called more often than a few times a second.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ...runs import Run, Tail, events, results
from .clock import Spent, StepClock


@dataclass
class Moment:
    """What the loop knows at a pulse: totals since the start, metrics as they run."""

    epoch: int
    step: int
    spent: Spent
    metrics: Mapping[str, float]
    traces: int | None = None
    loss_scale: float | None = None
    skipped_steps: int | None = None


@dataclass
class Plan:
    """The size of the run; 0 is not known."""

    epochs: int
    steps: int
    global_batch_size: int


class RunReport:
    """Collects a run's figures; writes its events and its result."""

    def __init__(self, run: Run, writer: events.EventWriter) -> None:
        self.run, self.writer = run, writer
        self.engine_pipe: int | None = None  # the pipe to the engine, where there is one
        self.doing = "importing"  # the phase
        self.clock = StepClock(warmup=0)
        self.plan = Plan(0, 0, 0)
        self.gpus: set[str] = set()  # UUIDs of those that train
        self.step_at_peak_ms: float | None = None  # a step that does its arithmetic at the GPUs' peak
        self.first_step_seconds: float | None = None
        self.startup_seconds: float | None = None
        self.first_evaluation_seconds: float | None = None
        self.first_checkpoint_seconds: float | None = None
        self.peak_memory_bytes: int | None = None
        self.epochs_done = 0
        self._epoch_began = time.monotonic()
        self.metrics: Mapping[str, float | None] = {}
        self.last: Moment | None = None
        self.training_since: float | None = None
        self.warm = False
        self._at_warm: Spent | None = None
        self._previous: Spent | None = None
        self._warned: set[str] = set()
        self._finishing = threading.Lock()
        self._finished = False

    @property
    def elapsed(self) -> float:
        """Seconds since the person started the run."""
        return self.writer.clock.elapsed()

    def phase(self, phase: str, detail: str = "") -> None:
        self.doing = phase
        self.writer.emit(events.Phase(phase=phase, detail=detail))

    def warn(self, kind: str, message: str, hint: str = "", option: str = "") -> None:
        """Once for each kind and option."""
        if (key := kind + option) not in self._warned:
            self._warned.add(key)
            self.writer.emit(events.Warn(kind=kind, message=message, hint=hint, option=option))

    def first_step_done(self, seconds: float) -> None:
        self.first_step_seconds = seconds
        self.startup_seconds = self.elapsed
        self.training_since = self.writer.clock.now()

    def first_checkpoint_done(self, seconds: float) -> None:
        """A checkpoint has been written; those after the first change nothing."""
        if self.first_checkpoint_seconds is None:
            self.first_checkpoint_seconds = seconds

    def begin_measuring(self, spent: Spent) -> None:
        """The warm-up is over."""
        self.warm = True
        self._at_warm = self._previous = spent

    def pulse(self, moment: Moment) -> None:
        """Write a progress event."""
        self.last = moment
        p50, p95 = self.clock.recent_ms()
        left = max(0, self.plan.steps - moment.step)
        wait, python = moment.spent.shares_since(self._previous) if self._previous else (None, None)
        self._previous = moment.spent if self.warm else None
        self.writer.emit(
            events.Progress(
                epoch=moment.epoch,
                epochs=self.plan.epochs,
                step=moment.step,
                steps=self.plan.steps,
                samples_per_second=self._speed(p50),
                step_ms_p50=p50,
                step_ms_p95=p95,
                input_wait=wait,
                loss=moment.metrics.get("loss"),
                metrics={k: v for k, v in moment.metrics.items() if k != "loss"},
                eta_seconds=left * p50 / 1000 if p50 and self.plan.steps else None,
                mfu=self._mfu(p50),
                loss_scale=moment.loss_scale,
                skipped_steps=moment.skipped_steps,
                python_share=python,
                traces=moment.traces,
            )
        )

    def memory(self, devices: Mapping[str, Mapping[str, int]]) -> None:
        """Write TensorFlow's own memory figures and keep the peak."""
        if devices:
            self.writer.emit(events.Allocator(devices=devices))
            peak = max(info["peak_bytes"] for info in devices.values())
            self.peak_memory_bytes = max(peak, self.peak_memory_bytes or 0)

    def epoch_begins(self) -> None:
        self._epoch_began = time.monotonic()

    def epoch_done(self, epoch: int, step: int, metrics: Mapping[str, float]) -> None:
        seconds = time.monotonic() - self._epoch_began
        self.epochs_done = epoch
        self.metrics = {name: events.finite(value) for name, value in metrics.items()}
        self.writer.emit(events.EpochEnd(epoch=epoch, step=step, metrics=self.metrics, seconds=seconds))

    def finish(self, outcome: str, returncode: int, error: Mapping[str, str] | None = None) -> None:
        """Write result.json and the last events; a second call, from whichever thread, does nothing."""
        with self._finishing:
            if not self._finished:
                self._finished = True
                self._leave(outcome, returncode, error)

    def _leave(self, outcome: str, returncode: int, error: Mapping[str, str] | None) -> None:
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
            with contextlib.suppress(OSError):  # a script's standard error may lie on the same disk
                print(f"gputui: no result is left: {refused}", file=sys.stderr)

    def _summary(self, outcome: str, returncode: int, error: Mapping[str, str] | None) -> events.Summary:
        p50, p95 = self.clock.overall_ms()
        seconds = self.elapsed
        wait, python = self.last.spent.shares_since(self._at_warm) if self.last and self._at_warm else (None, None)
        return events.Summary(
            outcome=outcome,
            trainer_returncode=returncode,
            samples_per_second=self._speed(p50),
            step_ms={"p50": p50, "p95": p95} if p50 is not None and p95 is not None else None,
            measured_steps=self.clock.measured_steps,
            measured_seconds=self.clock.measured_seconds if self.clock.measured_steps else None,
            global_batch_size=self.plan.global_batch_size or None,
            first_step_seconds=self.first_step_seconds,
            startup_seconds=self.startup_seconds,
            first_evaluation_seconds=self.first_evaluation_seconds,
            first_checkpoint_seconds=self.first_checkpoint_seconds,
            input_wait=wait,
            python_share=python,
            traces=self.last.traces if self.last else None,
            peak_memory_bytes=self.peak_memory_bytes,
            gpu_busy_mean=self._gpu_busy_mean(),
            mfu=self._mfu(p50),
            epochs=self.epochs_done,
            steps=self.last.step if self.last else 0,
            skipped_steps=self.last.skipped_steps if self.last else None,
            metrics=self.metrics or ({} if self.last is None else dict(self.last.metrics)),
            seconds=seconds,
            goodput=self.clock.step_seconds_total / seconds if seconds else None,
            error=error,
        )

    def _speed(self, step_ms: float | None) -> float | None:
        batch = self.plan.global_batch_size
        return 1000 * batch / step_ms if step_ms and batch else None

    def _mfu(self, step_ms: float | None) -> float | None:
        return self.step_at_peak_ms / step_ms if self.step_at_peak_ms and step_ms else None

    def _gpu_busy_mean(self) -> float | None:
        """Mean over the GPUs that train, of the engine's readings since training began."""
        if self.training_since is None:
            return None
        readings: list[float] = []
        for event in Tail(self.run.file("telemetry.jsonl")).read():
            if event["type"] == "gpu" and event["t"] >= self.training_since:
                mine = [gpu for gpu in event.get("gpus", []) if gpu.get("uuid") in self.gpus]
                readings.extend(gpu["busy"] for gpu in mine if gpu.get("busy") is not None)
        return sum(readings) / len(readings) if readings else None
