"""The options of the device, in an order in which none hides the gain of the next. On a CPU Python's time between the
steps hides all others, so that steps in one execution come early; on a GPU, where the host runs ahead, precision and
XLA do. If the precision gains and XLA with it does not, XLA is tried without it. What was rejected before another
option gained is tried again.
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
        """After a value was faster in a second measurement: try smaller numbers of steps, or larger batches."""
        if name == "steps_per_execution":
            self._fewer_together()
        elif name == "batch_size":
            self._sizes().grow()

    def _stage_and_batch(self, name: str) -> None:
        # another precision or strategy changes the memory and the work of a step
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
        """The memory model has the batches measured with the present best settings."""
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
        # if the largest number is not faster than the present one, no smaller number will be
        more = [count for count in self._counts() if count > self._together]
        if more and self._gains("steps_per_execution", {TOGETHER: more[-1]}):
            self._fewer_together()

    def _fewer_together(self) -> None:
        # fewer are faster if many batches at once do not fit into a cache
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
        """Another option was kept since its latest trial, which has not failed and was not clearly slower."""
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
