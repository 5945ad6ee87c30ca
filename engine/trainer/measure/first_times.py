"""Measures work that is done only once in a run: tracing the evaluation, and compiling by XLA for another batch size.

TensorFlow traces a function at its first call. XLA compiles it again for each size of a batch, so that a smaller last
batch takes as long as the first. These times must not count as the duration of an evaluation or a step.
"""

from __future__ import annotations

import time

from ..data.batches import Batches
from .run_report import RunReport


class FirstEvaluation:
    """Reports the tracing and compiling of the first evaluation as a phase, and keeps its time."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._since: float | None = None

    @property
    def done(self) -> bool:
        """True if an evaluation has been traced."""
        return self._report.first_seconds.evaluation is not None

    def begins(self) -> None:
        """To be called when an evaluation begins. It reports the phase: `compiling` for the first evaluation, else
        `evaluating`.

        The first one also makes the iterator over its data, which counts as compiling.
        """
        if self.done:
            self._report.phase("evaluating")
        else:
            self._since = None  # of an evaluation that ended before it ran
            self.compile()

    def compile(self) -> None:
        """Report that compiling begins. Does nothing if it has already begun."""
        if self._since is None:
            self._since = time.perf_counter()
            self._report.phase("compiling", "evaluation")

    def compiled(self) -> None:
        """Report that the compiling has ended, and add its time to the time of the first evaluation."""
        if self._since is not None:
            seconds = time.perf_counter() - self._since
            self._report.first_seconds.evaluation = (self._report.first_seconds.evaluation or 0.0) + seconds
            self._since = None
        self._report.phase("evaluating")


class FirstTimes:
    """Decides which execution is the first of its kind, so that its time is reported as `compiling`.

    `xla` is True if XLA compiles the steps: it then compiles again for a smaller last batch of `pipeline`.
    """

    def __init__(self, report: RunReport, pipeline: Batches, xla: bool) -> None:
        self.evaluation = FirstEvaluation(report)
        self._per_pass = pipeline.batches_per_pass if xla and pipeline.smaller_last_batch else None
        samples, batch = pipeline.validation_samples, pipeline.global_batch_size
        self._smaller_test = xla and pipeline.replicas == 1 and (samples is None or samples % batch != 0)

    def meets_smaller_batch(self, step: int, count: int) -> bool:
        """Return True if the `count` training steps after `step` include the first smaller batch, for which XLA
        compiles again.

        True only once. Always False without XLA.
        """
        if self._per_pass is None or step // self._per_pass == (step + count) // self._per_pass:
            return False
        self._per_pass = None
        return True

    def test_begins(self, left: int) -> bool:
        """Return True if the next execution of the evaluation is the first of its kind, so that it is compiled. This is
        then reported.

        `left` is the number of batches that remain after it.
        """
        smaller = self._smaller_test and left == 0
        if self.evaluation.done and not smaller:
            return False
        self._smaller_test = self._smaller_test and not smaller
        self.evaluation.compile()
        return True
