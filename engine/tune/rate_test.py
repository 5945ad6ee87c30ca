"""The learning-rate range test: the ramp, the rate that its losses suggest, and its proof on new seeds. The
suggestion (Smith, arXiv:1506.01186, section 3.3; fastai's `lr_find`) is the rate of the steepest fall of the smoothed
loss, but at least a third and at most half of that with the lowest loss, as in a short ramp the loss follows late. A
Gaussian window, unlike an exponential mean, does not shift the curve. The ratio of losses must exceed its spread, as
that of speeds must.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .. import units
from ..proof import duration
from ..proof.measurement import Measurement, OutOfTime
from ..runs.events import Progress, Started
from ..trials import proof_sentences, significance
from ..trials.comparing import BaselineFailed
from ..trials.record import KEY, RateSettings, RateTest, Trial
from ..trials.trial_preset import with_changes
from .losses import PASS_SECONDS, SLACK, Data, affordable, counts, epochs_and_steps, note_losses

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
    """The smoothed curve, the suggested rate (or None) with its reason, and the rate with the lowest smoothed loss."""

    smoothed: Sequence[float]
    rate: float | None
    reason: str
    lowest_at: float | None = None


def rate_at(step: float, low: float, high: float, steps: int) -> float:
    """Return the rate in the step `step` (from 0) of a ramp from `low` to `high` in `steps` steps."""
    return float(low * (high / low) ** min(1.0, step / steps))


def suggest(rates: Sequence[float], losses: Sequence[float | None]) -> Suggestion:
    ends = next((number for number, loss in enumerate(losses) if loss is None), len(losses))
    finite = [loss for loss in losses[:ends] if loss is not None]
    if len(finite) < 10:
        return Suggestion(finite, None, f"the ramp has only {len(finite)} finite losses")
    width = max(1.0, WINDOW * len(losses))
    smoothed = _until_divergence(_smoothed(finite, width))
    first = max(3, int(BEGINNING * len(losses)))
    start = statistics.median(smoothed[:first])
    spread = statistics.pstdev([loss - smooth for loss, smooth in zip(finite[:first], smoothed[:first], strict=True)])
    noise = spread / math.sqrt(2 * math.sqrt(math.pi) * width)  # of independent values in a Gaussian window
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


RAMP = "r"  # the side of the trial with the ramp
CLOSE = 1.25  # a suggestion within this factor of the preset's rate is not compared
RAMP_SHARE = 0.5  # of the minutes: the most that the ramp may take
VERDICTS = {"faster": "better", "slower": "worse"}


def measure(measurement: Measurement) -> None:
    """Carry out one range test, whose results go to the record. Raises Stopped and BaselineFailed."""
    record, preset, settings = measurement.record, measurement.preset, measurement.request.rate or RateSettings()
    measurement.end_after(settings.minutes)
    test = record.rate = RateTest(
        settings=settings, before=preset.options.train.learning_rate, seed=measurement.request.seed
    )
    try:
        started = _measure_ramp(measurement, test)
    except OutOfTime:
        raise BaselineFailed("the minutes do not allow the ramp: give more --minutes") from None
    chosen = suggest(test.rates, test.losses)
    test.smoothed, test.suggested, test.reason = chosen.smoothed, chosen.rate, chosen.reason
    test.lowest_at = chosen.lowest_at
    if chosen.rate is None:
        test.decision, test.why = "no suggestion", chosen.reason
    elif max(chosen.rate / test.before, test.before / chosen.rate) <= CLOSE:
        test.decision, test.why = "close", f"it is within a factor of {CLOSE:g} of the preset's {test.before:g}"
    else:
        _compare(measurement, test, Data.of(preset, started))
    if test.decision == "better":
        record.changes_kept = dict(test.changes)
        record.preset_after = with_changes(preset, test.changes).to_yaml()


def _measure_ramp(measurement: Measurement, test: RateTest) -> Started:
    """Raises OutOfTime, Stopped and BaselineFailed."""
    settings, train = test.settings, measurement.preset.options.train
    steps = settings.steps * train.gradient_accumulation  # as many updates
    preset = with_changes(
        measurement.preset,
        {
            KEY: settings.high,
            "train.schedule": "ramp",
            "train.decay_rate": settings.low / settings.high,
            "train.decay_steps": steps,
            "train.warmup_steps": 0,
            "train.hold_steps": 0,
            "compile.steps_per_execution": 1,  # the loss of each step
        },
    )
    most_seconds = RAMP_SHARE * measurement.limit_seconds
    words = f"the ramp: {steps} steps from {settings.low:g} to {settings.high:g}"
    trial = measurement.learn(preset, RAMP, 1, (1, steps), test.ramp, most_seconds, doing=words)
    written = measurement.events_of(trial)
    started = written.last(Started)
    if started is None or not (counts(trial) or _diverged(measurement, trial)):
        raise BaselineFailed(f"the ramp could not be trained: {trial.outcome}: {trial.error}")
    if why := started.inapplicable.get(KEY):
        raise BaselineFailed(proof_sentences.rate_inapplicable(why))
    before = 0
    rates, losses = list[float](), list[float | None]()
    for report in written.of(Progress):
        if report.step > before:
            middle = (before + report.step - 1) / 2  # of the steps that the report is about, from 0
            rates.append(rate_at(middle, settings.low, settings.high, steps))
            loss = report.window_loss
            losses.append(loss if loss is not None and math.isfinite(loss) else None)
            before = report.step
    if any(loss is not None for loss in losses):
        test.rates, test.losses = rates, losses
    elif _diverged(measurement, trial):
        raise BaselineFailed(f"no loss of the ramp is a finite number: {trial.error}")
    else:
        raise BaselineFailed("the model keeps no running mean of its loss, so that the loss of a step is not known")
    return started


def _diverged(measurement: Measurement, trial: Trial) -> bool:
    error = (measurement.run_of(trial).result or {}).get("error") or {}
    return trial.outcome == "error" and error.get("kind") == "nan"  # weights that are not finite


def _compare(measurement: Measurement, test: RateTest, data: Data) -> None:
    repeats, ramp = measurement.request.repeats, test.ramp[-1]
    reports = measurement.events_of(ramp).of(Progress)
    steps = max(1, reports[-1].step - reports[0].step)
    per_step = max(1e-6, (reports[-1].t - reports[0].t) / steps)
    start = duration.OF_FIRST * max(0.0, ramp.seconds - steps * per_step)  # later trainers are forked
    each = measurement.seconds_left / (2 * repeats * SLACK) - start
    length = affordable(data, data.batch, max(0.0, each), per_step / data.batch)
    if length is None:
        test.decision = "not judged"
        test.why = "there is too little time to compare the losses; give more --minutes"
        return
    test.samples, test.passes = length.samples, length.passes
    length_of_each = epochs_and_steps(length, measurement.preset, data.batch)
    seconds = SLACK * (length.samples * per_step / data.batch + PASS_SECONDS * length_of_each[0] + start)
    sides = {"a": measurement.preset, "b": with_changes(measurement.preset, test.changes)}
    pairs = range(2, repeats + 2)  # the ramp has had the first seed
    try:
        for repeat in pairs:
            for side, preset in sides.items():
                rate = test.before if side == "a" else test.suggested
                words = f"pair {repeat - 1} of {repeats}: {test.samples:,} samples at rate {rate:g}"
                trial = measurement.learn(preset, side, repeat, length_of_each, test.trials, seconds, doing=words)
                if not (counts(trial) or _diverged(measurement, trial)):
                    whose = "the preset's rate" if side == "a" else "the suggestion"
                    test.decision, test.why = "not judged", f"{whose} ended with {trial.outcome}: {trial.error}"
                    return
    except OutOfTime:
        test.decision, test.why = "not judged", f"{test.settings.minutes:g} min allow no {repeats} pairs"
        return
    if note_losses(measurement, test, [trial for trial in test.trials if counts(trial)]) is not None:
        losses = {(trial.side, trial.repeat): trial.loss_at_samples for trial in test.trials}
        decide(test, [(losses["a", repeat], losses["b", repeat]) for repeat in pairs])


def decide(test: RateTest, pairs: Sequence[tuple[float | None, float | None]]) -> None:
    """Store the decision about pairs of losses with the preset's rate and with the suggestion; None: it diverged."""
    count = len(pairs)
    lost_a, lost_b = (sum(pair[side] is None for pair in pairs) for side in (0, 1))
    whole = [(a, b) for a, b in pairs if a is not None and b is not None]
    if lost_b:
        also = f", with the preset's in {lost_a}" if lost_a else ""
        test.decision = "worse" if lost_b > lost_a else "undecided"
        test.why = f"the training diverges with the suggestion in {lost_b} of {count} pairs{also}"
        return
    if lost_a == count:
        test.decision, test.why = "better", f"with the preset's rate the training diverges in all {count} pairs"
        return
    test.loss_a, test.loss_b = (statistics.fmean(pair[side] for pair in whole) for side in (0, 1))
    if min(min(pair) for pair in whole) <= 0:
        test.decision, test.why = "not judged", "losses that are not above 0 have no meaningful ratio"
        return
    test.gains = [significance.gain(b, a) for a, b in whole]  # above 0 if the suggestion has the lower loss
    verdict, _ = significance.verdict(test.gains)
    test.decision = VERDICTS.get(verdict, verdict)
    test.why = proof_sentences.rate_losses(test)
    if lost_a:
        test.decision, test.why = "undecided", f"the preset's rate diverges in {lost_a} of {count} pairs; {test.why}"
