"""Compares the loss of settings with that of the preset, after training on the same number of samples.

Two trainings of each side, each pair with a seed of its own, or one if there is time for no more: the part of the
search's minutes that is kept for this says how long they are. What counts is the loss of the
validation at the end, or if the preset has none, the mean training loss of the last pass, and of a part of a pass
that of its second half.

The rule: a loss is clearly worse if it is higher in every pair by more than a margin. The margin is 5 % of the preset's
loss, but at least 1 % and at most 10 % of what that has fallen by: near 0 a share of the loss means nothing, and early
in a training a loss 5 % higher can be half of all that was learnt.

Both train on the same number of samples: whole passes over the data if the time allows one, as the validation loss
comes after each; at most the preset's own training. A comparison needs some updates of the weights: after a few the
loss of any setting is that of the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import checks, plan
from ..job.machine import Machine
from ..presets import Preset
from ..proof.request import Request
from ..runs import Run
from ..runs.events import EVENTS_FILE, EpochEnd, Event, Progress, Started
from ..runs.reading import read_events
from ..trials import learning, sentences
from ..trials.comparing import CHANCES, FINAL
from ..trials.search_record import LossCheck, Search
from ..trials.trial import Trial
from ..trials.trial_preset import with_changes
from .candidates.search_trials import OutOfTime, Trials

LEAST_UPDATES = 40  # of the settings with the larger batch; fewer if that is the whole training
PASS_SECONDS = 0.3  # besides the steps: evaluating and starting a pass of the preset quickstart on two CPU cores


@dataclass(frozen=True)
class Length:
    """`passes` whole ones over the data, or none and a part of the first; `samples` in all."""

    samples: int
    passes: int | None


@dataclass(frozen=True)
class Data:
    """What is known of the preset's data: samples of a pass (None: unknown), of a step, and of the whole training."""

    batch: int
    per_pass: int | None
    passes: int

    @classmethod
    def of(cls, preset: Preset, started: Started) -> Data:
        """By the preset, and by what its first trial has told."""
        batch, steps = started.global_batch_size or 1, preset.options.train.steps_per_epoch
        return cls(batch, steps * batch if steps else started.train_samples, preset.options.train.epochs)

    @property
    def samples(self) -> int | None:
        return None if self.per_pass is None else self.passes * self.per_pass


def affordable(data: Data, largest_batch: int, seconds: float, per_sample: float) -> Length | None:
    """What `seconds` of training of both sides allow, each sample taking `per_sample` of them; None: too little."""
    if data.per_pass:
        passes = min(data.passes, int(seconds / (data.per_pass * per_sample + 2 * PASS_SECONDS)))
        if passes and (passes == data.passes or _is_enough(passes * data.per_pass, largest_batch)):
            return Length(passes * data.per_pass, passes)
    samples = int(seconds / per_sample) // largest_batch * largest_batch
    if data.per_pass is not None and samples >= data.per_pass:
        return None  # whole passes do not make enough updates
    return Length(samples, None) if _is_enough(samples, largest_batch) else None


def _is_enough(samples: int, largest_batch: int) -> bool:
    return samples >= LEAST_UPDATES * largest_batch


def epochs_and_steps(length: Length, preset: Preset, batch: int) -> tuple[int, int | None]:
    """The length for settings with this global batch, as `train.epochs` and `train.steps_per_epoch`."""
    if length.passes is None:
        return 1, max(1, round(length.samples / batch))
    if preset.options.train.steps_per_epoch is None:
        return length.passes, None
    return length.passes, max(1, round(length.samples / length.passes / batch))


def of_earlier(length: tuple[int, int | None], data: Data, preset: Preset) -> Length:
    """The length of trials of an earlier sitting, from the epochs and steps of the preset's own."""
    epochs, steps = length
    if steps is None or steps == preset.options.train.steps_per_epoch:
        return Length(epochs * (data.per_pass or 0), epochs)
    return Length(steps * data.batch, None)


def growth(before: Preset, after: Preset, machine: Machine) -> float:
    """How many times as large the global batch is."""
    old, new = (plan.global_batch(one.options, checks.replicas(one.options, machine)) for one in (before, after))
    return new / old


