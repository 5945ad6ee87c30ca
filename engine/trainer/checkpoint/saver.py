"""Writes checkpoints when they are due; a training goes on without one that the disk refuses."""

from __future__ import annotations

import time

from ...runs import events
from ..measure.run_report import RunReport
from .checkpoints import Checkpoints, NotWritten


class CheckpointSaver:
    """Knows when a checkpoint is due, writes it, and warns when one is left out and when writing works again."""

    def __init__(self, checkpoints: Checkpoints, report: RunReport, every: int | str) -> None:
        self._checkpoints, self._report, self._every = checkpoints, report, every
        self._due = False
        self._left_out = 0  # since the last one that was written

    def execution_ran(self, step: int, count: int) -> None:
        """The `count` steps up to `step` have been trained."""
        self._due = isinstance(self._every, int) and step // self._every != (step - count) // self._every

    def take_due(self, epoch_ends: bool = False) -> bool:
        """Whether a checkpoint is due; the answer is given once."""
        due, self._due = self._due or (epoch_ends and self._every == "epoch"), False
        return due

    def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps, or leave it out; the next one is tried again."""
        self._report.phase("saving", "checkpoint")
        self._write(step)
        self._report.phase("training")

    def _write(self, step: int) -> None:
        began = time.perf_counter()
        try:
            self._checkpoints.save(step)
        except NotWritten as reason:
            self._left_out += 1
            if self._left_out == 1:
                self._warn(str(reason), "the training goes on, and the next one is tried again")
            return
        self._report.first_checkpoint_done(time.perf_counter() - began)
        if self._left_out:
            self._warn(f"there is a checkpoint again, of step {step}; {self._left_out} were left out")
            self._left_out = 0

    def _warn(self, message: str, hint: str = "") -> None:
        self._report.writer.emit(events.Warn(kind="checkpoint", message=message, hint=hint))
