"""The figures of a run over time, as rows: for `gputui history`, and for programs that follow a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import figures
from ..figures import Figure
from .events import EpochEnd, Event, GpuReadings, HostReading, Progress, fields_of

Row = dict[str, float]
PLACE = ("t", "seconds", "epoch", "step")  # the columns of a row that say when it was, and are no figures

_OF_PROGRESS = tuple(figure.progress for figure in figures.shown("history"))
_OF_GPU, _OF_HOST = (
    tuple(key for key, figure in group.items() if "history" in figure.shown) for group in (figures.GPU, figures.HOST)
)


class RowMaker:
    """Makes a row of each progress and epoch event: the time `t` (Unix seconds), epoch, step, metrics by their names,
    and all available figures, of GPUs such as `gpu0_busy`. `readings` are the last before the first event.
    """

    def __init__(self, readings: Mapping[str, float] | None = None) -> None:
        self.readings: Row = dict(readings or {})

    def row(self, event: Event) -> Row | None:
        """Return the row of a progress or epoch event. None for another event, whose readings the next row has."""
        if isinstance(event, GpuReadings):
            self.readings |= {
                f"gpu{gpu.index}_{name}": value
                for gpu in event.gpus
                for name in _OF_GPU
                if (value := gpu.value(name)) is not None
            }
        elif isinstance(event, HostReading):
            self.readings |= {f"host_{name}": value for name, value in _numbers(fields_of(event), _OF_HOST).items()}
        elif isinstance(event, Progress):
            figures = _numbers(fields_of(event), ("t", "epoch", "step", "loss")) | _metrics(event)
            return figures | _numbers(fields_of(event), _OF_PROGRESS) | self.readings
        elif isinstance(event, EpochEnd):
            validation = {name: value for name, value in _metrics(event).items() if name.startswith("val_")}
            took = _numbers({"epoch_seconds": event.seconds}, ("epoch_seconds",))
            return _numbers(fields_of(event), ("t", "epoch", "step")) | took | validation
        return None


def rows(events: Iterable[Event]) -> list[Row]:
    """Return the rows of all events (see `RowMaker`), each with `seconds`, the time since the first row."""
    maker = RowMaker()
    points = [row for event in events if (row := maker.row(event)) is not None]
    begin = points[0]["t"] if points else 0.0
    return [{"t": row["t"], "seconds": round(row["t"] - begin, 4)} | row for row in points]


def columns(table: list[Row]) -> list[str]:
    """Return the names of all columns in the rows of `table`, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in table for name in row))


def split(column: str) -> tuple[str, str]:
    """Return the device that a column is about (`gpu0`, `host` or an empty text), and the name of its figure."""
    group, _, name = column.partition("_")
    if group == "host" or (group.startswith("gpu") and group[3:].isdigit()):
        return group, name
    return "", column


def figure_of(column: str) -> Figure | None:
    """None for the time, the epoch, and a metric of the user's model."""
    device, name = split(column)
    if device:
        return (figures.HOST if device == "host" else figures.GPU).get(name)
    return next((figure for figure in figures.RUN if column == figure.progress), None)


def about(column: str) -> str:
    """Return the sentence about the figure in a column: label, unit, meaning and source. Empty if it is unknown."""
    figure = figure_of(column)
    return "" if figure is None else f"{figure.label} ({figure.unit}): {figure.about}. Source: {figure.source}."


def _metrics(event: Progress | EpochEnd) -> Row:
    return _numbers(event.metrics, tuple(event.metrics))


def _numbers(event: Mapping[str, Any], names: tuple[str, ...]) -> Row:
    return {name: value for name in names if (value := event.get(name)) is not None}
