"""Collects the figures of a run, and writes the events and the summary that are made of them, a few times a second."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ... import learning
from ...files.reading import read_object
from ...learning import EpochsSeen
from ...options import OPTIONS, Options, options_json
from ...options.own_code import remedy
from ...runs import Run, code_files, events, results
from ...runs.event_reading import read_events
from ...runs.events import TELEMETRY_FILE
from ...runs.parsing import EventWriter
from ...system import process_memory
from ...system.heartbeat import TrainerHeartbeat
from ...telemetry.gpu_totals import GpuTotals
from .run_figures import FirstSeconds, Moment, Speed

MOST_NAMED = 4
CREATE_EARLY = (
    "create them in __init__ or in on_train_begin, which are called before a checkpoint is restored; a keras.Variable "
    "is restored whenever it is created"
)


NO_EFFECT = {"train.validation_split": 0.0}  # values other than the default that ask for nothing


def unapplied(inapplicable: Mapping[str, str], options: Options) -> list[dict[str, str]]:
    """Return the inapplicable options that were set to another value than their default, each with the reason."""
    return [
        {"option": info.key, "why": inapplicable[info.key]}
        for info in OPTIONS
        if info.key in inapplicable
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
        self._seen = EpochsSeen()
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
        """Only the first warning of each kind and option is written."""
        if (key := kind + option) not in self._warned:
            self._warned.add(key)
            self.missed += [message] * (self.resumes and kind in results.INEXACT)
            self.writer.emit(events.Warn(kind=kind, message=message, hint=hint, option=option))

    def not_restored(self, names: Sequence[str]) -> None:
        """Warn that a resumed run has not restored the variables of a user's code with these names."""
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
        self._seen.take(epoch, step, self._metrics)
        self.writer.emit(events.EpochEnd(epoch=epoch, step=step, metrics=self._metrics, seconds=seconds))

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
            metrics=reached.metrics,
            ended_by=self.ended_by if outcome == "ok" else None,
            best=list((self.best if last else results.best_epochs(read_events(self.run.path))).values()),
            seconds=seconds,
            goodput=clock.step_seconds_total / seconds if seconds else None,
            error=error,
            memory_answers=[events.fields_of(event) for event in of_engine.of(events.MemoryAnswer)],
            xla_answer=events.fields_of(answer) if (answer := of_engine.last(events.XlaAnswer)) else None,
            learning=self._learning(),
            code_changes=code_files.read(self.run).changes,
            not_restored=list(dict.fromkeys(self.missed)),
        )

    def _learning(self) -> str:
        """Return the sentence that it has diverged or learns nothing. A resumed run reads its first epochs."""
        seen = self._seen
        if seen.first is None or seen.first[0] > 1:
            earlier = EpochsSeen()
            for event in read_events(self.run.path).of(events.EpochEnd):
                earlier.take(event.epoch, event.step, event.metrics)
            seen = EpochsSeen(earlier.first, seen.last or earlier.last, seen.step or earlier.step)
        workload = read_object(self.run.file(options_json.FILE)).value.get("workload") or {}
        return learning.judged(seen, {f"workload.{name}": value for name, value in workload.items()})

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
