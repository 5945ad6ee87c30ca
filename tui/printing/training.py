"""Prints a run without the screen: plain lines, or a progress bar on a terminal, both ending in a summary table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from ...engine.checks import Finding
from ...engine.runs import Run, checkpoint_files
from ..base.errors import clean, error_text
from ..reading.epoch_mean import of_result
from ..text.figures import NONE, amount, compiling, seconds, share, size

LINE_SECONDS = 5.0
_DOING = {
    "importing": "importing TensorFlow",
    "configuring": "opening devices",
    "building": "building",
    "evaluating": "evaluating",
    "saving": "saving",
}


class LineView:
    """Events as plain lines: phases, one line of progress every few seconds, every epoch, every warning."""

    def __init__(self, run: Run, out: Console) -> None:
        self.run, self.out = run, out
        self.gpu: Mapping[str, Any] | None = None  # the busiest of those that train
        self._training_gpus: Sequence[str] = ()
        self._next_line = 0.0
        self._doing = ""

    def findings(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.line(f"{finding.level}: {finding}")
        self.line(f"run {self.run.id}")

    def line(self, text: str) -> None:
        self.out.print(Text(clean(text)), soft_wrap=True)

    def show(self, event: Mapping[str, Any]) -> None:
        handler = getattr(self, f"on_{event['type']}", None)
        if handler is not None:
            handler(event)

    def stopping(self) -> None:
        self.line("stopping after this step; press Ctrl-C again to end it at once")

    def close(self) -> None:
        pass

    def on_phase(self, event: Mapping[str, Any]) -> None:
        doing = compiling(event["detail"]) if event["phase"] == "compiling" else _DOING.get(event["phase"], "")
        if doing and doing != self._doing and event["phase"] not in ("evaluating", "saving"):
            self.line(f"{doing} ...")
        self._doing = doing

    def on_started(self, event: Mapping[str, Any]) -> None:
        self._training_gpus = event["gpus"]
        where = ", ".join(name.split("device:")[-1] for name in event["devices"])
        replicas = f", {event['replicas']} replicas" if event["replicas"] > 1 else ""
        resumed = event.get("resumed_at_step")
        self.line(
            f"TensorFlow {event['versions']['tensorflow']} on {where}{replicas}; global batch "
            f"{event['global_batch_size']}, {event['steps_per_epoch']} steps per epoch, {event['epochs']} epochs"
            + (f"; resumed after step {resumed}" if resumed is not None else "")
        )

    def on_gpu(self, event: Mapping[str, Any]) -> None:
        if event.get("missing"):
            self.line(f"no GPU readings: {event['missing']}")
        training = [gpu for gpu in event["gpus"] if gpu.get("uuid") in self._training_gpus]
        self.gpu = max(training, key=lambda gpu: gpu.get("busy") or -1, default=None)

    def on_warning(self, event: Mapping[str, Any]) -> None:
        self.line(f"warning: {error_text(event)}".replace("\n", "; "))

    def on_epoch(self, event: Mapping[str, Any]) -> None:
        metrics = "  ".join(f"{name} {amount(value)}" for name, value in event["metrics"].items())
        self.line(f"epoch {event['epoch']}  {metrics}  in {seconds(event['seconds'])}")

    def on_progress(self, event: Mapping[str, Any]) -> None:
        if event["t"] >= self._next_line:
            self._next_line = event["t"] + LINE_SECONDS
            self.line(f"step {event['step']}/{event['steps']}  {self.speeds(event)}")

    def speeds(self, event: Mapping[str, Any]) -> str:
        """The live figures of a progress event in one line."""
        parts = [
            f"{amount(event['samples_per_second'])} samples/s",
            f"{amount(event['step_ms_p50'])} ms/step",
            f"input wait {share(event['input_wait'])}",
            f"loss {amount(event['loss'])} so far",
        ]
        if self.gpu is not None:
            parts.append(f"GPU busy {share(self.gpu.get('busy'))}, {size(self.gpu.get('memory_used_bytes'))}")
        return "  ".join([*parts, f"{seconds(event['eta_seconds'])} left"])

    def on_finished(self, event: Mapping[str, Any]) -> None:
        self.close()
        summary = event["summary"]
        error = summary.get("error")
        if error:
            self.line(error_text(error))
        self.out.print(summary_table(summary))
        self.line(f"{_ENDED.get(event['outcome'], event['outcome'])}; everything is in {self.run.path}")
        has_checkpoints = bool(checkpoint_files.steps_in(self.run.file("checkpoints")))
        if has_checkpoints and event["outcome"] in ("stopped", "timeout", "crashed"):
            self.line(f"gputui resume {self.run.id} continues from the last checkpoint")


_ENDED = {
    "ok": "done",
    "oom": "out of memory",
    "error": "failed",
    "stopped": "stopped",
    "timeout": "ended by its time limit",
    "crashed": "crashed",
}


class BarView(LineView):
    """On a terminal: the same, with the progress in one bar that stays in place."""

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

    def on_phase(self, event: Mapping[str, Any]) -> None:
        doing = _DOING.get(event["phase"])
        if doing is not None and event["phase"] in ("evaluating", "saving"):
            self._update(description=doing)
        elif doing is not None:
            self._update(description=doing, figures="")

    def on_progress(self, event: Mapping[str, Any]) -> None:
        self._update(
            description=f"epoch {event['epoch']}/{event['epochs']}",
            completed=event["step"],
            total=event["steps"],
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


def summary_table(summary: Mapping[str, Any]) -> Table:
    """What a run came to, in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False)
    step_ms = summary.get("step_ms") or {}
    metrics = summary.get("metrics") or {}
    waited, memory, busy = (summary.get(name) for name in ("input_wait", "peak_memory_bytes", "gpu_busy_mean"))
    rows = [
        ("samples/s", amount(summary.get("samples_per_second"))),
        ("step time", step_ms and f"{amount(step_ms.get('p50'))} ms (p95 {amount(step_ms.get('p95'))}), "
                                  f"from {summary.get('measured_steps', 0)} steps"),
        ("input wait", share(waited)),
        *((name.replace("_", " "), amount(value)) for name, value in metrics.items()),
        ("loss, metrics", metrics and f"means of the {of_result(summary, next(iter(metrics))).steps}"),
        ("epochs, steps", f"{summary.get('epochs', 0)}, {summary.get('steps', 0)}"),
        ("first step", seconds(summary.get("first_step_seconds"))),
        ("first evaluation", seconds(summary.get("first_evaluation_seconds"))),
        ("start-up", seconds(summary.get("startup_seconds"))),
        ("whole time", f"{seconds(summary.get('seconds'))}, {share(summary.get('goodput'))} of it training steps"),
        ("peak memory", memory and f"{size(memory)} of TensorFlow's tensors"),
        ("GPU busy", share(busy)),
        ("skipped steps", summary.get("skipped_steps")),
    ]
    rows = [(name, value) for name, value in rows if value not in (None, NONE, {})]
    for name, value in rows:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    return table
