"""One comparison: trials of two settings in turn, and the decision (significance.py has the rule). Memory that ran out
and errors would come again, and end it; other failures (killed, crashed, too long) may be chance and are repeated once.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..options import OPTIONS, Options
from ..presets import Preset
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import EVENTS_FILE, Progress
from . import proof_sentences
from .record import Comparison, Learning, Trial
from .significance import agree_by_far, gain, gain_and_spread, order
from .trial_runner import Measures

FINAL = ("oom", "error")
CHANCES = 2


class Stopped(Exception):
    """A stop was requested."""


class BaselineFailed(Exception):
    """The baseline, with which everything is compared, cannot be measured. The text says why."""


class _ChangedFailed(Exception):
    """The changed side cannot be measured. The text says why."""


@dataclass
class Comparing:
    """Measures pairs of trials of the presets `a` and `b`."""

    bench: Measures
    comparison: Comparison
    a: Preset
    b: Preset
    repeats: int
    report: Callable[[str], None]
    first_a: Trial | None = None  # a trial of side a that was just measured
    may_end_early: bool = False  # two pairs are enough if they agree by far
    in_vain: Callable[[Trial], str] = lambda _trial: ""  # why the change does nothing in a trial of side b
    gains: list[float] = field(default_factory=list)  # shares (0.05: b is 5 % faster)
    _failures: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def measure(self) -> list[float]:
        """Measure the pairs and return their gains; `failed` if side b fails. Raises Stopped, BaselineFailed."""
        comparison = self.comparison
        try:
            while len(self.gains) < self.repeats and not (self.may_end_early and agree_by_far(self.gains)):
                self._add()
        except _ChangedFailed as fault:
            comparison.decision, comparison.why = "failed", str(fault)
            comparison.gain = comparison.spread = None
        except Stopped:
            comparison.decision, comparison.why = "stopped", "stopped before the comparison was complete"
            raise
        except BaselineFailed:
            comparison.decision, comparison.why = "failed", "the baseline cannot be measured"
            raise
        return self.gains

    def measure_more(self, pairs: int) -> None:
        """Measure until there are `pairs` in all, or the changed side fails. Raises Stopped and BaselineFailed."""
        with contextlib.suppress(_ChangedFailed):
            while len(self.gains) < pairs:
                self._add()

    def _add(self) -> None:
        repeat = len(self.gains) + 1
        speeds = {side: self._measured(side, repeat).samples_per_second or 0.0 for side in order(repeat)}
        self.gains.append(gain(speeds["a"], speeds["b"]))
        self.comparison.gain, self.comparison.spread = gain_and_spread(self.gains)

    def _measured(self, side: str, repeat: int) -> Trial:
        """Raises Stopped, BaselineFailed and _ChangedFailed."""
        while True:
            if side == "a" and repeat == 1 and self.first_a is not None:
                trial, self.first_a = self.first_a, None
            else:
                if self.bench.stop.count:
                    raise Stopped
                which = f"{'with' if side == 'b' else 'without'} {proof_sentences.changes(self.comparison.changes)}"
                self.report(f"repeat {repeat} of {self.repeats}: {which}")
                trial = self.bench.measure(self.b if side == "b" else self.a, side, repeat)
            self.comparison.trials.append(trial)
            self.report("")
            if trial.good:
                if side == "b" and (why := self.in_vain(trial)):
                    raise _ChangedFailed(why)
                return trial
            if self.bench.stop.count:
                raise Stopped
            self._failures[side] += 1
            often, why = self._failures[side] >= CHANCES, f"{trial.outcome}: {trial.error}"
            if side == "a" and often:
                raise BaselineFailed(f"the baseline could not be measured, {CHANCES} times; the last was {why}")
            if side == "b" and (often or trial.outcome in FINAL):
                raise _ChangedFailed(why if trial.outcome in FINAL else f"it died {CHANCES} times; the last was {why}")


# ---- what is learnt -------------------------------------------------------------------------------


_ABOUT = {info.key: info.about for info in OPTIONS}
_GROWS = _ABOUT["strategy.kind"].learning
_STAYS = f"{_GROWS}, and the learning rate stays (train.learning_rate_scaling)"
_UNDER_STRATEGY = {"device.logical_devices", "device.visible", "strategy.devices"}  # they decide the number of replicas
_SAYS_SO = "the change can change what is learnt"


def note(changes: Iterable[str], options: Options, says_so: bool = False) -> str:
    """Return how these options affect what is learnt, empty if not; `says_so`: the diagnosis says that they do."""
    several = options.strategy.kind == "mirrored"
    for key in changes:
        if several and (key == "strategy.kind" or key in _UNDER_STRATEGY):
            return _STAYS if options.train.learning_rate_scaling == "none" else _GROWS
        if key in _ABOUT and _ABOUT[key].learning:
            return _ABOUT[key].learning
    return _SAYS_SO if says_so else ""


def losses(written: RunEvents) -> list[tuple[float, float]]:
    """Return the loss curve of a run: pairs of (samples seen, running loss). Empty if no loss was reported."""
    reports = written.of(Progress)
    return [(float(event.samples), event.loss) for event in reports if event.samples and event.loss is not None]


def value_at(curve: Sequence[tuple[float, float]], place: float) -> float | None:
    """Return the value at a place, such as the loss after so many samples, interpolated in `curve`. None outside."""
    for (before, value), (after, following) in itertools.pairwise(curve):
        if before <= place <= after:
            return value if after == before else value + (following - value) * (place - before) / (after - before)
    return None


def compare(words: str, trials: Sequence[Trial], folder: Path) -> Learning:
    """Compare the losses after the most samples that all trials have seen; only the note if one is missing."""
    curves = {trial.run: losses(read_events(folder / trial.run, [EVENTS_FILE])) for trial in trials}
    if not curves or not all(curves.values()):
        return Learning(note=words)
    samples = min(curve[-1][0] for curve in curves.values())
    for trial in trials:
        trial.loss_at_samples = value_at(curves[trial.run], samples)
    medians: dict[str, float | None] = {}
    for side in "ab":
        reached = [t.loss_at_samples for t in trials if t.side == side and t.loss_at_samples is not None]
        medians[side] = statistics.median(reached) if reached else None
    return Learning(note=words, samples=round(samples), loss_a=medians["a"], loss_b=medians["b"])
