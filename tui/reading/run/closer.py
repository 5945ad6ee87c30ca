"""Reads a part of a run again with all its readings, as the history of a whole long run has few points for a part."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ....engine.files.values import EMPTY
from ....engine.runs import Run
from ....engine.runs.events import EVENT_FILES
from .reader import PARSED_BYTES, RunReader
from .series import Line, along
from .snapshot import Snapshot

Span = tuple[float, float]
_MARGIN, _MARGIN_SECONDS = 0.1, 5.0  # of a part, and at least: so that lines come from its left and leave to its right
_PACE_LINE = "samples_per_second"  # has a point for each event of the training


@dataclass(frozen=True)
class Closer:
    """The lines of a run between the Unix times `span`, by their names, with more points than those of the run."""

    span: Span = (0.0, 0.0)
    lines: Mapping[str, Line] = field(default_factory=lambda: EMPTY)

    def of(self, now: Snapshot, axis: str, window: Span | None) -> dict[str, Line]:
        """Return the lines with more points than those of `now` in the part `window`, if it is within `span`."""
        if window is None or not self.lines:
            return {}
        begin, end = seconds_of(now, axis, window)
        if not self.span[0] <= now.unix_time(begin) <= now.unix_time(end) <= self.span[1]:
            return {}

        def points(line: Line) -> int:
            return bisect_right(line.x, end) - bisect_left(line.x, begin)

        return {
            name: replace(line, last=now.line(name).last, lost=now.line(name).lost, made={})
            for name, line in self.lines.items()
            if points(line) > points(now.line(name))
        }


def seconds_of(now: Snapshot, axis: str, window: Span) -> Span:
    """Return the first and the last moment of the part `window` of an axis, in seconds since the run began."""
    if axis == "time":
        return window[0] + now.pace.begin, window[1] + now.pace.begin
    line = now.line(_PACE_LINE)
    places = along(line, axis, now.pace).x
    inside = [at for at, place in enumerate(places) if window[0] <= place <= window[1]] or [
        min(bisect_left(places, window[0]), max(0, len(places) - 1))
    ]
    if not len(places):
        return 0.0, now.elapsed
    return line.x[max(0, inside[0] - 1)], line.x[min(len(places) - 1, inside[-1] + 1)]


def read(run: Run, now: Snapshot, axis: str, window: Span, is_due: Callable[[], bool]) -> Iterator[Closer]:
    """Yield the lines of a part of the axis, again after each reading of a running run, while `is_due`. Nothing if the
    run's history is complete."""
    size = sum(run.file(name).stat().st_size for name in EVENT_FILES if run.file(name).exists())
    if size < PARSED_BYTES and all(line.each == 1 for line in now.lines.values()):
        return
    begin, end = seconds_of(now, axis, window)
    margin = max(_MARGIN_SECONDS, _MARGIN * (end - begin))
    span = now.unix_time(begin) - margin, now.unix_time(end) + margin
    reader = RunReader(run, span=span)
    while is_due():
        if not reader.poll():
            yield Closer(span, reader.picture.snapshot.lines)
            if reader.ended or end < now.elapsed - margin:
                return
