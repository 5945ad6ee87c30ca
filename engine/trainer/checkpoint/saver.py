"""Checkpoints as far as the disk takes them: one that cannot be written is left out, as a training needs none."""

from __future__ import annotations

import time

from ...runs import events
from ..measure.run_report import RunReport
from .checkpoints import Checkpoints, NotWritten


class CheckpointSaver:
    """Writes checkpoints, and tells when one is left out and when there is one again."""

    def __init__(self, checkpoints: Checkpoints, report: RunReport) -> None:
        self._checkpoints, self._report = checkpoints, report
        self._left_out = 0  # since the last one that was written

    def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps, or leave it out; the next one is tried again."""
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
