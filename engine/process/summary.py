"""Builds the summary of a run whose trainer left none, from its last events."""

from __future__ import annotations

from ..files.values import whole
from ..runs import Run, checkpoint_files, code_files, results
from ..runs.events import Allocator, MemoryAnswer, Progress, Started, Summary, XlaAnswer, fields_of
from ..runs.reading import RunEvents, read_events
from ..system import memory_peaks
from .ending import Ending


def summary_of(run: Run, end: Ending, returncode: int | None, seconds: float) -> Summary:
    """The summary with this ending and the trainer's last figures."""
    found = read_events(run.path)
    progress, started, reached = found.last(Progress), found.last(Started), results.reached(found)
    p50, p95 = (progress.step_ms_p50, progress.step_ms_p95) if progress else (None, None)
    return Summary(
        outcome=end.outcome,
        trainer_returncode=returncode,
        samples_per_second=progress.samples_per_second if progress else None,
        measured_steps=None,
        step_ms={"p50": p50, "p95": p95} if p50 is not None and p95 is not None else None,
        global_batch_size=started.global_batch_size if started else None,
        input_wait=progress.input_wait if progress else None,
        python_share=progress.python_share if progress else None,
        traces=progress.traces if progress else None,
        peak_memory_bytes=_allocated(found, first_step=False) or _allocated(found, first_step=True),
        first_step_memory_bytes=_allocated(found, first_step=True),
        peak_process_bytes=memory_peaks.of_ended_children().resident,
        epochs=reached.epochs,
        steps=max(reached.steps, *checkpoint_files.steps_in(run.file("checkpoints")), 0),
        metrics=reached.metrics,
        seconds=seconds,
        error={"kind": end.kind, "message": end.message, "hint": end.hint},
        memory_answers=[fields_of(event) for event in found.of(MemoryAnswer)],
        xla_answer=fields_of(answer) if (answer := found.last(XlaAnswer)) else None,
        code_changes=code_files.read(run).changes,
    )


def _allocated(found: RunEvents, first_step: bool) -> int | None:
    """The most that TensorFlow's allocator has told of one device, in the first step or after it."""
    readings = [event for event in found.of(Allocator) if event.first_step is first_step]
    peaks = [whole(of.get("peak_bytes")) or 0 for event in readings for of in event.devices.values()]
    return max(peaks, default=0) or None
