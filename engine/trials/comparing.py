"""One comparison: trials of two settings in turn; significance.py has the rule by which a change is called faster.

A changed side that runs out of memory or ends with an error will do so again: it is not repeated. Any other failure of
a trial (killed, crashed, too long) may be chance: the trial is repeated once, and a second failure ends the comparison.
A baseline that fails twice ends the proof, as there is nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..presets import Preset
from . import sentences
from .bench import Measures
from .record import Comparison
from .significance import agree_by_far, gain, gain_and_spread, order
from .trial import Trial

FINAL = ("oom", "error")
CHANCES = 2


class Stopped(Exception):
    """A stop was requested."""


class BaselineFailed(Exception):
    """The baseline, with which everything is compared, cannot be measured; the text says why."""


class _ChangedFailed(Exception):
    """The changed side cannot be measured; the text says why."""


@dataclass
class Comparing:
    """Measures one comparison: pairs of trials of the presets `a` and `b`.

    `report` writes the results so far and is called with the present work in words. `gains` are the gains of the pairs
    so far. With `may_end_early`, two pairs are enough if they agree by far.
    """

    bench: Measures
    comparison: Comparison
    a: Preset
    b: Preset
    repeats: int
    report: Callable[[str], None]
    first_a: Trial | None = None  # a trial of side a that was just measured
    may_end_early: bool = False
    gains: list[float] = field(default_factory=list)
    _failures: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def measure(self) -> list[float]:
        """Measure the pairs; returns the gain of each.

        There are fewer than `repeats` if two pairs are enough, or if the comparison has failed, which is then its
        decision. Raises Stopped and BaselineFailed.
        """
        try:
            for repeat in range(1, self.repeats + 1):
                self._add(repeat)
                if self.may_end_early and agree_by_far(self.gains):
                    break
        except _ChangedFailed as fault:
            self.comparison.decision, self.comparison.why = "failed", str(fault)
            self.comparison.gain = self.comparison.spread = None
        except Stopped:
            self.comparison.decision, self.comparison.why = "stopped", "stopped before the comparison was complete"
            raise
        except BaselineFailed:
            self.comparison.decision, self.comparison.why = "failed", "the baseline cannot be measured"
            raise
        return self.gains

    def measure_more(self, pairs: int) -> None:
        """Measure further pairs until there are `pairs` in all; stop earlier if the changed side fails."""
        for repeat in range(len(self.gains) + 1, pairs + 1):
            try:
                self._add(repeat)
            except _ChangedFailed:
                break

    def _add(self, repeat: int) -> None:
        """Measure the pair with the number `repeat`, and note its gain."""
        speeds = {side: self._measured(side, repeat).samples_per_second or 0.0 for side in order(repeat)}
        self.gains.append(gain(speeds["a"], speeds["b"]))
        self.comparison.gain, self.comparison.spread = gain_and_spread(self.gains)

    def _measured(self, side: str, repeat: int) -> Trial:
        """A successful trial of one side, if necessary at the second attempt.

        Raises Stopped, BaselineFailed and _ChangedFailed.
        """
        while True:
            trial = self._next_trial(side, repeat)
            self.comparison.trials.append(trial)
            self.report("")
            if trial.good:
                return trial
            if self.bench.stop.count:
                raise Stopped
            self._judge(trial)

    def _next_trial(self, side: str, repeat: int) -> Trial:
        if side == "a" and repeat == 1 and self.first_a is not None:
            ready, self.first_a = self.first_a, None
            return ready
        if self.bench.stop.count:
            raise Stopped
        self.report(self._doing(side, repeat))
        return self.bench.measure(self.b if side == "b" else self.a, side, repeat)

    def _doing(self, side: str, repeat: int) -> str:
        what = sentences.changes(self.comparison.changes)
        which = f"with {what}" if side == "b" else f"without {what}"
        return f"repeat {repeat} of {self.repeats}: {which}"

    def _judge(self, trial: Trial) -> None:
        """Raise BaselineFailed or _ChangedFailed if the failed trial ends the comparison; else it is repeated."""
        self._failures[trial.side] += 1
        often = self._failures[trial.side] >= CHANCES
        why = f"{trial.outcome}: {trial.error}"
        if trial.side == "a" and often:
            raise BaselineFailed(f"the baseline could not be measured, {CHANCES} times; the last was {why}")
        if trial.side == "b" and (often or trial.outcome in FINAL):
            raise _ChangedFailed(why if trial.outcome in FINAL else f"it died {CHANCES} times; the last was {why}")
