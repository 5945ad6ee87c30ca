"""Suggests a learning rate from the losses of a ramp (range test: Smith, arXiv:1506.01186, section 3.3): that of the
steepest fall of the smoothed loss (fastai's `lr_find`), but at least a third and at most half of the rate with the
lowest loss, as in a short ramp the loss follows late. A Gaussian window, unlike an exponential mean, does not shift the
curve. The loss must fall by clearly more than its noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ... import units

WINDOW = 0.02  # standard deviation of the Gaussian, as a share of the ramp
REACH = 3  # standard deviations to each side
DIVERGED = 0.5  # times the fall: a loss that rises so far above its beginning ends the curve
LEAST_RISE = 0.25  # share of the first loss; a smaller rise does not end it
BEGINNING = 0.15  # share of the ramp whose rates are too low to learn
NOISES = 4.0  # standard errors of the smoothed loss: a smaller fall may be noise
LEAST_FALL = 0.01  # share of the first loss
LEAST_SHARE, MOST_SHARE = 1 / 3, 1 / 2  # of the rate with the lowest loss
FALLING = (0.1, 0.9)  # parts of the fall between which the steepest place is searched


@dataclass(frozen=True)
class Suggestion:
    """The smoothed curve, and the suggested rate with its reason; the rate is None if there is none, and `reason` then
    says why. `lowest_at` is the rate with the lowest smoothed loss.
    """

    smoothed: Sequence[float]
    rate: float | None
    reason: str
    lowest_at: float | None = None


def rate_at(step: float, low: float, high: float, steps: int) -> float:
    """Return the rate in the step `step` (from 0) of a ramp from `low` to `high` in `steps` steps."""
    return float(low * (high / low) ** min(1.0, step / steps))


def suggest(rates: Sequence[float], losses: Sequence[float | None]) -> Suggestion:
    """Return the suggestion for a ramp; `rates` rise, and a loss is None if it was not finite."""
    ends = next((number for number, loss in enumerate(losses) if loss is None), len(losses))
    finite = [loss for loss in losses[:ends] if loss is not None]
    if len(finite) < 10:
        return Suggestion(finite, None, f"the ramp has only {len(finite)} finite losses")
    width = max(1.0, WINDOW * len(losses))
    smoothed = _until_divergence(_smoothed(finite, width))
    first = max(3, int(BEGINNING * len(losses)))
    start, noise = statistics.median(smoothed[:first]), _noise(finite[:first], smoothed[:first], width)
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__)
    fall = start - smoothed[lowest]
    if fall < max(NOISES * noise, LEAST_FALL * abs(start)):
        text = f"the loss does not fall clearly below {units.amount(start)} at any rate of the ramp"
        return Suggestion(smoothed, None, text, rates[lowest])
    steepest = _steepest(rates, smoothed, start, fall, lowest, round(2 * width))
    low, high = LEAST_SHARE * rates[lowest], MOST_SHARE * rates[lowest]
    rate = float(f"{min(max(rates[steepest], low), high):.2g}")
    still = "; it still falls at the highest rate of the ramp" if lowest >= len(losses) - REACH * width else ""
    bound = ", of which a third is taken" if rates[steepest] < low else ""
    bound = ", of which half is taken" if rates[steepest] > high else bound
    fastest = f"the smoothed loss falls fastest at {rates[steepest]:.2g}"
    reason = f"{fastest}, and is lowest at {rates[lowest]:.2g}{bound}{still}"
    return Suggestion(smoothed, rate, reason, rates[lowest])


def _smoothed(values: Sequence[float], width: float) -> list[float]:
    """Return the values smoothed with a Gaussian of the standard deviation `width`, in places."""
    reach = math.ceil(REACH * width)
    weights = [math.exp(-0.5 * (place / width) ** 2) for place in range(reach + 1)]
    result = []
    for number in range(len(values)):
        part = range(max(0, number - reach), min(len(values), number + reach + 1))
        chosen = [weights[abs(place - number)] for place in part]
        result.append(sum(w * values[place] for w, place in zip(chosen, part, strict=True)) / sum(chosen))
    return result


def _until_divergence(smoothed: list[float]) -> list[float]:
    lowest = smoothed[0]
    for number, loss in enumerate(smoothed):
        lowest = min(lowest, loss)
        if loss > smoothed[0] + max(DIVERGED * (smoothed[0] - lowest), LEAST_RISE * abs(smoothed[0])):
            return smoothed[: number + 1]
    return smoothed


def _noise(raw: Sequence[float], smoothed: Sequence[float], width: float) -> float:
    spread = statistics.pstdev([loss - smooth for loss, smooth in zip(raw, smoothed, strict=True)])
    return spread / math.sqrt(2 * math.sqrt(math.pi) * width)  # independent values in a Gaussian window


def _steepest(
    rates: Sequence[float], smoothed: Sequence[float], start: float, fall: float, lowest: int, apart: int
) -> int:
    """Return the place with the steepest fall over the logarithm of the rate, within the main part of the fall."""
    above = [number for number in range(lowest) if smoothed[number] >= start - FALLING[0] * fall]
    begin = above[-1] if above else 0
    end = next((number for number in range(begin, lowest) if smoothed[number] <= start - FALLING[1] * fall), lowest)

    def slope(number: int) -> float:
        left, right = max(0, number - apart), min(lowest, number + apart)
        return (smoothed[right] - smoothed[left]) / math.log(rates[right] / rates[left]) if right > left else 0.0

    return min(range(begin, end + 1), key=slope)
