"""Prints a run without the screen: plain lines, or a progress bar on a terminal, both ending in a summary table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from ...engine.checks import Finding
from ...engine.figures import GPU, LOSS, at, metric, shown, summed_up
from ...engine.runs import Run, checkpoint_files, events, titles
from ...engine.runs.events import Event, fields_of
from ...engine.units import NONE, amount, counted, seconds
from ..base.errors import clean, complain, error_text
from ..reading.run.epoch_mean import of_result
from ..wording import best_epoch
from ..wording import run as wording
from ..wording.run import DOING, ENDED, compiling, doing, is_early, scaled_learning_rate

LINE_SECONDS = 5.0
_SAID = ("importing", "configuring", "building", "evaluating", "saving")


class LineView:
    """Prints the events as plain lines: phases, a line of progress every few seconds, every epoch, every warning."""

    def __init__(self, run: Run, out: Console) -> None:
        self.run, self.out = run, out
        self.gpu: Mapping[str, Any] | None = None  # the busiest of those that train
        self._training_gpus: Sequence[str] = ()
        self._devices: Sequence[str] = ()
        self._next_line = 0.0
        self._doing = ""
        self._workers: events.WorkerReadings | None = None
        self._slowest: int | None = None
        self._step, self._steps = 0, 0

    def findings(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.line(f"{finding.level}: {finding}")
        title = f"{titles.with_name(self.run)}  " if self.run.number is not None else ""
        self.line(f"{title}run {self.run.id}")

    def line(self, text: str) -> None:
        self.out.print(Text(clean(text)), soft_wrap=True)

    def show(self, event: Event) -> None:
        if isinstance(event, events.Progress | events.EpochEnd):
            self._step = max(self._step, event.step)
        if isinstance(event, events.Progress):
            self._steps = event.steps
        handler = getattr(self, f"on_{event.type}", None)
        if handler is not None:
            handler(event)

    def stopping(self, more: str) -> None:
        self.line(f"stopping after this step{more}")

    def close(self) -> None:
        pass

    def on_phase(self, event: events.Phase) -> None:
        now = compiling(event.detail) if event.phase == "compiling" else _doing(event)
        if now and now != self._doing and event.phase not in ("evaluating", "saving"):
            self.line(f"{now} ...")
        self._doing = now

    def on_started(self, event: events.Started) -> None:
        self._training_gpus, self._devices = event.gpus, event.devices
        where = ", ".join(name.split("device:")[-1] for name in event.devices)
        replicas = f", {event.replicas} replicas" if (event.replicas or 1) > 1 else ""
        if event.worker is not None and event.workers:
            replicas += f" on {counted(len(event.workers), 'workers')}, this one worker {event.worker}"
        resumed = event.resumed_at_step
        self.line(
            f"TensorFlow {event.versions.get('tensorflow', NONE)} on {where}{replicas}; global batch "
            f"{event.global_batch_size}, {counted(event.steps_per_epoch, 'steps')} per epoch, "
            f"{counted(event.epochs, 'epochs')}"
            + (f"; {rate}" if (rate := scaled_learning_rate(fields_of(event))) else "")
            + (f"; resumed after step {resumed}" if resumed is not None else "")
        )

    def on_gpu(self, event: events.GpuReadings) -> None:
        if event.missing:
            self.line(f"no GPU readings: {event.missing}")
        training = [gpu for gpu in event.gpus if gpu.get("uuid") in self._training_gpus]
        self.gpu = max(training, key=lambda gpu: gpu.get("busy") or -1, default=None)

    def on_warning(self, event: events.Warn) -> None:
        self.line(f"warning: {error_text(fields_of(event))}".replace("\n", "; "))

    def on_epoch(self, event: events.EpochEnd) -> None:
        metrics = "  ".join(f"{name} {amount(value)}" for name, value in event.metrics.items())
        self.line(f"epoch {event.epoch}  {metrics}  in {seconds(event.seconds)}")

    def on_progress(self, event: events.Progress) -> None:
        if event.t >= self._next_line:
            self._next_line = event.t + LINE_SECONDS
            self.line(f"step {event.step}/{event.steps}  {self.speeds(event)}")

    def speeds(self, event: events.Progress) -> str:
        so_far = {LOSS: " so far"}  # the mean of the epoch
        parts = [figure.phrase(getattr(event, figure.progress)) + so_far.get(figure, "") for figure in shown("live")]
        if self.gpu is not None:
            device = ", ".join(GPU[key].phrase(self.gpu.get(key)) for key in ("busy", "memory_used_bytes"))
            parts.append(f"GPU {device}")
        return "  ".join(parts)

    def on_workers(self, event: events.WorkerReadings) -> None:
        self._workers = event
        if event.slowest != self._slowest:
            self._slowest = event.slowest
            self._say_workers()

    def _say_workers(self) -> None:
        for line in wording.worker_lines(fields_of(self._workers)) if self._workers else ():
            self.line(line)

    def on_finished(self, event: events.Finished) -> None:
        self.close()
        summary = event.summary
        error = summary.get("error")
        if error:
            complain(error_text(error), limit=len(error_text(error)))
        self._say_workers()
        self.out.print(summary_table(summary, self._devices))
        for sentence in best_epoch.sentences(summary):
            self.line(sentence)
        if summary.get("learning"):
            self.line(clean(summary["learning"]))
        early = is_early(event.outcome, self._step, self._steps) and not best_epoch.stopped_early(summary)
        at = f" early: a callback ended the training after step {self._step:,} of {self._steps:,}" if early else ""
        ended, why = ENDED.get(event.outcome, event.outcome), clean((error or {}).get("message", "")).partition("\n")[0]
        ended = why if why.startswith(ended) else f"{ended}: {why}" if why else ended
        self.line(f"{ended}{at}; everything is in {self.run.path}")
        has_checkpoints = bool(checkpoint_files.steps_in(self.run.file("checkpoints")))
        if has_checkpoints and event.outcome in ("stopped", "timeout", "crashed"):
            self.line(f"gputui resume {self.run.name} continues from the last checkpoint")


def _doing(event: events.Phase) -> str:
    if events.waits_for_others(event.phase, event.detail):
        return doing(event.phase, event.detail)
    return DOING[event.phase] if event.phase in _SAID else ""


class BarView(LineView):
    """Prints the same lines as LineView, but shows the progress as one bar in the last line. For a terminal."""

    def __init__(self, run: Run, out: Console) -> None:
        super().__init__(run, out)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            console=out,
            transient=True,
            refresh_per_second=5,
        )
        self._task: TaskID | None = None
        self._started = False

    def line(self, text: str) -> None:
        self._bar.console.print(Text(clean(text)))

    def on_phase(self, event: events.Phase) -> None:
        now = _doing(event)
        if now and event.phase in ("evaluating", "saving"):
            self._update(description=now)
        elif now:
            self._update(description=now, figures="")

    def on_progress(self, event: events.Progress) -> None:
        self._update(
            description=f"epoch {event.epoch}/{event.epochs}",
            completed=event.step,
            total=event.steps,
            figures=self.speeds(event),
        )

    def _update(self, **fields: Any) -> None:
        if not self._started:
            self._bar.start()
            self._started = True
        if self._task is None:
            self._task = self._bar.add_task("", total=None, figures="")
        self._bar.update(self._task, **fields)

    def close(self) -> None:
        if self._started:
            self._bar.stop()
            self._started = False


def summary_table(summary: Mapping[str, Any], devices: Sequence[str]) -> Table:
    """Return a table of the results of a run, `summary` of its last event, with names and values. `devices` are the
    names of the devices that have trained."""
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = [(figure.label, figure.text(at(summary, figure.key))) for figure in summed_up(devices) if figure is not LOSS]
    metrics = summary.get("metrics") or {}
    rows += [(metric(name).label, metric(name).text(value)) for name, value in metrics.items()]
    if metrics:
        rows.append(("loss, metrics", f"means of the {of_result(summary, next(iter(metrics))).steps}"))
    rows = [(name, value) for name, value in rows if value != NONE]
    for name, value in rows:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    return table
