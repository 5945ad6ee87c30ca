"""One comparison: trials of two settings in turn, and what happens when one of them dies.

A changed side that runs out of memory or ends with an error will do so again: it is not repeated. Whatever else ends a
trial (killed, crashed, too long) may be chance: its repeat is measured once more, and a second time ends the
comparison. A baseline that dies twice ends the proof: there is nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..presets import Preset
from . import pairs, sentences
from .record import Comparison, Trial
from .trial import Bench

FINAL = ("oom", "error")
CHANCES = 2


class Stopped(Exception):
    """A stop was asked for."""


class BaselineFailed(Exception):
    """The side that everything is compared with cannot be measured; the text says why."""


class _ChangedFailed(Exception):
    """The changed side cannot be measured; the text says why."""


@dataclass
class Comparing:
    """Measures one comparison on a bench; `tell` writes what is known, with what happens now in words."""

    bench: Bench
    comparison: Comparison
    a: Preset
    b: Preset
    repeats: int
    tell: Callable[[str], None]
    first_a: Trial | None = None  # a trial of side a that has just been measured
    _failures: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def measure(self) -> list[float]:
        """The gains of all pairs; fewer than asked for only where the comparison has failed, which it then says."""
        gains: list[float] = []
        try:
            for repeat in range(1, self.repeats + 1):
                gains.append(self._pair(repeat))
                self.comparison.gain, self.comparison.spread = pairs.gain_and_spread(gains)
        except _ChangedFailed as fault:
            self.comparison.decision, self.comparison.why = "failed", str(fault)
            self.comparison.gain = self.comparison.spread = None
        except Stopped:
            self.comparison.decision, self.comparison.why = "stopped", "stopped before it was measured to the end"
            raise
        except BaselineFailed:
            self.comparison.decision, self.comparison.why = "failed", "what it is compared with cannot be measured"
            raise
        return gains

    def _pair(self, repeat: int) -> float:
        speeds = {side: self._measured(side, repeat).samples_per_second or 0.0 for side in pairs.order(repeat)}
        return pairs.gain(speeds["a"], speeds["b"])

    def _measured(self, side: str, repeat: int) -> Trial:
        """A good trial, if need be at the second attempt."""
        while True:
            trial = self._next_trial(side, repeat)
            self.comparison.trials.append(trial)
            self.tell("")
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
        self.tell(self._doing(side, repeat))
        return self.bench.measure(self.b if side == "b" else self.a, side, repeat)

    def _doing(self, side: str, repeat: int) -> str:
        what = sentences.changes(self.comparison.changes)
        which = f"with {what}" if side == "b" else f"without {what}"
        return f"repeat {repeat} of {self.repeats}: {which}"

    def _judge(self, trial: Trial) -> None:
        """Raises where the trial ends the comparison; returns where it is tried again."""
        self._failures[trial.side] += 1
        often = self._failures[trial.side] >= CHANCES
        why = f"{trial.outcome}: {trial.error}"
        if trial.side == "a" and often:
            raise BaselineFailed(f"the baseline could not be measured, {CHANCES} times; the last was {why}")
        if trial.side == "b" and (often or trial.outcome in FINAL):
            raise _ChangedFailed(why if trial.outcome in FINAL else f"it died {CHANCES} times; the last was {why}")
