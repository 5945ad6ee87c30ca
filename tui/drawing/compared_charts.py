"""The curves of several runs over each other: the loss, the throughput, or any other figure that some of them have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine import figures
from ...engine.files.values import EMPTY
from ..base.settings import Charts
from ..reading.run.series import NOTHING, Line, along
from ..reading.run.snapshot import Snapshot
from .plot import cursor
from .plot.chart_settings import as_drawn
from .plot.curves import Curve, Plot

_SEEN = 0.05  # of the axis, from which on a run can be seen
MOST = 8  # curves that can still be distinguished


@dataclass(frozen=True)
class Named:
    """A run with a label that no other run has, and the figures of the run's result by their keys."""

    label: str
    short: str
    now: Snapshot
    figures: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class _Kind:
    """A kind of chart: its title, its unit and the line of a run that it shows.

    `key` is the figure's key in the result of an ended run, which the table shows too.
    """

    key: str
    title: str
    unit: str
    line: Callable[[Snapshot], Line]
    bounds: str = "free"
    axis: str = "step"


def plots(runs: Sequence[Named], drawn: Charts) -> list[Plot]:
    """One chart for each figure that at least one run has."""
    shown = list(runs[:MOST])
    charts = [_plot(kind, shown, drawn) for kind in _kinds(shown)]
    return [plot for plot in charts if not plot.empty]


def axes(runs: Sequence[Named]) -> list[str]:
    """The names of the horizontal axes on which every run can be drawn."""
    axes_of_runs = [run.now.pace.axes() for run in runs]
    return [axis for axis in axes_of_runs[0] if all(axis in others for others in axes_of_runs)] if axes_of_runs else []


def hardly_seen(plot: Plot) -> str:
    """A remark that the shortest curve is too short to be seen on the axis, with the place of its end; empty if all
    curves can be seen.
    """
    ends = [(curve.line.x[-1], curve) for curve in plot.told if len(curve.line)]
    if len(ends) < 2 or plot.window is not None:
        return ""
    last, shortest = min(ends, key=lambda end: end[0])
    if last >= _SEEN * plot.x_end:
        return ""
    end, whole = (cursor.place_text(plot, place).removesuffix(f" {plot.since}") for place in (last, plot.x_end))
    return f"{shortest.label.removesuffix(' last')} is hardly seen: it ends at {end}, the axis at {whole}"


def _kinds(runs: Sequence[Named]) -> list[_Kind]:
    metrics = list(dict.fromkeys(name for run in runs for name in run.now.metrics))
    learning = [kind for name in ("loss", *metrics) for kind in (_metric(name, name), _metric(f"val_{name}", name))]
    speed, p50, wait, busy = (
        figures.of_run(key) for key in ("samples_per_second", "step_ms.p50", "input_wait", "gpu_busy_mean")
    )
    timed = [
        _Kind(speed.key, speed.label, speed.unit, lambda now: now.line(speed.progress), "zero", "time"),
        _Kind(p50.key, p50.label, p50.unit, lambda now: now.line(p50.progress), "zero", "time"),
        _Kind(wait.key, wait.label, "of the step", lambda now: now.line(wait.progress), "share", "time"),
        _Kind(busy.key, busy.label, "", _gpu_busy, "share", "time"),
    ]
    return [*learning[:1], timed[0], *learning[1:], *timed[1:]]


def _metric(key: str, name: str) -> _Kind:
    title = f"{'val ' if key != name else ''}{figures.metric(name).label}"
    return _Kind(figures.metric(key).key, title, "", lambda now: now.line(key))


def _gpu_busy(now: Snapshot) -> Line:
    """The mean load of the GPUs that train; the load of the GPU if only one trains."""
    together = now.line("gpus mean")
    training = [gpu.index for gpu in now.gpus if gpu.training] or [gpu.index for gpu in now.gpus]
    return together if len(together) or len(training) != 1 else now.line(f"gpu{training[0]}")


def _plot(kind: _Kind, runs: Sequence[Named], drawn: Charts) -> Plot:
    axis = kind.axis if drawn.x_axis == "auto" else drawn.x_axis
    axis = axis if axis in axes(runs) else kind.axis
    curves = tuple(_curve(kind, run, axis) for run in runs)
    end = max((max(curve.line.x) for curve in curves if len(curve.line)), default=0.0)
    final = all(run.now.outcome is not None for run in runs)
    plot = Plot(kind.title, kind.unit, curves, kind.bounds, axis, end, final, key=kind.title)
    return replace(as_drawn(plot, drawn), filled=False)


def _curve(kind: _Kind, run: Named, axis: str) -> Curve:
    """The curve of a run. A run without this figure gets an empty curve, so that the legend still names it.

    The value after the name is that of the run's result; without a result it is the last reading, marked with "last".
    """
    line, value = kind.line(run.now), run.figures.get(kind.key)
    other = " (epoch mean)" if kind.title == "loss" and len(line) and not run.now.windowed else ""
    last = " last" if value is None and len(line) else ""
    placed = along(line, axis, run.now.pace) if len(line) else NOTHING
    marked = kind.title.startswith("val ")
    return Curve(f"{run.label}{other}{last}", placed, marked=marked, value=value, short=f"{run.short}{last}")
