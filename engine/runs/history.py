"""A run's figures over time as flat rows, for spreadsheets and TensorBoard.

A row is a moment at which the training reported its progress, with the latest readings of the GPUs and of the host at
that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import figures
from ..figures import Figure
from ..files.values import number
from .events import EpochEnd, Event, GpuReadings, HostReading, Progress, fields_of
from .reading import RunEvents

_OF_PROGRESS = tuple(figure.progress for figure in figures.shown("history"))
_OF_GPU, _OF_HOST = (
    tuple(key for key, figure in group.items() if "history" in figure.shown) for group in (figures.GPU, figures.HOST)
)


def rows(run_events: RunEvents) -> list[dict[str, float]]:
    """Return one row for each progress and epoch event: t (Unix seconds), seconds since the first row, epoch, step and
    all available figures.

    Metrics keep their names; figures of GPUs have names such as `gpu0_busy`. A figure without a value is not in the
    row.
    """
    points = list(_rows(run_events.events))
    begin = points[0]["t"] if points else 0.0
    return [{"t": row["t"], "seconds": round(row["t"] - begin, 4)} | row for row in points]


def columns(table: list[dict[str, float]]) -> list[str]:
    """Return the names of all columns in the rows, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in table for name in row))


def figure_of(column: str) -> Figure | None:
    """Return the declaration of a column's figure; None for a column that is no declared figure, such as the time or
    the epoch.
    """
    group, _, name = column.partition("_")
    if group.startswith("gpu") and group[3:].isdigit():
        return figures.GPU.get(name)
    if group == "host":
        return figures.HOST.get(name)
    return next((figure for figure in figures.RUN if column == figure.progress), None)


def _rows(events: list[Event]) -> Iterator[dict[str, float]]:
    readings: dict[str, float] = {}
    for event in events:
        if isinstance(event, GpuReadings):
            readings |= _gpus(event)
        elif isinstance(event, HostReading):
            readings |= {f"host_{name}": value for name, value in _numbers(fields_of(event), _OF_HOST).items()}
        elif isinstance(event, Progress):
            figures = _numbers(fields_of(event), ("t", "epoch", "step", "loss")) | _metrics(event)
            yield figures | _numbers(fields_of(event), _OF_PROGRESS) | readings
        elif isinstance(event, EpochEnd):
            validation = {name: value for name, value in _metrics(event).items() if name.startswith("val_")}
            took = _numbers({"epoch_seconds": event.seconds}, ("epoch_seconds",))
            yield _numbers(fields_of(event), ("t", "epoch", "step")) | took | validation


def _gpus(event: GpuReadings) -> dict[str, float]:
    return {
        f"gpu{gpu.get('index')}_{name}": value for gpu in event.gpus for name, value in _numbers(gpu, _OF_GPU).items()
    }


def _metrics(event: Progress | EpochEnd) -> dict[str, float]:
    return _numbers(event.metrics, tuple(event.metrics))


def _numbers(event: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    return {name: value for name in names if (value := number(event.get(name))) is not None}
