"""The rows of figures on their way to a target, numbered from 0 over the whole run with all its launches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import figures
from ..files.values import mapping, number, whole
from ..runs.events import Event, Finished, OptionChanged, Started
from ..runs.history import PLACE, RowMaker

RESULT = "result/"  # before the names of figures of the result


@dataclass(frozen=True)
class Point:
    """A row of figures at the time `t` (Unix seconds) after `step` steps.

    `is_result`: they are the figures of a launch's result. `goes_back_to` is the step from which the training has
    continued since the last row, if it trains some steps again.
    """

    number: int
    t: float
    step: int
    figures: Mapping[str, float]
    is_result: bool = False
    goes_back_to: int | None = None


@dataclass
class PointMaker:
    """Makes the points of a run from its events. Its fields are its state between two batches."""

    number: int = 0  # of the next point
    step: int = 0  # of the last one
    readings: dict[str, float] = field(default_factory=dict)
    goes_back_to: int | None = None

    def points(self, events: Iterable[Event]) -> Iterator[Point]:
        """Yield the points of the next events, which are in the order of time."""
        maker = RowMaker(self.readings)
        self.readings = maker.readings
        for event in events:
            if isinstance(event, Started):
                self._note_return(event.resumed_at_step or 0)
            elif isinstance(event, OptionChanged):
                self._note_return(event.resumes_at_step or 0)
            elif isinstance(event, Finished):
                if result := result_figures(event.summary):
                    yield self._next(event.t, whole(event.summary.get("steps")) or self.step, result, True)
            elif (row := maker.row(event)) is not None:
                values = {name: value for name, value in row.items() if name == "epoch" or name not in PLACE}
                yield self._next(event.t, int(row.get("step", self.step)), values)

    def _note_return(self, step: int) -> None:
        if step < self.step:
            self.goes_back_to = step

    def _next(self, t: float, step: int, values: Mapping[str, float], is_result: bool = False) -> Point:
        point = Point(self.number, t, step, values, is_result, self.goes_back_to)
        self.number, self.step, self.goes_back_to = self.number + 1, step, None
        return point


def result_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a result by their names at a target, which begin with `result/`."""
    keys = [figure.key for figure in figures.RUN if not figure.key.startswith("metrics.")]
    values = {key: value for key in keys if (value := figures.at(summary, key)) is not None}
    metrics = {f"metrics.{name}": value for name, value in mapping(summary.get("metrics")).items()}
    return {RESULT + key: value for key, each in (values | metrics).items() if (value := number(each)) is not None}
