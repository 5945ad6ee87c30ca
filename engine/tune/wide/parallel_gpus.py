"""The GPUs on which proposals are measured at once, after the best settings have shown that this disturbs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...trials.bench import Judge
from ...trials.search_record import Candidate
from ..candidates.judgement import speed
from ..candidates.parallel_trials import Place, SideBySide, undisturbed
from ..candidates.screening import Screening
from ..candidates.search_trials import OutOfTime

SIDE = "g"  # of a trial that shows whether trials disturb each other


class Places:
    """The GPUs on which trials are measured at once; `count` trials run at the same time.

    Before `find` has found several GPUs, trials are measured one after another.
    """

    def __init__(self, screening: Screening, side_by_side: SideBySide) -> None:
        self._screening, self._side_by_side = screening, side_by_side
        self._gpus: list[Place] = []

    @property
    def count(self) -> int:
        return max(1, len(self._gpus))

    def find(self, stage: str) -> None:
        """Find the GPUs on which the best settings are about as fast at the same time as on one GPU alone.

        The result is recorded as a candidate of the stage `stage`. Raises Stopped and OutOfTime.
        """
        gpus = self._side_by_side.places(self._screening.best.preset)
        if not gpus:
            return
        candidate = Candidate(
            stage=stage, settings=dict(self._screening.best.settings), tried={},
            reason=f"the best settings on {len(gpus)} GPUs at the same time",
        )  # fmt: skip
        self._screening.note(candidate, candidate.reason)
        try:
            left = self._undisturbed(candidate, gpus)
        except OutOfTime:
            candidate.decision, candidate.why = "left out", "no time was left"
            raise
        if len(left) > 1:
            self._gpus, candidate.decision = left, "kept"
            slow = [str(place.gpu) for place in gpus if place.gpu not in {kept.gpu for kept in left}]
            candidate.why = f"slower, and left out: {', '.join(slow)}" if slow else ""
        else:
            candidate.decision = "rejected"
            candidate.why = "trainings at the same time disturb each other: they are measured one after another"
        self._screening.note(candidate)

    def _undisturbed(self, candidate: Candidate, gpus: Sequence[Place]) -> list[Place]:
        asked = [self._screening.asked({}, side=SIDE, repeat=place) for place in range(1, len(gpus) + 1)]
        candidate.trials += self._side_by_side.measure([settings for settings in asked if settings], gpus)
        candidate.samples_per_second = speed(candidate.good) or None
        speeds = [trial.samples_per_second if trial.good else None for trial in candidate.trials]
        return undisturbed(gpus, speeds, self._screening.best.speed)

    def measure_ahead(self, proposals: Sequence[tuple[Mapping[str, Any], Judge]]) -> None:
        """Measure the first trials of several proposals at once, if at least two of them train on one GPU.

        The screening then has these trials and does not measure them again.
        """
        asked = [self._screening.asked(tried, judge) for tried, judge in proposals]
        alone = [settings for settings in asked if settings is not None and self._side_by_side.fits(settings.preset)]
        if len(alone) > 1:
            self._side_by_side.measure(alone, self._gpus)
