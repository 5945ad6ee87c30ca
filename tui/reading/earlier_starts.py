"""How long earlier starts of a preset took on this machine, phase by phase, from the events of their run folders."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...engine.files.values import EMPTY
from ...engine.runs import Run
from ...engine.runs.event_reading import HEAD_BYTES, events_of
from ...engine.runs.events import Phase
from ...engine.runs.launched_with import options_of
from ...engine.runs.run_state import RunState, Span
from ...engine.runs.titles import preset_of
from ...engine.system.identity import Place
from ...engine.units import seconds
from .queue_places import newest_runs

MOST = 5  # runs that an estimate rests on
# Groups of options on which the length of a start depends.
_MATTER = ("workload.", "compile.", "precision.", "strategy.", "device.")


@dataclass(frozen=True)
class Usual:
    """The median, the least and the greatest duration of a phase in earlier starts, in seconds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        """The median, or the range if they differ much, as after a start in advance."""
        if self.most > 1.5 * self.least + 1:
            return f"{seconds(self.least)} to {seconds(self.most)}"
        return seconds(self.median)


@dataclass(frozen=True)
class EarlierStarts:
    """The usual times of the phases of a start, in their order. `runs` is the number of runs from which they come."""

    runs: int = 0
    phases: Mapping[str, Usual] = field(default_factory=lambda: EMPTY)

    def left(self, so_far: Mapping[str, float], phase: str) -> float:
        """Return the seconds to the first step by medians, of an exceeded phase by its longest time."""
        order = list(self.phases)
        to_come = order[order.index(phase) + 1 :] if phase in order else [name for name in order if name not in so_far]
        usual, spent = self.phases.get(phase), so_far.get(phase, 0.0)
        now = 0.0 if usual is None else (usual.median if spent < usual.median else usual.most) - spent
        rest = sum(self.phases[name].median for name in to_come)
        return max(0.0, now) + rest if now > 0 or rest else 0.0


NONE = EarlierStarts()


def of(run: Run) -> EarlierStarts:
    """Return the usual phases of the preset's newest runs with this model, devices and compilation, else NONE."""
    mine, preset, here = _what_matters(run), preset_of(run), Place.here().host
    starts: list[dict[str, float]] = []
    for other in newest_runs():  # the 50 newest
        if len(starts) == MOST:
            break
        is_alike = other.id != run.id and preset_of(other) == preset and other.status.get("host", here) == here
        if is_alike and _what_matters(other) == mine and (start := start_of(other)):
            starts.append(start)
    return usual(starts)


def _what_matters(run: Run) -> dict[str, object]:
    return {key: value for key, value in options_of(run).items() if key.startswith(_MATTER)}


def start_of(run: Run) -> dict[str, float]:
    """Return the seconds of each phase of the run's first start. Empty if its training did not begin."""
    state = RunState()
    for event in events_of(run.path, Phase, most=HEAD_BYTES):
        state.fold(event)
        if state.has_trained:
            return summed(span for span in state.start if not span.of_others)
    return {}


def summed(spans: Iterable[Span]) -> dict[str, float]:
    """Return the seconds of each phase; the time in which it only waited for other workers counts as 0."""
    by_phase: dict[str, float] = {}
    for span in spans:
        by_phase[span.phase] = by_phase.get(span.phase, 0.0) + (0.0 if span.of_others else span.seconds)
    return by_phase


def usual(starts: Sequence[Mapping[str, float]]) -> EarlierStarts:
    """Return the median, the shortest and the longest time of each phase; NONE without starts."""
    if not starts:
        return NONE
    times = {phase: [start.get(phase, 0.0) for start in starts] for phase in starts[0]}
    phases = {phase: Usual(statistics.median(each), min(each), max(each)) for phase, each in times.items()}
    return EarlierStarts(len(starts), phases)
