"""Compares the loss of settings with that of the preset, after training on the same number of samples: whole passes if
the time allows one, with two seeds if it allows two. The loss is that of the validation, or else the mean training loss
of the last pass (or of the second half of a part of a pass). It is clearly worse if it is higher in every pair by 5 %
of the preset's loss, but at least 1 % and at most 10 % of its fall.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import checks, plan
from ..job.machine_gpus import Machine
from ..presets import Preset
from ..proof.measurement import Measurement, OutOfTime
from ..runs.event_reading import RunEvents
from ..runs.events import EpochEnd, Progress, Started
from ..trials import comparing, proof_sentences
from ..trials.comparing import FINAL
from ..trials.record import LossCheck, RateTest, Trial
from ..trials.significance import WORSE
from ..trials.trial_preset import with_changes

LEAST_UPDATES = 40  # of the weights with the larger batch; fewer if the whole training has fewer
PASS_SECONDS = 0.3  # of a pass without its steps: its start and the evaluation (quickstart on two CPU cores)


@dataclass(frozen=True)
class Length:
    """The length of a training: `samples` in all, and whole `passes` over the data, None for a part of the first."""

    samples: int
    passes: int | None


@dataclass(frozen=True)
class Data:
    """Samples of a step (`batch`) and of a pass (None: unknown), and the passes of the training."""

    batch: int
    per_pass: int | None
    passes: int

    @classmethod
    def of(cls, preset: Preset, started: Started) -> Data:
        """Return the data of a preset, by its options and by the event `started` of its first trial."""
        batch, steps = started.global_batch_size or 1, preset.options.train.steps_per_epoch
        return cls(batch, steps * batch if steps else started.train_samples, preset.options.train.epochs)


def affordable(data: Data, largest_batch: int, seconds: float, per_sample: float) -> Length | None:
    """Return the longest training of both sides within `seconds`, None if it allows too few updates. `per_sample` is
    the time in seconds of a sample on both sides together, `largest_batch` the larger global batch.
    """
    enough = LEAST_UPDATES * largest_batch
    if data.per_pass:
        passes = min(data.passes, int(seconds / (data.per_pass * per_sample + 2 * PASS_SECONDS)))
        if passes and (passes == data.passes or passes * data.per_pass >= enough):
            return Length(passes * data.per_pass, passes)
    samples = int(seconds / per_sample) // largest_batch * largest_batch
    if data.per_pass is not None and samples >= data.per_pass:
        return None  # whole passes do not make enough updates
    return Length(samples, None) if samples >= enough else None


def epochs_and_steps(length: Length, preset: Preset, batch: int) -> tuple[int, int | None]:
    """Return `train.epochs` and `train.steps_per_epoch` (None: whole passes) for the global batch `batch`."""
    if length.passes is None:
        return 1, max(1, round(length.samples / batch))
    if preset.options.train.steps_per_epoch is None:
        return length.passes, None
    return length.passes, max(1, round(length.samples / length.passes / batch))


def growth(before: Preset, after: Preset, machine: Machine) -> float:
    old, new = (
        plan.global_batch(preset.options, checks.replicas(preset.options, machine)) for preset in (before, after)
    )
    return new / old


PAIRS = 2  # at most, with different seeds: the result of one pair may be chance
LEAST_OF_FALL, MOST_OF_FALL = 0.01, 0.1
FALL_IS_OVER = 0.5  # share of a part of a pass; only the losses after it count
SLACK = 1.2  # the time that is planned for a training, relative to its expected time


class Losses:
    """Compares losses within `seconds`, and adds the comparisons to the search. The preset is trained only once."""

    def __init__(self, measurement: Measurement, report: Callable[[str], None], seconds: float) -> None:
        assert measurement.record.search is not None
        self._measurement, self._search = measurement, measurement.record.search
        self._report, self._seconds, self._baseline = report, seconds, measurement.preset
        self._length: Length | None = None
        self._pairs = PAIRS

    def check(self, settings: Mapping[str, Any], speed: float) -> LossCheck:
        """Compare the loss with these settings (`speed`: samples per second) with the preset's. Raises Stopped."""
        made = LossCheck(settings=dict(settings))
        self._search.losses.append(made)
        first = next(trial for candidate in self._search.candidates for trial in candidate.good)
        data = Data.of(self._baseline, self._measurement.started(first))
        try:
            self._train(made, with_changes(self._baseline, settings), data, speed)
        except OutOfTime:
            made.decision, made.why = "not judged", "no time was left for it"
        good = [trial for trial in made.trials if counts(trial)]
        if made.decision == "running" and (events := note_losses(self._measurement, made, good)):
            made.loss_a, made.loss_b = (_mean(good, side) for side in "ab")
            falls = []  # of the preset's loss
            for trial in good:
                begin = next((event.loss for event in events[trial.run].of(Progress) if event.loss is not None), None)
                if trial.side == "a" and begin is not None and trial.loss_at_samples is not None:
                    falls.append(begin - trial.loss_at_samples)
            self._apply_rule(made, falls)
        self._report("")
        return made

    def _train(self, made: LossCheck, preset: Preset, data: Data, speed: float) -> None:
        before = self._search.before_speed or speed
        batch = max(1, round(data.batch * growth(self._baseline, preset, self._measurement.machine)))
        self._length = self._length or self._choose(data, max(data.batch, batch), 1 / before + 1 / speed)
        if self._length is None:
            made.decision = "not judged"
            made.why = "there is not enough time to train long enough for that; give more --minutes"
            return
        made.samples, made.passes = self._length.samples, self._length.passes
        sides = (("a", self._baseline, data.batch, before), ("b", preset, batch, speed))
        for repeat in range(1, self._pairs + 1):
            for side, settings, size, samples_per_second in sides:
                what = proof_sentences.changes(made.settings) if side == "b" else "the preset"
                length = epochs_and_steps(self._length, settings, size)
                seconds = self._length.samples / samples_per_second + PASS_SECONDS * length[0]
                seconds = self._measurement.trial_seconds + SLACK * seconds
                self._report(f"loss: {what} trains on {made.samples:,} samples, {repeat} of {self._pairs}")
                trial = self._measurement.learn(settings, side, repeat, length, made.trials, seconds)
                if not counts(trial):  # settings are not judged if the preset failed, or the cause may be chance
                    made.why = f"{'the preset ended with ' if side == 'a' else ''}{trial.outcome}: {trial.error}"
                    made.decision = "failed" if side == "b" and trial.outcome in FINAL else "not judged"
                    return

    def _choose(self, data: Data, batch: int, per_sample: float) -> Length | None:
        earlier = self._measurement.length_known(self._baseline)
        if earlier is not None:  # before the search was resumed
            epochs, steps = earlier
            if steps is None or steps == self._baseline.options.train.steps_per_epoch:
                return Length(epochs * (data.per_pass or 0), epochs)
            return Length(steps * data.batch, None)
        for self._pairs in range(PAIRS, 0, -1):
            training = self._seconds / self._pairs / SLACK - 2 * self._measurement.trial_seconds
            length = affordable(data, batch, max(0.0, training), per_sample)
            if length is not None:
                break
        return length

    def _apply_rule(self, made: LossCheck, falls: Sequence[float]) -> None:
        if made.loss_a is None:
            made.decision, made.why = "not judged", "the preset's own loss is not a finite number"
            return
        if made.loss_b is None:
            made.decision, made.why = "worse", "its loss is not a finite number"
            return
        apart = margin(made.loss_a, statistics.fmean(falls) if falls else None)
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
    """Return how much higher is clearly worse: 5 % of `loss`, within 1 to 10 % of its `fall` in training if known."""
    if fall is None or fall <= 0:
        return WORSE * abs(loss)
    return min(max(WORSE * abs(loss), LEAST_OF_FALL * fall), MOST_OF_FALL * fall)


