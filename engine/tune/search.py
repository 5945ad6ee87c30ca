"""The search: the preset (with a smaller batch if it runs out of memory), the ordered search (stages.py) or
combinations (wide/) or both, and the pairs that decide (decision.py).
"""

from __future__ import annotations

from dataclasses import replace

from .. import units
from ..proof.measurement import Measurement, OutOfTime
from ..trials import SCREENING_SECONDS
from ..trials.comparing import BaselineFailed
from ..trials.record import Limits, Search, medians
from ..trials.trial_preset import value_of, with_changes
from . import dry_run
from .decision import Deciding
from .memory_model import model_of
from .screening import Best, Screening
from .search_space import BATCH, Space
from .stages import InputStage, in_order
from .wide import storage
from .wide.storage import StudyError
from .wide.study import Study
from .wide.wide_search import WideSearch

KEPT_BACK_SHARE = 0.5  # at most, of the time before the decision, for later parts of the search
WIDE_SHARE = 0.5  # of the time before the pairs, for combinations after the ordered search


def measure(measurement: Measurement) -> None:
    if measurement.request.search is not None and measurement.request.search.dry_run:
        dry_run.measure(measurement)
    else:
        Searcher(measurement).run()


class Searcher:
    """Carries out one search, whose results go to the record."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement, self.record = measurement, measurement.record
        limits = self.limits = measurement.request.search or Limits()
        # without the password of the study's database
        shown = replace(limits, study=storage.shown(limits.study)) if limits.study else limits
        self.search = self.record.search = Search(limits=shown)
        measurement.end_after(limits.minutes)
        self.screening = Screening(measurement, self._report, SCREENING_SECONDS)
        self.deciding = Deciding(measurement, self._report)
        self._kept_back = 0.0  # seconds for later parts of the search, without the decision
        self._deciding = False
        folder = self.record.path.parent
        self._study = Study.of(measurement.request, measurement.machine, folder) if limits.wide else None

    def run(self) -> None:
        try:
            if self._study is not None:
                self._study.join()
            self._baseline()
        except StudyError as fault:  # the study cannot be joined
            raise BaselineFailed(str(fault)) from fault
        except OutOfTime:
            raise BaselineFailed("the minutes do not allow a single trial") from None
        try:
            if self.limits.wide != "instead":
                self._in_order()
            self.record.ended_because = self._combine(self._study) if self._study else "every option was tried"
        except OutOfTime:
            self.record.ended_because = self.measurement.out_of_time(
                "allows no further trial before the pairs that prove the gain"
            )
        self._deciding = True
        self.measurement.reserved_seconds = 0.0
        self.search.stage = "decision"
        self.deciding.decide(self.screening.best, self.screening.space.started)

    def _baseline(self) -> None:
        """Measure the preset. If it runs out of memory, halve its batch size until it leaves a tenth of the memory
        free. Raises BaselineFailed.
        """
        screening, limits = self.screening, self.limits
        only_batch = tuple(limits.only) == ("batch_size",)  # looks for a batch within the limit
        self.search.stage = "baseline"
        while True:
            size = int(value_of(screening.best.preset, BATCH))
            smaller = "the preset with a smaller batch, as it runs out of memory"
            reason = smaller if screening.best.settings else "the preset as it is"
            try:
                measured = screening.measure_best("baseline", reason, without_input=False)
            except BaselineFailed:
                may_change = "batch_size" in limits.only and BATCH not in limits.leave
                if self.search.candidates[-1].trials[-1].outcome != "oom" or size == 1 or not may_change:
                    raise
            else:
                trial = measured.good[-1]
                started = self.measurement.started(trial)
                memory = model_of(started, screening.best.preset.options, trial, limits.memory_bytes)
                peak = measured.peak_bytes = memory.peak(measured.trials)
                if memory.limit_is_asked and (peak or 0) > (memory.limit_bytes or 0) and not only_batch:
                    raise BaselineFailed(
                        f"the training takes {units.size(peak)} of memory, and you allow "
                        f"{units.size(memory.limit_bytes)}: allow more, or begin with a smaller batch (gputui "
                        "fit-batch looks for one that fits)"
                    )
                most = memory.may_take
                if not screening.best.settings or size == 1 or peak is None or most is None or peak <= most:
                    break
            # the preset itself cannot be measured: the best settings are a smaller batch
            smaller_batch = {BATCH: size // 2}
            screening.best = Best(with_changes(self.measurement.preset, smaller_batch), smaller_batch)
        if not screening.best.settings:
            self.search.before_speed = measured.samples_per_second
            self.record.before = medians(measured.good)
        screening.space, screening.memory = Space(limits, self.measurement.machine, started), memory
        screening.waits_count = all("CPU:" in name for name in started.devices)

    def _in_order(self) -> None:
        """Raises OutOfTime only if no combinations follow, for which a part of the time is kept."""
        plan = self.deciding.plan
        if self.limits.wide:
            self._keep_back(WIDE_SHARE * max(0.0, plan.limit - plan.decision_seconds))
        try:
            in_order(self.screening, self._keep_back, is_short=not plan.is_whole)
        except OutOfTime:
            if not self.limits.wide:
                raise
        finally:
            self._keep_back(0.0)

    def _combine(self, study: Study) -> str:
        """Return why combinations ended: also a study's error, as the ordered search still counts."""
        if self.screening.without_input:
            InputStage(self.screening).put_back()
        self.search.stage = "wide"
        try:
            wide = WideSearch(study, self.screening)
        except StudyError as fault:
            return str(fault)
        self.search.study = wide.state
        return wide.run()

    def _keep_back(self, seconds: float) -> None:
        # computed again before each report, as the estimate of the time of a trial changes
        self._kept_back, plan = seconds, self.deciding.plan
        most = KEPT_BACK_SHARE * max(0.0, plan.limit - plan.decision_seconds - self.record.elapsed)
        self.measurement.reserved_seconds = plan.decision_seconds + min(seconds, most)

    def _report(self, doing: str) -> None:
        best = self.screening.best
        self.search.best = dict(best.settings)
        self.search.noise = self.screening.noise
        if not self.screening.without_input and best.trials:
            self.search.best_speed = best.speed
        if not self._deciding:
            self._keep_back(self._kept_back)
        self.record.budget_seconds = 60 * self.limits.minutes
        self.record.write(doing or None)
