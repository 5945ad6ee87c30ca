"""The search: the preset (with a smaller batch if it runs out of memory), the ordered search (stages.py) or
combinations (wide/) or both, and the pairs that decide (decision.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .. import units
from ..job.machine_gpus import Machine
from ..proof import duration
from ..proof.request import Request, conflict
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, Started
from ..trials import SCREENING_SECONDS, proof_sentences
from ..trials.comparing import BaselineFailed
from ..trials.record import Candidate, Limits, Record, Search, Trial, medians
from ..trials.trial_runner import TrialRunner
from . import memory_model
from .decision import Deciding
from .memory_model import MemoryModel
from .screening import Screening
from .search_space import BATCH, Space, value_of
from .search_trials import OutOfTime, SideBySide, Trials
from .stages import DeviceStages, InputStage, Recheck
from .wide import storage
from .wide.storage import StudyError
from .wide.wide_search import Member, WideSearch

FOR_LARGEST = 3  # trials whose time is kept for the largest batch, if only the batch size is searched


class OrderedSearch:
    """Searches one option after another within `space`, for the best settings of `screening`. `keep_back` reserves
    seconds for later parts. `is_short` is True if there is time for a few changes only.
    """

    def __init__(
        self,
        screening: Screening,
        space: Space,
        memory: MemoryModel,
        keep_back: Callable[[float], None],
        is_short: bool = False,
    ) -> None:
        self._screening, self._space, self._keep_back = screening, space, keep_back
        self._device, self._input = DeviceStages(screening, space, memory), InputStage(screening, space, is_short)

    def run(self) -> None:
        if tuple(self._space.limits.only) == ("batch_size",):
            # First the fastest batch size, with the preset's input, then the largest that fits into memory.
            self._keep_back(FOR_LARGEST * self._screening.trials.trial_seconds)
            try:
                self._device.stage("batch_size")
            except OutOfTime:
                self._keep_back(0.0)
                self._device.largest_batch()
                raise
            self._keep_back(0.0)
            self._device.largest_batch()
            return
        self._input.try_first()
        left_out = self._input.leave_out()
        self._device.run()
        if left_out:
            self._input.put_back()
        self._input.run()
        self._device.stage("threads")
        if left_out and not self._input.is_harmless:
            self._device.stage("batch_size")  # with the input another batch size may be the fastest
        Recheck(self._screening, self._device.go_on_from).run()


@dataclass(frozen=True)
class Baseline:
    """The training with which a search begins: its measurement, its event `started`, and the model of its memory."""

    measured: Candidate
    started: Started
    memory: MemoryModel


def measure(screening: Screening, limits: Limits, started_of: Callable[[Trial], Started]) -> Baseline:
    """Measure the preset. If it runs out of memory, halve its batch size (in the best settings of `screening`) until it
    leaves a tenth of the memory free. Raises BaselineFailed.
    """
    while True:
        size = int(value_of(screening.best.preset, BATCH))
        baseline = _measured(screening, limits, started_of, size)
        if baseline is not None:
            _refuse_above_limit(baseline, limits)
            if _has_room(baseline, screening, size):
                return baseline
        screening.begin_with({BATCH: size // 2})


def _measured(
    screening: Screening, limits: Limits, started_of: Callable[[Trial], Started], size: int
) -> Baseline | None:
    """None if it runs out of memory and a smaller batch may be tried. Raises BaselineFailed."""
    smaller = "the preset with a smaller batch, as it runs out of memory"
    reason = smaller if screening.best.settings else "the preset as it is"
    try:
        measured = screening.measure_best("baseline", reason, without_input=False)
    except BaselineFailed:
        last = screening.search.candidates[-1].trials[-1]
        may_change = "batch_size" in limits.only and BATCH not in limits.leave
        if last.outcome != "oom" or size == 1 or not may_change:
            raise
        return None
    trial = measured.good[-1]
    started = started_of(trial)
    model = memory_model.model_of(started, screening.best.preset.options, trial, limits.memory_bytes)
    screening.peak_figure = memory_model.FIGURES[model.of]
    measured.peak_bytes = model.peak(measured.trials)
    return Baseline(measured, started, model)


def _refuse_above_limit(baseline: Baseline, limits: Limits) -> None:
    # a search for the batch size alone looks for a batch within the limit
    peak, limit = baseline.measured.peak_bytes or 0, baseline.memory.limit_bytes or 0
    if baseline.memory.limit_is_asked and peak > limit and tuple(limits.only) != ("batch_size",):
        raise BaselineFailed(
            f"the training takes {units.size(peak)} of memory, and you allow {units.size(limit)}: allow more, or begin "
            "with a smaller batch (gputui fit-batch looks for one that fits)"
        )


def _has_room(baseline: Baseline, screening: Screening, size: int) -> bool:
    peak, most = baseline.memory.peak(baseline.measured.trials), baseline.memory.may_take
    return not screening.best.settings or size == 1 or peak is None or most is None or peak <= most


KEPT_BACK_SHARE = 0.5  # at most, of the time before the decision, for later parts of the search
WIDE_SHARE = 0.5  # of the time before the pairs, for combinations after the ordered search


class Searcher:
    """Carries out one search: the `request`, with trials of `bench` on `machine`, whose results go to `record`.

    `earlier` are the trials of the search from before it was resumed.
    """

    def __init__(
        self, request: Request, record: Record, bench: TrialRunner, machine: Machine, earlier: Iterable[Trial] = ()
    ) -> None:
        self.request, self.record, self.machine = request, record, machine
        self.limits = request.search or Limits()
        # without the password of the study's database
        self.search = record.search = Search(
            limits=replace(self.limits, study=storage.shown(self.limits.study)) if self.limits.study else self.limits
        )
        limit, guess = 60 * self.limits.minutes, duration.of_request(request)
        self.trials = Trials(bench, earlier, lambda: record.elapsed, limit, guess)
        baseline = request.baseline()
        self.screening = Screening(
            self.trials, self.search, baseline, self._report, lambda preset: conflict(preset, request, machine),
            SCREENING_SECONDS,
        )  # fmt: skip
        self.deciding = Deciding(request, record, self.trials, self._report)
        self._space: Space | None = None
        self._memory: MemoryModel | None = None
        self._kept_back = 0.0  # seconds for later parts of the search, without the decision
        self._deciding = False
        self._member = Member.of(request, machine, record.path.parent, SCREENING_SECONDS) if self.limits.wide else None

    def run(self) -> None:
        try:
            if self._member is not None:
                self._member.join()
            self._baseline()
            if self.limits.wide != "instead":
                self._in_order()
            self.record.ended_because = self._combine(self._member) if self._member else "every option was tried"
        except StudyError as fault:  # the study cannot be joined
            raise BaselineFailed(str(fault)) from fault
        except OutOfTime:
            if self._space is None:
                raise BaselineFailed("the minutes do not allow a single trial") from None
            minutes = f"{proof_sentences.OUT_OF_TIME} of {self.limits.minutes:g} min"
            self.record.ended_because = f"{minutes} allows no further trial before the pairs that prove the gain"
        self._deciding = True
        self.trials.reserved_seconds = 0.0
        self.search.stage = "decision"
        if self.record.before is None:
            self.deciding.keep_without_pairs(self.screening.best, self.space.started)
        else:
            self.deciding.decide(self.screening.best, self.space.started)

    def _baseline(self) -> None:
        self.search.stage = "baseline"
        baseline = measure(self.screening, self.limits, self._started)
        if not self.screening.best.settings:
            self.search.before_speed = baseline.measured.samples_per_second
            self.record.before = medians(baseline.measured.good)
        self.record.versions = dict(baseline.started.versions)
        self._space = Space(self.limits, self.machine, baseline.started)
        self._memory = baseline.memory
        self.screening.may_take = baseline.memory.may_take
        self.screening.waits_count = all("CPU:" in name for name in baseline.started.devices)

    def _in_order(self) -> None:
        """Raises OutOfTime only if no combinations follow, for which a part of the time is kept."""
        if self.limits.wide:
            self._keep_back(WIDE_SHARE * max(0.0, 60 * self.limits.minutes - self.deciding.plan.decision_seconds))
        try:
            short = not self.deciding.plan.is_whole
            OrderedSearch(self.screening, self.space, self.memory, self._keep_back, short).run()
        except OutOfTime:
            if not self.limits.wide:
                raise
        finally:
            self._keep_back(0.0)

    def _combine(self, member: Member) -> str:
        """Return why combinations ended: also a study's error, as the ordered search still counts."""
        if self.screening.without_input:
            InputStage(self.screening, self.space).put_back()
        self.search.stage = "wide"
        try:
            side_by_side = SideBySide(self.trials, self.machine)
            wide = WideSearch(member, self.screening, self.space, self.memory, side_by_side)
        except StudyError as fault:  # the results of the ordered search still count
            return str(fault)
        self.search.study = wide.state
        return wide.run()

    @property
    def memory(self) -> MemoryModel:
        assert self._memory is not None
        return self._memory

    @property
    def space(self) -> Space:
        assert self._space is not None
        return self._space

    def _started(self, trial: Trial) -> Started:
        started = read_events(self.trials.run_of(trial).path, [EVENTS_FILE]).last(Started)
        if started is None:
            raise BaselineFailed(f"{trial.run} has no record of its start")
        return started

    def _keep_back(self, seconds: float) -> None:
        # computed again before each report, as the estimate of the time of a trial changes
        self._kept_back, plan = seconds, self.deciding.plan
        most = KEPT_BACK_SHARE * max(0.0, plan.limit - plan.decision_seconds - self.record.elapsed)
        self.trials.reserved_seconds = plan.decision_seconds + min(seconds, most)

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