def counts(trial: Trial) -> bool:
    """Return True if the loss of a trial counts: it was successful, or it has reached its time limit."""
    return trial.outcome in ("ok", "timeout")


def note_losses(
    measurement: Measurement, made: LossCheck | RateTest, trials: Sequence[Trial]
) -> dict[str, RunEvents] | None:
    """Store the loss of each trial (None: not finite or reported) after the passes that all have finished, and in
    `made` how many these are. Return the events of each run; None, with the reason in `made`, if one has no pass.
    """
    events = {trial.run: measurement.events_of(trial) for trial in trials}
    ends = {run: written.of(EpochEnd) for run, written in events.items()}
    passes = min(map(len, ends.values()), default=0)
    if ends and not passes:
        made.decision, made.why = "not judged", "a training came to its time limit before its first pass had ended"
        return None
    if made.passes is not None and made.samples is not None and passes < made.passes:
        made.samples, made.passes = made.samples // made.passes * passes, passes
    last = {run: losses[passes - 1].metrics for run, losses in ends.items()}
    made.of = "validation" if all("val_loss" in metrics for metrics in last.values()) else "training"
    for trial in trials:
        loss = last[trial.run].get("val_loss" if made.of == "validation" else "loss")
        if made.of == "training" and made.passes is None and loss is not None:  # the mean since the half of the samples
            until = comparing.value_at(comparing.losses(events[trial.run]), FALL_IS_OVER * (made.samples or 0))
            loss = loss if until is None else (loss - FALL_IS_OVER * until) / (1 - FALL_IS_OVER)
        trial.loss_at_samples = loss
    return events


def _mean(trials: Iterable[Trial], side: str) -> float | None:
    values = [trial.loss_at_samples for trial in trials if trial.side == side]
    measured = [loss for loss in values if loss is not None]
    return statistics.fmean(measured) if measured and len(measured) == len(values) else None
