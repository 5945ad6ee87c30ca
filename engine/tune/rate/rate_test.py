"""The range test: the ramp of the learning rate, and trainings that compare the suggestion with the preset's rate. Each
pair has a new seed and the preset's own schedule. The ratio of the losses after the same number of samples must exceed
its spread over the pairs, as the ratio of speeds must (trials/significance.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from ...presets import Preset
from ...proof import duration
from ...proof.request import Request
from ...runs.event_reading import RunEvents, read_events
from ...runs.events import EVENTS_FILE, EpochEnd, Progress, Started
from ...trials import rate_sentences, significance
from ...trials.comparing import CHANCES, FINAL, BaselineFailed
from ...trials.rate_record import KEY, RateSettings, RateTest
from ...trials.record import Record
from ...trials.trial import Trial
from ...trials.trial_preset import with_changes
from ...trials.trial_runner import TrialRunner
from ..candidates.search_trials import OutOfTime, Trials
from ..losses import PASS_SECONDS, SLACK, Data, affordable, counts, epochs_and_steps, loss_of
from .suggestion import rate_at, suggest

RAMP, DIVERGED = "r", "nan"  # the side of the trial with the ramp; the kind of error of weights that are not finite
CLOSE = 1.25  # a suggestion within this factor of the preset's rate is not compared
RAMP_SHARE = 0.5  # of the minutes: the most that the ramp may take
VERDICTS = {"faster": "better", "slower": "worse"}


class RangeTest:
    """Carries out one range test with trials of `bench`, whose results go to the record.

    `earlier` are the trials from before it was interrupted.
    """

    def __init__(self, request: Request, record: Record, bench: TrialRunner, earlier: Iterable[Trial] = ()) -> None:
        self._preset, self._record, self._repeats = request.baseline(), record, request.repeats
        settings = request.rate or RateSettings()
        self._limit = 60 * settings.minutes
        self._trials = Trials(bench, earlier, lambda: record.elapsed, self._limit, duration.of_request(request))
        self._test = record.rate = RateTest(
            settings=settings, before=self._preset.options.train.learning_rate, seed=request.seed
        )
        self._steps = settings.steps * self._preset.options.train.gradient_accumulation  # as many updates

    def run(self) -> None:
        """Carry out the whole test. Raises Stopped, and BaselineFailed if the ramp cannot be trained."""
        test = self._test
        try:
            started = self._measure_ramp()
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
            self._compare(started)
        if test.decision == "better":
            self._record.changes_kept = dict(test.changes)
            self._record.preset_after = with_changes(self._preset, test.changes).to_yaml()

    # ---- the ramp -----------------------------------------------------------------------------------

    def _measure_ramp(self) -> Started:
        """Raises OutOfTime, Stopped and BaselineFailed."""
        test, settings = self._test, self._test.settings
        self._record.write(f"the ramp: {self._steps} steps from {settings.low:g} to {settings.high:g}")
        preset = with_changes(
            self._preset,
            {
                KEY: settings.high,
                "train.schedule": "ramp",
                "train.decay_rate": settings.low / settings.high,
                "train.decay_steps": self._steps,
                "train.warmup_steps": 0,
                "train.hold_steps": 0,
                "compile.steps_per_execution": 1,  # the loss of each step
            },
        )
        trial = self._trained(preset, RAMP, 1, (1, self._steps), RAMP_SHARE * self._limit, test.ramp)
        written = self._events_of(trial)
        started = written.last(Started)
        if started is None or not (counts(trial) or self._diverged(trial)):
            raise BaselineFailed(f"the ramp could not be trained: {trial.outcome}: {trial.error}")
        self._record.versions = dict(started.versions)
        if why := started.inapplicable.get(KEY):
            raise BaselineFailed(rate_sentences.inapplicable(why))
        self._read_curve(written.of(Progress))
        if not test.rates and self._diverged(trial):
            raise BaselineFailed(f"no loss of the ramp is a finite number: {trial.error}")
        if not test.rates:
            raise BaselineFailed("the model keeps no running mean of its loss, so that the loss of a step is not known")
        return started

    def _read_curve(self, reports: Sequence[Progress]) -> None:
        test, settings = self._test, self._test.settings
        rates, losses, before = [], [], 0
        for report in reports:
            if report.step > before:
                middle = (before + report.step - 1) / 2  # of the steps that the report is about, from 0
                rates.append(rate_at(middle, settings.low, settings.high, self._steps))
                loss = report.window_loss
                losses.append(loss if loss is not None and math.isfinite(loss) else None)
                before = report.step
        if any(loss is not None for loss in losses):
            test.rates, test.losses = rates, losses

    def _events_of(self, trial: Trial) -> RunEvents:
        return read_events(self._trials.run_of(trial).path, [EVENTS_FILE])

    def _diverged(self, trial: Trial) -> bool:
        error = (self._trials.run_of(trial).result or {}).get("error") or {}
        return trial.outcome == "error" and error.get("kind") == DIVERGED

    # ---- the comparison -----------------------------------------------------------------------------

    def _compare(self, started: Started) -> None:
        """Train pairs with both rates, and decide. Raises Stopped."""
        test = self._test
        data = Data.of(self._preset, started)
        reports = self._events_of(test.ramp[-1]).of(Progress)
        steps = max(1, reports[-1].step - reports[0].step)
        per_step = max(1e-6, (reports[-1].t - reports[0].t) / steps)
        start = duration.OF_FIRST * max(0.0, test.ramp[-1].seconds - steps * per_step)  # later trainers are forked
        each = self._trials.seconds_left / (2 * self._repeats * SLACK) - start
        length = affordable(data, data.batch, max(0.0, each), per_step / data.batch)
        if length is None:
            test.decision, test.why = (
                "not judged",
                "there is too little time to compare the losses; give more --minutes",
            )
            return
        test.samples, test.passes = length.samples, length.passes
        length_of_each = epochs_and_steps(length, self._preset, data.batch)
        seconds = length.samples * per_step / data.batch + PASS_SECONDS * length_of_each[0] + start
        sides = {"a": self._preset, "b": with_changes(self._preset, test.changes)}
        try:
            for repeat in range(2, self._repeats + 2):  # the ramp has had the first seed
                for side, preset in sides.items():
                    rate = test.before if side == "a" else test.suggested
                    self._record.write(
                        f"pair {repeat - 1} of {self._repeats}: {test.samples:,} samples at rate {rate:g}"
                    )
                    trial = self._trained(preset, side, repeat, length_of_each, SLACK * seconds, test.trials)
                    if not (counts(trial) or self._diverged(trial)):
                        whose = "the preset's rate" if side == "a" else "the suggestion"
                        test.decision, test.why = "not judged", f"{whose} ended with {trial.outcome}: {trial.error}"
                        return
        except OutOfTime:
            test.decision, test.why = "not judged", f"{test.settings.minutes:g} min allow no {self._repeats} pairs"
            return
        self._judge()

    def _trained(
        self, preset: Preset, side: str, repeat: int, length: tuple[int, int | None], seconds: float, rows: list[Trial]
    ) -> Trial:
        """Once more if the first attempt failed by chance."""
        for attempt in range(1, CHANCES + 1):
            trial = self._trials.learn(preset, side, repeat, length, seconds)
            trial.disturbed = ""  # other programs change the speed and not the loss
            rows.append(trial)
            self._record.write()
            if counts(trial) or trial.outcome in FINAL or attempt == CHANCES:
                break
        return trial

    def _judge(self) -> None:
        """Read the losses after the number of passes that all trainings have finished, and decide."""
        test = self._test
        written = {trial.run: self._events_of(trial) for trial in test.trials if counts(trial)}
        ends = {run: events.of(EpochEnd) for run, events in written.items()}
        passes = min(map(len, ends.values()), default=0)
        if ends and not passes:
            test.decision, test.why = "not judged", "a training came to its time limit before its first pass had ended"
            return
        if test.passes is not None and test.samples is not None and passes < test.passes:
            test.samples, test.passes = test.samples // test.passes * passes, passes
        first = {run: epochs[:passes] for run, epochs in ends.items()}
        test.of = "validation" if all("val_loss" in epochs[-1].metrics for epochs in first.values()) else "training"
        for trial in test.trials:
            if trial.run in first:
                trial.loss_at_samples = loss_of(written[trial.run], first[trial.run][-1], test)
        losses = {(trial.side, trial.repeat): trial.loss_at_samples for trial in test.trials}
        pairs = [(losses["a", repeat], losses["b", repeat]) for repeat in range(2, self._repeats + 2)]
        decide(test, pairs)


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
    test.why = rate_sentences.losses(test)
    if lost_a:
        test.decision, test.why = "undecided", f"the preset's rate diverges in {lost_a} of {count} pairs; {test.why}"
