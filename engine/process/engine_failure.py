"""Ends a run whose engine itself fails: the trainer is stopped gracefully, and the result says why."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..files import places
from ..files.writing import write_atomically
from ..notify import sending
from ..runs import Run, events
from ..runs.events import TELEMETRY_FILE
from ..runs.parsing import EventWriter
from ..system import descendants, stop_signals
from . import ending
from .spawn import Trainer


def leave(run_folder: str, trainer: Trainer | None, fault: BaseException) -> int:
    """End the run after the exception `fault` of its engine, and write the result. Returns the exit status, 1.
    `trainer` is None if none was started. A result that exists keeps its figures; an unreadable one is not changed.
    """
    traceback.print_exc()
    if trainer is not None:
        _end(trainer)
    places.remove_scratch()
    descendants.end_descendants(spared=trainer.process.pid if trainer is not None else 0)
    run = Run(Path(run_folder))
    what = f"{type(fault).__name__}: {fault}"[:240]
    error = {"kind": "engine", "message": f"the engine failed: {what}", "hint": "see the end of engine.log"}
    if end := ending.of_fault(fault):
        error = {"kind": end.kind, "message": end.message, "hint": end.hint}
    written = run.read_result()
    summary: dict[str, Any] = asdict(events.Summary(outcome="error")) | dict(written.value)
    summary |= {"outcome": "error", "error": error}
    if not written.unreadable:  # else its figures would be lost
        write_atomically(run.file("result.json"), json.dumps(events.plain(summary), indent=1))
    writer = EventWriter(run.file(TELEMETRY_FILE), run.id)
    writer.emit(events.Fault(**error))
    writer.emit(events.Finished(outcome="error", summary=summary))
    sending.after_run(run, writer.emit)
    writer.close()
    return 1


def _end(trainer: Trainer) -> None:
    """Ask the trainer to stop, so that it can save a checkpoint, and kill it if it has not ended after 30 s."""
    with contextlib.suppress(OSError):
        os.write(trainer.lifeline, b"stop\n")
    try:
        trainer.process.wait(stop_signals.GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        trainer.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that the kernel holds does not end
            trainer.process.wait(stop_signals.GRACE_SECONDS)
