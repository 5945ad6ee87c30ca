"""Whether a candidate is faster than the best settings so far: a gain within the standard error is chance, one above
twice that is clear (95 % of a normal distribution), and between the two candidate and best settings are measured once
more. The error of the difference of two means of n and m trials is spread * sqrt(1/n + 1/m), with the relative spread
of repeated measurements.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import units
from ...presets import Preset
from ...trials.search_record import Candidate
from ...trials.significance import LEAST_GAIN
from ...trials.trial import Trial
from .search_space import BATCH, TOGETHER

# Errors of the logarithm of a gain by waits. A resnet50 on two cores gained 5.5 % with 4 steps in an execution,
# while its waits said 6.0 %, and 5.7 to 11.5 % with a faster input, while they said 11 %. The input's threads take a
# part of the cores: if they take all, a training that no longer waits gains nothing.
LEAST_ERROR, SHARE_ERROR = 0.04, 0.5


def leaves_the_work(tried: Mapping[str, Any]) -> bool:
    """Return True if all options in `tried` (steps_per_execution, or of the input but the batch size) change waits."""
    return all(key == TOGETHER or (key.startswith("input.") and key != BATCH) for key in tried)


def gain(tried: Mapping[str, Any], trials: Sequence[Trial], before: Sequence[Trial]) -> float | None:
    """Return the gain (0.05: 5 % faster) that follows from the waits in `trials` and in the trials `before`. Only the
    waits that the options in `tried` change count, as the others differ by chance. None without a reading.
    """
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
    """The fastest settings so far, as changes of the original preset, and their trials, which are with or without the
    input as the candidates of the present stage are.
    """

    preset: Preset
    settings: Mapping[str, Any] = field(default_factory=dict)
    measured: Candidate | None = None

    @property
    def trials(self) -> list[Trial]:
        return self.measured.good if self.measured else []

    @property
    def speed(self) -> float:
        return speed(self.trials)


def speed(trials: Sequence[Trial]) -> float:
    """Return the mean samples per second of trials. 0 if there is none."""
    return statistics.fmean(trial.speed for trial in trials) if trials else 0.0


def noise_of(candidates: Sequence[Candidate]) -> float:
    """Return the relative spread (0.03: 3 %) of repeated measurements of the same settings, over all candidates.
    FIRST_NOISE counts as one repetition.
    """
    squares = freedom = 0.0
    for candidate in candidates:
        speeds = [trial.speed for trial in candidate.good]
        if len(speeds) > 1:
            squares += statistics.variance(speeds) / statistics.fmean(speeds) ** 2 * (len(speeds) - 1)
            freedom += len(speeds) - 1
    # The first guess counts as one repetition, so that two speeds that are equal by chance do not give 0.
    return math.sqrt((squares + FIRST_NOISE**2) / (freedom + 1))


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
    """Store in a candidate whether it is kept or rejected, by all its trials. `may_take` is the memory in bytes that
    may be used, None if it is not known.
    """
    gain, error = compare(candidate, best, noise)
    reason, too_much = _gain_text(candidate, gain), takes_too_much(candidate, best, may_take)
    if too_much:
        candidate.decision, candidate.why = "rejected", f"{reason}: {too_much}"
    elif gain > max(LEAST_GAIN, error):
        candidate.decision, candidate.why = "kept", reason
    else:
        why = "slower" if gain < -LEAST_GAIN else f"not more than {units.share(max(LEAST_GAIN, error))}"
        candidate.decision, candidate.why = "rejected", f"{reason}: {why}"


def _gain_text(candidate: Candidate, gain: float) -> str:
    by_waits = waits_gain(candidate)
    return units.change(gain) + (f" ({units.change(by_waits)} by its waits)" if by_waits > gain else "")


def decide_failed(candidate: Candidate, best: Best) -> None:
    """Record that a candidate without a successful trial has failed, or was rejected because it was clearly slower."""
    last = candidate.trials[-1]
    if last.outcome != "slower":
        candidate.decision, candidate.why = "failed", f"{last.outcome}: {last.error}"
        return
    candidate.gain = last.speed / best.speed - 1
    candidate.decision, candidate.why = "rejected", f"{units.change(candidate.gain)}: {last.error}"


def may_be_faster(rejected: Candidate, noise: float) -> bool:
    """Return True if a rejected candidate may have been rejected by chance: its gain is not below -CLEAR standard
    errors.
    """
    if rejected.gain is None:
        return False
    error = max(rejected.spread or 0.0, standard_error(noise, max(1, len(rejected.good)), 1))
    return rejected.gain > -CLEAR * error


def takes_too_much(candidate: Candidate, best: Best, may_take: float | None) -> str:
    """Return why a candidate, which takes more than `may_take` bytes and than the best settings, cannot be kept. Empty
    if it can.
    """
    taken, before = candidate.peak_bytes or 0, (best.measured and best.measured.peak_bytes) or 0
    if may_take is None or taken <= max(may_take, before):
        return ""
    return f"{units.size(taken)} of memory, but only {units.size(may_take)} may be planned"
