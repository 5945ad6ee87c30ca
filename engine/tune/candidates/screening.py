"""Measures candidates against the best settings so far, not to the end if they are clearly slower, and keeps those that
are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import units
from ...presets import Preset, PresetError
from ...trials import proof_sentences
from ...trials.comparing import CHANCES, FINAL, BaselineFailed, Stopped
from ...trials.search_record import Candidate, Search
from ...trials.trial import Trial
from ...trials.trial_preset import ONE_BATCH, PROBE_SECONDS, with_changes
from ...trials.trial_runner import SLOWER, Judge, below
from . import judgement
from .judgement import Best, speed
from .search_space import value_of
from .search_trials import OutOfTime, TrialRequest, Trials

MOST_TRIALS = 2  # trials of a candidate
SIDE = "s"  # the side of a trial that measures a candidate
Report = Callable[[str], None]  # writes the record; the text is the present work
Conflict = Callable[[Preset], str]  # why a preset cannot be trained here; empty if it can


class Screening:
    """Measures candidates one after another, and keeps the fastest as the best settings. `search` records them,
    `report` writes the record. `seconds` is the measured time of a trial, `without_input` says whether candidates are
    now measured without the input, and `conflict` returns why a preset cannot be trained here, or an empty text.
    """

    def __init__(
        self, trials: Trials, search: Search, baseline: Preset, report: Report, conflict: Conflict, seconds: float
    ) -> None:
        self.trials, self.search, self.baseline = trials, search, baseline
        self._report, self._conflict, self._seconds = report, conflict, seconds
        self.best = Best(baseline)
        self.without_input = False
        self.peak_figure = ""  # the figure of a trial with the memory that is limited; empty before the first trial
        self.may_take: float | None = None  # bytes of this memory
        self.waits_count = False  # waits and work add up to the time of a step; on a CPU only

    # ---- the best settings --------------------------------------------------------------------------

    def measure_best(self, stage: str, reason: str, without_input: bool) -> Candidate:
        """Measure the best settings, and from now on all candidates, with or without the input. Raises
        BaselineFailed.
        """
        candidate = Candidate(
            stage=stage, settings=dict(self.best.settings), tried={}, reason=reason, without_input=without_input
        )
        self.search.candidates.append(candidate)
        self._measure(candidate, self.best.preset)
        if not candidate.good:
            last = candidate.trials[-1]
            candidate.decision, candidate.why = "failed", f"{last.outcome}: {last.error}"
            raise BaselineFailed(f"the training could not be measured; the last was {last.outcome}: {last.error}")
        candidate.decision = "kept"
        self.without_input, self.best = without_input, replace(self.best, measured=candidate)
        self._report("")
        return candidate

    def begin_with(self, settings: Mapping[str, Any]) -> None:
        """Use `settings` as the best settings without a measurement, because the preset itself cannot be measured."""
        self.best = Best(with_changes(self.baseline, settings), dict(settings))

    def resume(self, best: Best) -> None:
        """Use settings that were measured before, with or without the input, as the best settings."""
        self.best, self.without_input = best, bool(best.measured and best.measured.without_input)

    def has(self, settings: Mapping[str, Any]) -> bool:
        """Return True if the best settings have these values."""
        return all(value_of(self.best.preset, key) == value for key, value in settings.items())

    # ---- candidates ---------------------------------------------------------------------------------

    def attempt(
        self,
        stage: str,
        tried: Mapping[str, Any],
        reason: str = "",
        predicted_bytes: int | None = None,
        judge: Judge | None = None,
    ) -> Candidate:
        """Measure the best settings with the changes `tried`; they become the best settings if they are faster. `judge`
        may end the trial early (None: the rule for all candidates). Raises Stopped and OutOfTime.
        """
        settings = self.settings_with(tried)
        candidate = Candidate(
            stage=stage, settings=settings, tried=dict(tried), reason=reason, without_input=self.without_input,
            predicted_bytes=predicted_bytes,
        )  # fmt: skip
        preset = self._preset(candidate)
        if preset is not None:
            self._measure(candidate, preset, judge)
            self._judge(candidate, preset)
        self._report("")
        return candidate

    def repeat(self, candidate: Candidate) -> None:
        """Measure a candidate, which is a change of the present best settings, once more and decide again. Raises
        Stopped and OutOfTime.
        """
        preset = with_changes(self.baseline, candidate.settings)
        good = self._trial(candidate, preset).good
        if good and self._seems_to_gain(candidate):
            self.best_once_more()
        if good:
            self._choose(candidate, preset)
        elif not candidate.good:
            judgement.decide_failed(candidate, self.best)
        self._report("")

    def probe(self, stage: str, tried: Mapping[str, Any], reason: str, predicted_bytes: int | None = None) -> Candidate:
        """Train the best settings with the changes `tried` for a few steps, for their memory alone: the decision is
        `measured`, `failed` or `left out`. Raises Stopped and OutOfTime.
        """
        candidate = Candidate(
            stage=stage, settings=self.settings_with(tried), tried=dict(tried), reason=reason,
            without_input=self.without_input, predicted_bytes=predicted_bytes,
        )  # fmt: skip
        preset = self._preset(candidate)
        if preset is not None:
            last = self._trial(candidate, preset, seconds=PROBE_SECONDS)
            candidate.samples_per_second = None
            if last.good:
                candidate.decision, candidate.why = "measured", "only its memory"
            else:
                candidate.decision, candidate.why = "failed", f"{last.outcome}: {last.error}"
        self._report("")
        return candidate

    def trial_request(
        self, tried: Mapping[str, Any], judge: Judge | None = None, side: str = SIDE, repeat: int = 1
    ) -> TrialRequest | None:
        """Return the arguments of the first trial of the changes `tried`. None if they cannot be trained."""
        try:
            preset = with_changes(self.baseline, self.settings_with(tried))
        except PresetError:
            return None
        measured = self._as_measured(preset, self.without_input)
        return None if self._conflict(preset) else TrialRequest(measured, side, self._seconds, repeat, judge)

    def remembers(self, tried: Mapping[str, Any]) -> bool:
        """Return True if the first trial of `attempt` with the changes `tried` has already been measured."""
        asked = self.trial_request(tried)
        return asked is not None and self.trials.remembers(asked.preset, SIDE, 1, seconds=self._seconds)

    def note(self, candidate: Candidate, doing: str = "") -> None:
        """Record a candidate that was measured elsewhere. `doing` is the present work in words."""
        if candidate not in self.search.candidates:
            self.search.candidates.append(candidate)
        self._report(doing)

    def leave_out(self, stage: str, tried: Mapping[str, Any], why: str, predicted_bytes: int | None = None) -> None:
        """Record the best settings with the changes `tried` as a candidate that is not measured, because of `why`."""
        self.search.candidates.append(
            Candidate(
                stage=stage,
                settings=self.settings_with(tried),
                tried=dict(tried),
                decision="left out",
                why=why,
                without_input=self.without_input,
                predicted_bytes=predicted_bytes,
            )
        )
        self._report("")

    @property
    def noise(self) -> float:
        """The relative spread of repeated measurements of the same settings (0.03: 3 %)."""
        return judgement.noise_of(self.search.candidates)

    def settings_with(self, tried: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes of the preset: those of the best settings together with `tried`."""
        given = {**self.best.settings, **tried}
        return {key: value for key, value in given.items() if value_of(self.baseline, key) != value}

    def _preset(self, candidate: Candidate) -> Preset | None:
        """Return the preset of a candidate. None if it cannot be trained: the candidate then has the reason."""
        self.search.candidates.append(candidate)
        try:
            preset = with_changes(self.baseline, candidate.settings)
            candidate.why = self._conflict(preset)
        except PresetError as fault:
            candidate.why = fault.problems[0].message
        if candidate.why:
            candidate.decision = "left out"
            return None
        return preset

    def _measure(self, candidate: Candidate, preset: Preset, judge: Judge | None = None) -> None:
        for _ in range(CHANCES):
            trial = self._trial(candidate, preset, judge)
            if trial.good or trial.outcome in (*FINAL, "timeout", "slower"):
                return

    def _trial(
        self, candidate: Candidate, preset: Preset, judge: Judge | None = None, seconds: float | None = None
    ) -> Trial:
        """Without `judge` only a candidate without a successful trial may end early, and none if the waits count."""
        measured = self._as_measured(preset, candidate.without_input)
        may_end = bool(candidate.tried) and not candidate.good and not self._waits_count_of(candidate)
        if judge is None and may_end and seconds is None:
            judge = below(SLOWER * self.best.speed)
        self._report(self._doing(candidate))
        try:
            repeat = len(candidate.trials) + 1
            trial = self.trials.measure(measured, SIDE, repeat, seconds=seconds or self._seconds, judge=judge)
        except (OutOfTime, Stopped) as why:
            ended = "a stop was requested" if isinstance(why, Stopped) else "no time was left"
            if not candidate.trials:
                candidate.decision, candidate.why = "left out", ended
            elif candidate.decision == "running":  # its gain may be chance
                candidate.decision = "rejected"
                candidate.why = f"{units.change(candidate.gain)}: {ended} to measure it once more"
            raise
        candidate.trials.append(trial)
        decisive = candidate.good or [trial for trial in candidate.trials if trial.outcome == "slower"]
        candidate.samples_per_second = speed(decisive) or None
        candidate.peak_bytes = self._peak(decisive)
        return trial

    def _peak(self, trials: Sequence[Trial]) -> int | None:
        if not self.peak_figure:
            return None
        return max((getattr(trial, self.peak_figure) or 0 for trial in trials), default=0) or None

    @staticmethod
    def _as_measured(preset: Preset, without_input: bool) -> Preset:
        return with_changes(preset, ONE_BATCH) if without_input else preset

    def _doing(self, candidate: Candidate) -> str:
        what = f"trying {proof_sentences.changes(candidate.tried)}" if candidate.tried else candidate.reason
        again = ", once more" if candidate.trials else ""
        return f"{candidate.stage.replace('_', ' ')}: {what}{again}"

    # ---- faster or not ------------------------------------------------------------------------------

    def _judge(self, candidate: Candidate, preset: Preset) -> None:
        if not candidate.good:
            judgement.decide_failed(candidate, self.best)
            return
        while len(candidate.trials) < MOST_TRIALS and self._seems_to_gain(candidate):
            self._trial(candidate, preset)
            self.best_once_more()
        self._choose(candidate, preset)

    def _seems_to_gain(self, candidate: Candidate) -> bool:
        self._note_waits(candidate)
        return judgement.seems_to_gain(candidate, self.best, self.noise)

    def _note_waits(self, candidate: Candidate) -> None:
        if self._waits_count_of(candidate):
            candidate.gain_by_waits = judgement.gain(candidate.tried, candidate.good, self.best.trials)

    def _waits_count_of(self, candidate: Candidate) -> bool:
        return self.waits_count and judgement.leaves_the_work(candidate.tried)

    def best_once_more(self) -> None:
        """Measure the best settings (if measured) again, so that candidate and best are measured at the same time."""
        if self.best.measured is not None:
            self._trial(self.best.measured, self.best.preset)

    def _choose(self, candidate: Candidate, preset: Preset) -> None:
        self._note_waits(candidate)
        judgement.decide(candidate, self.best, self.noise, self.may_take)
        if candidate.decision == "kept":
            self.best = Best(preset, candidate.settings, candidate)
