"""Measures candidates against the best settings so far, and keeps those that are faster: a gain within the standard
error is chance, one above twice that is clear (95 % of a normal distribution), and between the two candidate and best
settings are measured once more. The error of the difference of two means of n and m trials is spread * sqrt(1/n +
1/m), with the relative spread of repeated measurements.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import units
from ..presets import Preset, PresetError
from ..proof.measurement import SETTLED, Measurement, OutOfTime, retried
from ..trials import proof_sentences
from ..trials.comparing import BaselineFailed, Stopped
from ..trials.record import Candidate, Trial
from ..trials.significance import LEAST_GAIN
from ..trials.trial_preset import ONE_BATCH, PROBE_SECONDS, with_changes
from ..trials.trial_runner import SLOWER, Judge, below
from .memory_model import MemoryModel
from .search_space import BATCH, TOGETHER, Space

# Errors of the logarithm of a gain by waits. A resnet50 on two cores gained 5.5 % with 4 steps in an execution,
# while its waits said 6.0 %, and 5.7 to 11.5 % with a faster input, while they said 11 %. The input's threads take a
# part of the cores: if they take all, a training that no longer waits gains nothing.
LEAST_ERROR, SHARE_ERROR = 0.04, 0.5


def gain(tried: Mapping[str, Any], trials: Sequence[Trial], before: Sequence[Trial]) -> float | None:
    """Return the gain by those waits that `tried` changes (0.05: 5 % faster). None if they were not read."""
    figures = ["python_share"] if TOGETHER in tried else []
    figures += ["input_wait"] if any(key != TOGETHER for key in tried) else []
    rest, rest_before = _rest(trials, figures), _rest(before, figures)
    return rest / rest_before - 1 if rest and rest_before else None


def _rest(trials: Sequence[Trial], figures: Sequence[str]) -> float | None:
    waited = [[getattr(trial, name) for name in figures] for trial in trials]
    shares = [1 - sum(shares) for shares in waited if None not in shares]
    return statistics.fmean(shares) if shares else None


def error_of(by_waits: float) -> float:
    """Return the standard error of log(1 + gain) for a gain by waits (0.05: 5 % faster), 0 for a gain not above 0."""
    return max(LEAST_ERROR, SHARE_ERROR * abs(math.log1p(by_waits))) if by_waits > 0 else 0.0


def weighed(measured: float, error: float, by_waits: float) -> tuple[float, float]:
    """Return the mean of a measured gain and one by waits (above 0), weighed by their errors, and its error."""
    weight, other = 1 / error**2, 1 / error_of(by_waits) ** 2
    logarithm = (weight * math.log1p(measured) + other * math.log1p(by_waits)) / (weight + other)
    return math.expm1(logarithm), math.sqrt(1 / (weight + other))


FIRST_NOISE = 0.03  # relative spread before anything was repeated: 2 to 4 % were measured on a shared two-core machine
CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class Best:
    """The fastest settings so far, and their trials."""

    preset: Preset
    settings: Mapping[str, Any] = field(default_factory=dict)  # changes of the original preset
    measured: Candidate | None = None  # with or without the input, as candidates of the present stage

    @property
    def trials(self) -> list[Trial]:
        return self.measured.good if self.measured else []

    @property
    def speed(self) -> float:
        return speed(self.trials)


def speed(trials: Sequence[Trial]) -> float:
    return statistics.fmean(trial.speed for trial in trials) if trials else 0.0


def standard_error(noise: float, trials: int, others: int) -> float:
    """Return the standard error of the relative difference of two means; `noise` is the relative spread of a trial."""
    return noise * math.sqrt(1 / trials + 1 / others)


def compare(candidate: Candidate, best: Best, noise: float) -> tuple[float, float]:
    """Store the gain of a candidate over the best settings (0.05: 5 % faster) and its standard error in it, and return
    both. The gain by waits counts as well, unless the gain of the speeds is clearly larger.
    """
    gain = speed(candidate.good) / best.speed - 1
    error = standard_error(noise, len(candidate.good), len(best.trials))
    by_waits = waits_gain(candidate)
    if gain - by_waits < math.hypot(error, error_of(by_waits)):
        gain, error = weighed(gain, error, by_waits)
    candidate.gain, candidate.spread = gain, error
    return gain, error


def seems_to_gain(candidate: Candidate, best: Best, noise: float) -> bool:
    """Return True if a gain, or the gain by waits, is large enough to count but may be chance."""
    gain, error = compare(candidate, best, noise)
    return max(gain, waits_gain(candidate)) > max(LEAST_GAIN, error) and gain < CLEAR * error


def waits_gain(candidate: Candidate) -> float:
    """Return the gain by waits of a candidate (0.05: 5 % faster) if above LEAST_GAIN, else minus infinity."""
    by_waits = candidate.gain_by_waits
    return by_waits if by_waits is not None and by_waits > LEAST_GAIN else -math.inf


def decide(candidate: Candidate, best: Best, noise: float, may_take: float | None) -> None:
    """Store in a candidate whether it is kept or rejected; `may_take` is in bytes, None if not known."""
    gain, error = compare(candidate, best, noise)
    by_waits, too_much = waits_gain(candidate), takes_too_much(candidate, best, may_take)
    reason = units.change(gain) + (f" ({units.change(by_waits)} by its waits)" if by_waits > gain else "")
    if too_much:
        candidate.decision, candidate.why = "rejected", f"{reason}: {too_much}"
    elif gain > max(LEAST_GAIN, error):
        candidate.decision, candidate.why = "kept", reason
    else:
        why = "slower" if gain < -LEAST_GAIN else f"not more than {units.share(max(LEAST_GAIN, error))}"
        candidate.decision, candidate.why = "rejected", f"{reason}: {why}"


def decide_failed(candidate: Candidate, best: Best) -> None:
    """Record that a candidate without a successful trial has failed, or was rejected because it was clearly slower."""
    last = candidate.trials[-1]
    if last.outcome != "slower":
        candidate.decision, candidate.why = "failed", f"{last.outcome}: {last.error}"
        return
    candidate.gain = last.speed / best.speed - 1
    candidate.decision, candidate.why = "rejected", f"{units.change(candidate.gain)}: {last.error}"


def may_be_faster(rejected: Candidate, noise: float) -> bool:
    """Return True if a candidate may have been rejected by chance: its gain is not below -CLEAR errors."""
    if rejected.gain is None:
        return False
    error = max(rejected.spread or 0.0, standard_error(noise, max(1, len(rejected.good)), 1))
    return rejected.gain > -CLEAR * error


def takes_too_much(candidate: Candidate, best: Best, may_take: float | None) -> str:
    """Return why a candidate, above `may_take` bytes and the best settings, cannot be kept. Empty if it can."""
    taken, before = candidate.peak_bytes or 0, (best.measured and best.measured.peak_bytes) or 0
    if may_take is None or taken <= max(may_take, before):
        return ""
    return f"{units.size(taken)} of memory, but only {units.size(may_take)} may be planned"


MOST_TRIALS = 2  # trials of a candidate
SIDE = "s"  # the side of a trial that measures a candidate


class Screening:
    """Measures candidates one after another, and keeps the fastest as the best settings."""

    space: Space  # what may be tried; not before the baseline was measured

    def __init__(self, measurement: Measurement, report: Callable[[str], None], seconds: float) -> None:
        assert measurement.record.search is not None
        self.measurement, self.search, self.baseline = measurement, measurement.record.search, measurement.preset
        self.report = report  # writes the record, with the present work in words
        self.seconds = seconds  # measured in a trial
        self.best = Best(self.baseline)
        self.without_input = False  # candidates are now measured so
        self.memory = MemoryModel(None, "")  # the real one after the baseline was measured
        self.waits_count = False  # waits and work add up to the time of a step; on a CPU only

    def measure_best(self, stage: str, reason: str, without_input: bool) -> Candidate:
        """Measure the best settings, and all later candidates, with or without the input. Raises BaselineFailed."""
        candidate = self.candidate(stage, {}, reason, without_input=without_input)
        self._measure(candidate, self.best.preset)
        if not candidate.good:
            decide_failed(candidate, self.best)
            raise BaselineFailed(f"the training could not be measured; the last was {candidate.why}")
        candidate.decision = "kept"
        self.without_input, self.best = without_input, replace(self.best, measured=candidate)
        self.report("")
        return candidate

    def resume(self, best: Best) -> None:
        """Use settings that were measured before, with or without the input, as the best settings."""
        self.best, self.without_input = best, bool(best.measured and best.measured.without_input)

    def has(self, settings: Mapping[str, Any]) -> bool:
        return all(self.best.preset.options.value(key) == value for key, value in settings.items())

    def attempt(
        self,
        stage: str,
        tried: Mapping[str, Any],
        reason: str = "",
        predicted_bytes: int | None = None,
        judge: Judge | None = None,
    ) -> Candidate:
        """Measure the best settings with the changes `tried`, and keep them if faster. Raises Stopped, OutOfTime."""
        candidate = self.candidate(stage, tried, reason, predicted_bytes)
        preset = self._preset(candidate)
        if preset is not None:
            self._measure(candidate, preset, judge)
            while candidate.good and len(candidate.trials) < MOST_TRIALS and self._seems_to_gain(candidate):
                self._trial(candidate, preset)
                self.best_once_more()
            self._choose(candidate, preset)
        self.report("")
        return candidate

    def repeat(self, candidate: Candidate) -> None:
        """Measure a change of the present best settings once more, and decide again. Raises Stopped and OutOfTime."""
        preset = with_changes(self.baseline, candidate.settings)
        good = self._trial(candidate, preset).good
        if good and self._seems_to_gain(candidate):
            self.best_once_more()
        if good or not candidate.good:
            self._choose(candidate, preset)
        self.report("")

    def probe(self, stage: str, tried: Mapping[str, Any], reason: str, predicted_bytes: int | None = None) -> Candidate:
        """Train the best settings with `tried` a few steps for their memory. Raises Stopped and OutOfTime."""
        candidate = self.candidate(stage, tried, reason, predicted_bytes)
        preset = self._preset(candidate)
        if preset is not None:
            if self._trial(candidate, preset, seconds=PROBE_SECONDS).good:
                candidate.decision, candidate.why = "measured", "only its memory"
            else:
                decide_failed(candidate, self.best)
            candidate.samples_per_second = None
        self.report("")
        return candidate

    def measured(self, tried: Mapping[str, Any]) -> Preset | None:
        """Return the preset with which the changes `tried` are measured. None if they cannot be trained."""
        preset = self._preset(Candidate(stage="", settings=self.settings_with(tried), tried=tried))
        return with_changes(preset, ONE_BATCH) if preset is not None and self.without_input else preset

    def remembers(self, tried: Mapping[str, Any]) -> bool:
        """Return True if the first trial of `attempt` with the changes `tried` has already been measured."""
        preset = self.measured(tried)
        return preset is not None and self.measurement.remembers(preset, SIDE, 1, seconds=self.seconds)

    def leave_out(self, stage: str, tried: Mapping[str, Any], why: str, predicted_bytes: int | None = None) -> None:
        """Record the best settings with the changes `tried` as a candidate that is not measured, because of `why`."""
        candidate = self.candidate(stage, tried, "", predicted_bytes)
        candidate.decision, candidate.why = "left out", why
        self.report("")

    @property
    def noise(self) -> float:
        """The relative spread (0.03: 3 %) of repeated measurements."""
        squares = freedom = 0.0
        for candidate in self.search.candidates:
            speeds = [trial.speed for trial in candidate.good]
            if len(speeds) > 1:
                squares += statistics.variance(speeds) / statistics.fmean(speeds) ** 2 * (len(speeds) - 1)
                freedom += len(speeds) - 1
        # The first guess counts as one repetition, so that two speeds that are equal by chance do not give 0.
        return math.sqrt((squares + FIRST_NOISE**2) / (freedom + 1))

    def settings_with(self, tried: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes of the preset: those of the best settings together with `tried`."""
        settings = {**self.best.settings, **tried}
        return {key: value for key, value in settings.items() if self.baseline.options.value(key) != value}

    def candidate(
        self,
        stage: str,
        tried: Mapping[str, Any],
        reason: str,
        predicted_bytes: int | None = None,
        without_input: bool | None = None,
    ) -> Candidate:
        """Add a candidate to the record: the best settings with the changes `tried`."""
        candidate = Candidate(
            stage=stage, settings=self.settings_with(tried), tried=dict(tried), reason=reason,
            predicted_bytes=predicted_bytes,
            without_input=self.without_input if without_input is None else without_input,
        )  # fmt: skip
        self.search.candidates.append(candidate)
        return candidate

    def _preset(self, candidate: Candidate) -> Preset | None:
        """Return the preset of a candidate. None if it cannot be trained: the candidate then has the reason."""
        try:
            preset = with_changes(self.baseline, candidate.settings)
            candidate.why = self.measurement.conflict(preset)
        except PresetError as fault:
            candidate.why = fault.problems[0].message
        if candidate.why:
            candidate.decision = "left out"
            return None
        return preset

    def _measure(self, candidate: Candidate, preset: Preset, judge: Judge | None = None) -> None:
        retried(lambda _attempt: self._trial(candidate, preset, judge), (*SETTLED, "timeout", "slower"))

    def _trial(
        self, candidate: Candidate, preset: Preset, judge: Judge | None = None, seconds: float | None = None
    ) -> Trial:
        """Measure it; without `judge`, what never succeeded ends early if slower. Raises OutOfTime and Stopped."""
        measured = with_changes(preset, ONE_BATCH) if candidate.without_input else preset
        may_end = bool(candidate.tried) and not candidate.good and not self._waits_count_of(candidate)
        if judge is None and may_end and seconds is None:
            judge = below(SLOWER * self.best.speed)
        what = f"trying {proof_sentences.changes(candidate.tried)}" if candidate.tried else candidate.reason
        again = ", once more" if candidate.trials else ""
        self.report(f"{candidate.stage.replace('_', ' ')}: {what}{again}")
        try:
            repeat = len(candidate.trials) + 1
            trial = self.measurement.measure(measured, SIDE, repeat, seconds=seconds or self.seconds, judge=judge)
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
        candidate.peak_bytes = self.memory.peak(decisive)
        return trial

    def _seems_to_gain(self, candidate: Candidate) -> bool:
        self._note_waits(candidate)
        return seems_to_gain(candidate, self.best, self.noise)

    def _note_waits(self, candidate: Candidate) -> None:
        if self._waits_count_of(candidate):
            candidate.gain_by_waits = gain(candidate.tried, candidate.good, self.best.trials)

    def _waits_count_of(self, candidate: Candidate) -> bool:
        # if all options (steps_per_execution, or of the input but the batch size) change waits
        of_waits = (key == TOGETHER or (key.startswith("input.") and key != BATCH) for key in candidate.tried)
        return self.waits_count and all(of_waits)

    def best_once_more(self) -> None:
        """Measure the best settings (if measured) again, so that candidate and best are measured at the same time."""
        if self.best.measured is not None:
            self._trial(self.best.measured, self.best.preset)

    def _choose(self, candidate: Candidate, preset: Preset) -> None:
        if not candidate.good:
            decide_failed(candidate, self.best)
            return
        self._note_waits(candidate)
        decide(candidate, self.best, self.noise, self.memory.may_take)
        if candidate.decision == "kept":
            self.best = Best(preset, candidate.settings, candidate)
