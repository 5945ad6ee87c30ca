"""The options of the device, in an order in which none hides the gain of the next one; an option whose gain was hidden
is tried once more.

On a CPU the steps in one execution come after the batch size: Python's time between the steps is the same for all
settings of the device, and if it limits the speed, none of these seem to gain. Precision and XLA come next. On a GPU
they come first: the host runs ahead of the GPU, they gain most, and long executions delay each stop. Both change the
same operations, so that one may undo the gain of the other: if the precision gains and XLA together with it does not,
XLA is tried with the preset's precision. At the end an option that was rejected before another one gained is tried once
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...trials.search_record import Candidate
from ..candidates.screening import Screening
from ..candidates.search_space import BATCH, POLICY, TOGETHER, Space, value_of
from ..memory_model import MemoryModel
from .batch_size import BatchSize, LargestBatch

STAGES = ("batch_size", "steps_per_execution", "precision", "xla", "strategy")
ON_GPU = ("batch_size", "precision", "xla", "steps_per_execution", "strategy")
OTHER_MEMORY = ("precision", "strategy")  # stages that change the memory and the work of a step
HIDDEN = ("steps_per_execution", "precision", "xla")  # stages whose gain may be hidden by other options
# Longer executions are not tried, so that a training is stopped and shown in time. They would gain no more: 16 steps
# share Python's time between executions, which is less than 2 ms on the machines measured, 2 % of half a second.
LONGEST_EXECUTION_SECONDS = 0.5


class DeviceStages:
    """Tries the options of the device as changes of the screening's best settings, within the limits of `space`.

    `memory` predicts which batches fit. A stage is one option, or a few options that belong together (STAGES).
    """

    def __init__(self, screening: Screening, space: Space, memory: MemoryModel) -> None:
        self._screening, self._space, self._memory = screening, space, memory

    def run(self) -> None:
        """Carry out all stages of the device. Raises Stopped and OutOfTime."""
        for name in ON_GPU if self._space.on_gpu else STAGES:
            self._stage_and_batch(name)
            if name == "xla":
                self._xla_without_precision()
        for name in HIDDEN:
            if self._may_gain_now(name):
                self._stage_and_batch(name)

    def stage(self, name: str) -> None:
        """Try the values of the stage `name`. Nothing is done if the user's limits do not include it."""
        if name not in self._space.limits.only:
            return
        self._screening.search.stage = name
        if name == "batch_size":
            self._batch_size()
        elif name == "steps_per_execution":
            self._steps_together()
        else:
            for settings in self._space.of(name, self._screening.best.preset):
                if not self._screening.has(settings):
                    self._screening.attempt(name, settings)

    def go_on_from(self, name: str) -> None:
        """Continue the stage `name` after one of its values was faster in a second measurement: with smaller numbers of
        steps in one execution, or larger batches.

        For other stages nothing is done.
        """
        if name == "steps_per_execution":
            self._fewer_together()
        elif name == "batch_size":
            self._sizes().grow()

    def _stage_and_batch(self, name: str) -> None:
        """Carry out the stage `name`. If it has kept another precision or strategy, carry out the stage of the batch
        size again, as the memory and the work of a step have changed.
        """
        kept = len(self._kept(name))
        self.stage(name)
        if name in OTHER_MEMORY and len(self._kept(name)) > kept:
            self.stage("batch_size")

    # ---- batch size ---------------------------------------------------------------------------------

    def _batch_size(self) -> None:
        if self._space.allows({BATCH: 1}):
            self._sizes().find()

    def largest_batch(self) -> None:
        """Find the largest batch that fits into memory, also if another batch size is faster."""
        if self._space.allows({BATCH: 1}):
            best = self._screening.best
            speed, most = best.speed / self._space.replicas(best.preset), self._space.most_samples(best.preset)
            LargestBatch(self._screening, self._memory, self._sizes(), most, speed).find()

    def _sizes(self) -> BatchSize:
        """Return a search of batch sizes for the present best settings. The memory model has the batches measured with
        them.
        """
        best = self._screening.best
        self._memory.most_batch = self._space.most_samples(best.preset)
        finder = BatchSize(self._screening, self._memory, self._space.most_batch(best.preset))
        without_input, others = self._screening.without_input, _but_batch(best.settings)
        if self._memory.begin_anew(others, without_input):
            for candidate in self._screening.search.candidates:
                if candidate.without_input == without_input and _but_batch(candidate.settings) == others:
                    finder.note(candidate.settings.get(BATCH, value_of(self._screening.baseline, BATCH)), candidate)
        return finder

    # ---- steps in one execution ---------------------------------------------------------------------

    def _steps_together(self) -> None:
        """Try the largest number of steps in one execution, and then smaller ones if it is faster.

        If the largest is not faster than the present number, no smaller number will be.
        """
        more = [count for count in self._counts() if count > self._together]
        if more and self._gains("steps_per_execution", {TOGETHER: more[-1]}):
            self._fewer_together()

    def _fewer_together(self) -> None:
        """Try smaller numbers of steps in one execution, as long as they are faster.

        They can be if many batches at once do not fit into a cache.
        """
        for count in reversed([count for count in self._counts() if count < self._together]):
            if not self._gains("steps_per_execution", {TOGETHER: count}):
                return

    def _counts(self) -> list[int]:
        best = self._screening.best
        step_seconds = (best.trials[-1].step_ms or 0.0) / 1000
        counts = [settings[TOGETHER] for settings in self._space.of("steps_per_execution", best.preset)]
        return [count for count in counts if count * step_seconds <= LONGEST_EXECUTION_SECONDS]

    @property
    def _together(self) -> int:
        return int(value_of(self._screening.best.preset, TOGETHER))

    # ---- precision and XLA --------------------------------------------------------------------------

    def _xla_without_precision(self) -> None:
        if not self._kept("precision") or not self._rejected("xla") or self._kept("xla"):
            return
        before = {POLICY: value_of(self._screening.baseline, POLICY)}
        for settings in self._space.of("xla", self._screening.best.preset):
            if self._gains("xla", {**settings, **before}, "instead of the precision"):
                self.stage("batch_size")

    def _may_gain_now(self, name: str) -> bool:
        """Return True if the stage `name` is worth a repetition, as another option was kept since its latest trial.

        For stages other than `steps_per_execution` this holds only if none of their values was kept. It does not hold
        if the latest trial has failed or was clearly slower.
        """
        tried = [
            candidate
            for candidate in self._screening.search.candidates
            if candidate.tried and candidate.stage in STAGES[1:]
        ]
        places = [place for place, candidate in enumerate(tried) if candidate.stage == name]
        if not places or (name != "steps_per_execution" and self._kept(name)):
            return False
        return bool(tried[places[-1]].good) and any(
            candidate.decision == "kept" for candidate in tried[places[-1] + 1 :]
        )

    # ---- shared -------------------------------------------------------------------------------------

    def _gains(self, name: str, settings: Mapping[str, Any], reason: str = "") -> bool:
        return self._screening.attempt(name, settings, reason).decision == "kept"

    def _kept(self, name: str) -> list[Candidate]:
        return self._decided(name, "kept")

    def _rejected(self, name: str) -> list[Candidate]:
        return self._decided(name, "rejected")

    def _decided(self, name: str, decision: str) -> list[Candidate]:
        return [
            candidate
            for candidate in self._screening.search.candidates
            if candidate.stage == name and candidate.decision == decision
        ]


def _but_batch(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != BATCH}
