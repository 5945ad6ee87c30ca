"""The chart of the memory of a search's trials over their batch size: the prediction, the measured values and the
limit."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ...engine.trials.record import Record
from ...engine.trials.search_record import Memory, MemoryPoint
from ...engine.tune.report.memory_sentences import kind_of_memory, predicted
from ...engine.tune.report.search_results import memory_of
from ...engine.units import GIB
from ..reading.run.series import NOTHING, Line
from .plot.curves import Curve, Plot

KEY = "memory by batch size"
_MIB = 1024**2
_BEYOND = 1.08  # how far the axis goes beyond the last batch size
_FAR = 8.0  # a prediction above this multiple of the largest tried batch is not drawn


def plot(data: Record) -> Plot:
    """Return memory over batch size: prediction, measured points, limit (unless far above all), and those that ran
    out."""
    memory = memory_of(data)
    points = [point for point in memory.points if point.batch_size]
    batches = [float(point.batch_size) for point in points]
    tried, largest = max(batches, default=0.0), memory.largest_batch or 0.0
    is_near = largest <= _FAR * tried
    end = (max(tried, largest) if is_near else 2 * tried) * _BEYOND
    limit = memory.limit_bytes if is_near else None
    unit, scale = _unit(limit, points)
    measured = [
        (batch, peak) for batch, point in zip(batches, points, strict=True) if (peak := point.peak_bytes) is not None
    ]
    lost = [
        (batch, _reached(memory, point, batch))
        for batch, point in zip(batches, points, strict=True)
        if point.peak_bytes is None
    ]
    curves = (
        Curve("predicted", _prediction(memory, end, scale), value=_scaled(_of_last(memory, measured), scale)),
        *([Curve("limit", _level(limit, end, scale), lesser=True)] if limit is not None else ()),
        Curve("measured", _apart(measured, scale)),
        *([Curve("out of memory", _apart(lost, scale), short="out")] if lost else ()),
    )
    shown = curves if end else ()
    return Plot(
        "memory", unit, shown, "zero", x_unit="batch", x_end=end, final=True, key=KEY, note=kind_of_memory(memory)
    )


def _unit(limit: float | None, points: Sequence[MemoryPoint]) -> tuple[str, float]:
    values = [point.peak_bytes for point in points] + [limit]
    return ("GiB", GIB) if max((value for value in values if value is not None), default=0.0) >= GIB else ("MiB", _MIB)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


def _of_last(memory: Memory, measured: Sequence[tuple[float, float]]) -> float | None:
    return predicted(memory, measured[-1][0]) if measured else None


def _reached(memory: Memory, point: MemoryPoint, batch: float) -> float:
    # The predicted memory, else the limit.
    heights = (point.predicted_bytes, predicted(memory, batch), memory.limit_bytes)
    return next((value for value in heights if value is not None), 0.0)


def _prediction(memory: Memory, end: float, scale: float) -> Line:
    first, last = predicted(memory, 0.0), predicted(memory, end)
    return NOTHING if first is None or last is None else _line([(0.0, first / scale), (end, last / scale)])


def _level(value: float, end: float, scale: float) -> Line:
    return _line([(0.0, value / scale), (end, value / scale)])


def _apart(points: Sequence[tuple[float, float]], scale: float) -> Line:
    return _line([(x, y / scale) for x, y in points], frozenset(range(len(points))))


def _line(points: Sequence[tuple[float, float]], breaks: frozenset[int] = frozenset()) -> Line:
    xs, ys = array("d", (x for x, _ in points)), array("d", (y for _, y in points))
    return Line(xs, ys, breaks, points[-1][1] if points else None, steps=xs)
