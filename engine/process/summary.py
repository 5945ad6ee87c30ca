"""Builds the summary of a run whose trainer left none, from its last events."""

from __future__ import annotations

from ..files.values import whole
from ..runs import Run, code_files
from ..runs.events import Allocator, EpochEnd, MemoryAnswer, Progress, Started, Summary, XlaAnswer, fields_of
from ..runs.reading import ENGINE_FILE, TRAINER_FILE, RunEvents, read_events
from ..system import memory_peaks
from .ending import Ending


def summary_of(run: Run, end: Ending, returncode: int | None, seconds: float) -> Summary:
    """The summary with this ending and the trainer's last figures."""
    found = read_events(run.path, [TRAINER_FILE])
    changed = read_events(run.path, [ENGINE_FILE])
    progress, epoch, started = found.last(Progress), found.last(EpochEnd), found.last(Started)
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
        epochs=epoch.epoch if epoch else 0,
        steps=progress.step if progress else 0,
        metrics=(epoch.metrics if epoch else None) or _means_so_far(progress),
        seconds=seconds,
        error={"kind": end.kind, "message": end.message, "hint": end.hint},
        memory_answers=[fields_of(event) for event in changed.of(MemoryAnswer)],
        xla_answer=fields_of(answer) if (answer := changed.last(XlaAnswer)) else None,
        code_changes=code_files.read(run).changes,
    )


def _means_so_far(progress: Progress | None) -> dict[str, float]:
    """The figures of an epoch that was not completed."""
    figures = {"loss": progress.loss, **progress.metrics} if progress else {}
    return {name: value for name, value in figures.items() if value is not None}


def _allocated(found: RunEvents, first_step: bool) -> int | None:
    """The most that TensorFlow's allocator has told of one device, in the first step or after it."""
    readings = [event for event in found.of(Allocator) if event.first_step is first_step]
    peaks = [whole(of.get("peak_bytes")) or 0 for event in readings for of in event.devices.values()]
    return max(peaks, default=0) or None