Told = TypeVar("Told", bound=Event)
PAIRS = 2  # at most, with different seeds: one alone may be chance
WORSE = 0.05
LEAST_OF_FALL, MOST_OF_FALL = 0.01, 0.1
FALL_IS_OVER = 0.5  # of a part of a pass: the second half counts
SLACK = 1.2  # of the expected time


class Losses:
    """Makes comparisons of losses within `seconds`, and keeps them in the search; the preset is trained only once.

    `speeds` are samples per second of the preset and of the fastest settings, by which the time is shared out.
    """

    def __init__(
        self, request: Request, search: Search, trials: Trials, report: Callable[[str], None], seconds: float
    ) -> None:
        self._search, self._trials, self._report, self._seconds = search, trials, report, seconds
        self._baseline = request.baseline()
        self._length: Length | None = None
        self._pairs = PAIRS

    def check(self, settings: Mapping[str, Any], speed: float) -> LossCheck:
        """Compare the loss with these settings, which train so many samples per second; raises Stopped."""
        made = LossCheck(settings=dict(settings))
        self._search.losses.append(made)
        preset = with_changes(self._baseline, settings)
        started = self._started()
        try:
            self._train(made, preset, Data.of(self._baseline, started), speed)
        except OutOfTime:
            made.decision, made.why = "not judged", "no time was left for it"
        if made.decision == "running":
            self._judge(made)
        self._report("")
        return made

    def _started(self) -> Started:
        """What the first trial of the preset has told."""
        first = next(trial for candidate in self._search.candidates for trial in candidate.good)
        return _told(self._trials.run_of(first), Started)[-1]

    # ---- training -----------------------------------------------------------------------------------

    def _train(self, made: LossCheck, preset: Preset, data: Data, speed: float) -> None:
        before = self._search.before_speed or speed
        batch = max(1, round(data.batch * growth(self._baseline, preset, self._trials.machine)))
        self._length = self._length or self._choose(data, max(data.batch, batch), 1 / before + 1 / speed)
        if self._length is None:
            made.decision = "not judged"
            made.why = "there is not enough time to train long enough for that; give more --minutes"
            return
        made.samples, made.passes = self._length.samples, self._length.passes
        sides = (("a", self._baseline, data.batch, before), ("b", preset, batch, speed))
        for repeat in range(1, self._pairs + 1):
            for side, settings, size, samples_per_second in sides:
                length = epochs_and_steps(self._length, settings, size)
                seconds = self._length.samples / samples_per_second + PASS_SECONDS * length[0]
                trial = self._trained(made, settings, side, repeat, length, seconds)
                if not _counts(trial):
                    self._failed(made, trial)
                    return

    def _choose(self, data: Data, batch: int, per_sample: float) -> Length | None:
        earlier = self._trials.length_known(self._baseline)
        if earlier is not None:
            return of_earlier(earlier, data, self._baseline)
        for self._pairs in range(PAIRS, 0, -1):
            training = self._seconds / self._pairs / SLACK - 2 * self._trials.trial_seconds
            length = affordable(data, batch, max(0.0, training), per_sample)
            if length is not None:
                break
        return length

    def _trained(
        self, made: LossCheck, preset: Preset, side: str, repeat: int, length: tuple[int, int | None], seconds: float
    ) -> Trial:
        """One training, a second time if the first one died."""
        what = sentences.changes(made.settings) if side == "b" else "the preset"
        for _ in range(CHANCES):
            self._report(f"loss: {what} trains on {made.samples:,} samples, {repeat} of {self._pairs}")
            trial = self._trials.learn(preset, side, repeat, length, self._trials.trial_seconds + SLACK * seconds)
            made.trials.append(trial)
            if _counts(trial) or trial.outcome in FINAL:
                break
        return trial

    def _failed(self, made: LossCheck, trial: Trial) -> None:
        """The preset's own fault says nothing about the settings."""
        made.why = f"{'the preset ended with ' if trial.side == 'a' else ''}{trial.outcome}: {trial.error}"
        made.decision = "failed" if trial.side == "b" and trial.outcome in FINAL else "not judged"

    # ---- judging ------------------------------------------------------------------------------------

    def _judge(self, made: LossCheck) -> None:
        """Read the losses of all trials after the passes that all of them have ended, and apply the rule."""
        good = [trial for trial in made.trials if _counts(trial)]
        runs = {trial.run: self._trials.run_of(trial) for trial in good}
        ends = {run: _told(folder, EpochEnd) for run, folder in runs.items()}
        passes = min(len(found) for found in ends.values())
        if passes == 0:
            made.decision, made.why = "not judged", "a training came to its time limit before its first pass had ended"
            return
        if made.passes is not None and made.samples is not None and passes < made.passes:
            made.samples, made.passes = made.samples // made.passes * passes, passes
        first = {run: found[:passes] for run, found in ends.items()}
        made.of = "validation" if all("val_loss" in found[-1].metrics for found in first.values()) else "training"
        for trial in good:
            trial.loss_at_samples = _loss(runs[trial.run], first[trial.run][-1], made)
        made.loss_a, made.loss_b = (_mean(good, side) for side in "ab")
        self._apply_rule(made, [_fall(runs[trial.run], trial) for trial in good if trial.side == "a"])

    def _apply_rule(self, made: LossCheck, falls: Sequence[float | None]) -> None:
        if made.loss_a is None:
            made.decision, made.why = "not judged", "the preset's own loss is not a finite number"
            return
        if made.loss_b is None:
            made.decision, made.why = "worse", "its loss is not a finite number"
            return
        measured = [fall for fall in falls if fall is not None]
        apart = margin(made.loss_a, statistics.fmean(measured) if measured else None)
        made.worse_from = made.loss_a + apart
        pairs = [
            {
                trial.side: trial.loss_at_samples or 0.0
                for trial in made.trials
                if trial.repeat == repeat and trial.loss_at_samples is not None
            }
            for repeat in {trial.repeat for trial in made.trials}
        ]
        made.decision = "worse" if all(pair["b"] > pair["a"] + apart for pair in pairs) else "no worse"


