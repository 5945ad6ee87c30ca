"""How long the phases of a run have taken: each of its start, and the totals of those that come back later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ....engine.runs.events import LATER_COMPILING, waits_for_others

BEGINNINGS = ("starting", "importing")  # the phases with which a run begins or is resumed


@dataclass(frozen=True)
class Span:
    """A phase and its duration so far in seconds; `count` is how often the phase occurred."""

    phase: str
    detail: str = ""
    seconds: float = 0.0
    count: int = 1

    @property
    def of_others(self) -> bool:
        """Whether the phase waits for the other workers of a training on several machines; this time is not the run's
        own.
        """
        return waits_for_others(self.phase, self.detail)


@dataclass
class PhaseTimes:
    """Adds up the durations of phases; `begin` is called at the beginning of each. Phases before the first training
    belong to the start.
    """

    phase: str = "starting"
    detail: str = ""
    since: float = 0.0
    started: bool = False  # training has begun since the last start
    start: list[Span] = field(default_factory=list)
    later: dict[str, Span] = field(default_factory=dict)

    def begin(self, t: float, phase: str, detail: str) -> None:
        """Record that a phase begins at the time `t`, in seconds, and that the phase before it ends."""
        if not self.started and (phase, detail) == (self.phase, self.detail):  # by engine and trainer
            self.since = min(self.since, t)
            return
        if phase in BEGINNINGS and self.phase not in BEGINNINGS:
            self.start, self.started = [], False
        else:
            self._close(max(0.0, t - self.since))
        self.phase, self.detail, self.since = phase, detail, t
        self.started = self.started or phase == "training"

    @property
    def compiles_first_step(self) -> bool:
        return self.phase == "compiling" and self.detail not in LATER_COMPILING

    def _close(self, seconds: float) -> None:
        if not self.started:
            self.start.append(Span(self.phase, self.detail, seconds))
        elif self.phase != "ended":
            detail = self.detail if self.phase == "compiling" else ""  # each kind of it is done once
            before = self.later.get(self.phase + detail, Span(self.phase, count=0))
            self.later[self.phase + detail] = Span(self.phase, detail, before.seconds + seconds, before.count + 1)

    def of_start(self, now: float) -> tuple[Span, ...]:
        """The phases of the start in their order. If training has not begun, the last phase lasts until `now`."""
        if self.started or self.phase == "ended":
            return tuple(self.start)
        return (*self.start, Span(self.phase, self.detail, max(0.0, now - self.since)))

    def of_rest(self) -> Mapping[str, Span]:
        """The total durations of the ended phases since training began."""
        return MappingProxyType(dict(self.later))
