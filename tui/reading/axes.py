"""Places a line on another axis: the time since training began, steps, epochs or samples."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace

from .series import Line

AXES = ("time", "step", "epoch", "samples")


@dataclass(frozen=True)
class Pace:
    """What leads from times and steps of a run to the places of an axis.

    `begin` is when training began, in seconds since the run did; None in `steps_per_epoch` and `samples_per_step`:
    not known.
    """

    begin: float = 0.0
    steps_per_epoch: float | None = None
    samples_per_step: float | None = None

    def axes(self) -> tuple[str, ...]:
        """Those that can be drawn."""
        per_step = {"epoch": self.steps_per_epoch, "samples": self.samples_per_step}
        return tuple(axis for axis in AXES if per_step.get(axis, 1.0))

    def place(self, axis: str, x: float, step: float) -> float:
        """The place of a moment of the run."""
        if axis == "time":
            return x - self.begin
        if axis == "epoch":
            return step / (self.steps_per_epoch or 1.0)
        return step * (self.samples_per_step or 1.0) if axis == "samples" else step


def along(line: Line, axis: str, pace: Pace) -> Line:
    """The line with `x` on this axis; what was read before training began is left out of the time."""
    made: Line = line.once((axis, pace), lambda: _along(line, axis, pace))
    return made


def _along(line: Line, axis: str, pace: Pace) -> Line:
    lost = None if line.lost is None else (pace.place(axis, *line.lost), line.lost[1])
    if axis == "time":
        return replace(_since(line, pace.begin), lost=lost, made={})
    if not len(line.steps):
        return replace(line, lost=lost, made={})
    factor = pace.place(axis, 0.0, 1.0)
    x = line.steps if factor == 1.0 else array("d", [step * factor for step in line.steps])
    return replace(line, x=x, lost=lost, made={})


def _since(line: Line, begin: float) -> Line:
    if not begin or not len(line):
        return line
    first = bisect_left(line.x, begin)
    breaks = frozenset(index - first for index in line.breaks if index > first)
    kept = {name: getattr(line, name)[first:] for name in ("y", "steps", "low", "high")}
    return replace(line, x=array("d", [x - begin for x in line.x[first:]]), breaks=breaks, **kept)
