"""What is done once in a run, wherever it happens: the evaluation's tracing, and what XLA compiles for another batch.

Separates it from what is repeated: the first evaluation is no measure of the next one, and nothing to be made faster.
TensorFlow traces a function at its first call; XLA compiles it again for each size of a batch, so that a smaller last
batch costs as much as the first.
"""

from __future__ import annotations

import time

from ..data.batches import Batches
from .run_report import RunReport


class FirstTimes:
    """Knows which execution is the first of its kind, and tells its time as `compiling`."""

    def __init__(self, report: RunReport, pipeline: Batches, xla: bool) -> None:
        self._report = report
        self._per_pass = pipeline.batches_per_pass if xla and pipeline.smaller_last_batch else None
        samples, batch = pipeline.validation_samples, pipeline.global_batch_size
        self._smaller_test = xla and pipeline.replicas == 1 and (samples is None or samples % batch != 0)
        self._tested = False
        self._since: float | None = None

    def meets_smaller_batch(self, step: int, count: int) -> bool:
        """Whether the `count` training steps after `step` hold the first batch of another size."""
        if self._per_pass is None or step // self._per_pass == (step + count) // self._per_pass:
            return False
        self._per_pass = None
        return True

    def tests_begin(self) -> None:
        """An evaluation begins; the first makes the iterator over its data, too."""
        if self._tested:
            self._report.phase("evaluating")
        else:
            self._begin()

    def test_begins(self, left: int) -> bool:
        """Whether the evaluation's execution, after which `left` batches are left, is the first of its kind."""
        smaller = self._smaller_test and left == 0
        if self._tested and not smaller:
            return False
        self._tested = True
        self._smaller_test = self._smaller_test and not smaller
        if self._since is None:
            self._begin()
        return True

    def test_ended(self) -> None:
        """Such an execution has ended."""
        if self._since is not None:
            seconds = time.perf_counter() - self._since
            self._report.first_evaluation_seconds = (self._report.first_evaluation_seconds or 0.0) + seconds
            self._since = None
        self._report.phase("evaluating")

    def _begin(self) -> None:
        self._since = time.perf_counter()
        self._report.phase("compiling", "evaluation")