def margin(loss: float, fall: float | None) -> float:
    """By how much a loss must be higher to be clearly worse; `fall` is what the loss has fallen by."""
    if fall is None or fall <= 0:
        return WORSE * abs(loss)
    return min(max(WORSE * abs(loss), LEAST_OF_FALL * fall), MOST_OF_FALL * fall)


def _counts(trial: Trial) -> bool:
    """Also one that has reached its time limit: what it has learnt until then is known."""
    return trial.outcome in ("ok", "timeout")


def _told(run: Run, kind: type[Told]) -> list[Told]:
    return [event for event in read_events(run.path, [EVENTS_FILE]).events if isinstance(event, kind)]


def _loss(run: Run, end: EpochEnd, made: LossCheck) -> float | None:
    if made.of == "validation":
        return end.metrics.get("val_loss")
    whole = end.metrics.get("loss")
    if made.passes is not None or whole is None:
        return whole
    return _of_second_half(learning.losses(run), whole, made.samples or 0)


def _of_second_half(curve: Sequence[tuple[float, float]], whole: float, samples: int) -> float:
    """The mean loss since half of the samples; Keras tells means since the beginning."""
    half = FALL_IS_OVER * samples
    until = learning.loss_at(curve, half)
    return whole if until is None else (whole - FALL_IS_OVER * until) / (1 - FALL_IS_OVER)


def _fall(run: Run, trial: Trial) -> float | None:
    """From the first loss that was told."""
    first = next((event.loss for event in _told(run, Progress) if event.loss is not None), None)
    return None if first is None or trial.loss_at_samples is None else first - trial.loss_at_samples


def _mean(trials: Iterable[Trial], side: str) -> float | None:
    """None if one of them is not a number."""
    values = [trial.loss_at_samples for trial in trials if trial.side == side]
    measured = [loss for loss in values if loss is not None]
    return statistics.fmean(measured) if measured and len(measured) == len(values) else None
