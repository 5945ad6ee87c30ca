"""Which charts there are of a run, of GPUs and of the machine, the most important first, drawn as the settings say."""

from __future__ import annotations

from array import array
from dataclasses import replace

from ...engine import figures
from ...engine.files.values import number
from ...engine.units import GIB, percent
from ..base.settings import Charts
from ..reading.run import epoch_mean
from ..reading.run.series import Line, along
from ..reading.run.snapshot import Snapshot
from ..reading.run.store import GPU_LINES
from .plot.chart_settings import as_drawn
from .plot.curves import Curve, Plot

# The remark on a metric's mean that does not cover a whole epoch.
NOTES = {"": "", epoch_mean.WHOLE: "", epoch_mean.SO_FAR: "so far", epoch_mean.UNFINISHED: "unfinished epoch"}
AS_DECLARED = Charts()
_BEFORE_GPUS = 5  # charts that are more important than those of the GPUs

_SPEED, _P50, _P95, _WAIT, _MFU = (
    figures.of_run(key) for key in ("samples_per_second", "step_ms.p50", "step_ms.p95", "input_wait", "mfu")
)


def plots(now: Snapshot, drawn: Charts = AS_DECLARED) -> list[Plot]:
    """The charts of a run: throughput, loss, step time, input wait, every metric, and the GPUs."""
    charts = [
        Plot(_SPEED.label, _SPEED.unit, (Curve("", now.line(_SPEED.progress)),), "zero", note=_mfu(now)),
        _of_steps(now, "loss"),
        _step_time(now),
        Plot(_WAIT.label, "of the step", (Curve("", now.line(_WAIT.progress)),), "share"),
        *(_of_steps(now, name) for name in now.metrics),
    ]
    charts[_BEFORE_GPUS:_BEFORE_GPUS] = of_gpus_used(now)
    return [arranged(replace(plot, key=plot.title), now, drawn) for plot in charts]


def _step_time(now: Snapshot) -> Plot:
    """The chart of the step time, with one curve for the median and one for the 95th percentile."""
    curves, title = [], ""
    for figure in (_P50, _P95):
        title, _, which = figure.label.rpartition(" ")
        curves.append(Curve(which, now.line(figure.progress)))
    return Plot(title, _P50.unit, tuple(curves), "zero")


def _mfu(now: Snapshot) -> str:
    """The share of the GPUs' peak performance that the training reaches, as text; empty if it is unknown."""
    reached = number(now.summary.get(_MFU.key) if now.outcome else now.progress.get(_MFU.progress))
    return f"{_MFU.label} {percent(reached)}" if reached is not None else ""


def _of_steps(now: Snapshot, name: str) -> Plot:
    """The chart of the loss or a metric: values of steps (only the loss), Keras' means of whole epochs, and validation
    values.
    """
    mean = epoch_mean.of_run(now, name)
    line = now.line(name)
    curves = [Curve("train", line, lesser=True)] if name == "loss" and now.windowed else []
    means = now.line(f"epoch {name}") if curves else line
    curves.append(Curve("epoch mean", means, marked=bool(curves), value=mean.value, short="mean"))
    if len(validation := now.line(f"val_{name}")):
        curves.append(Curve("val", validation, marked=True))
    return Plot(figures.metric(name).label, "", tuple(curves), x_unit="step", note=NOTES[mean.steps])


# ---- as the settings say --------------------------------------------------------------------------


def arranged(plot: Plot, now: Snapshot, drawn: Charts) -> Plot:
    """The plot with its values placed on its horizontal axis and drawn as the settings request."""
    axis = axis_of(plot, now, drawn)
    curves = tuple(replace(curve, line=along(curve.line, axis, now.pace)) for curve in plot.curves)
    joins = tuple(now.pace.place(axis, *moment) for moment in now.joins)
    placed = replace(plot, curves=curves, x_unit=axis, x_end=_end(now, axis, curves), joins=joins)
    return as_drawn(replace(placed, final=_is_final(now, axis, placed.x_end)), drawn)


def axis_of(plot: Plot, now: Snapshot, drawn: Charts) -> str:
    """The horizontal axis of the settings if the run can be drawn on it, else the plot's own axis."""
    axis = plot.x_unit if drawn.x_axis == "auto" else drawn.x_axis
    return axis if axis in now.pace.axes() else plot.x_unit


def _end(now: Snapshot, axis: str, curves: tuple[Curve, ...]) -> float:
    """The place of the last point on the axis. The chart of times then does not change between two readings."""
    lines = [curve.line for curve in curves if len(curve.line)]
    end = max((max(line.x) for line in lines), default=0.0)
    return end if end or axis != "time" else min(max(0.0, now.elapsed - now.pace.begin), 1.0)


def _is_final(now: Snapshot, axis: str, end: float) -> bool:
    if now.outcome is not None:
        return True
    steps = number(now.progress.get("steps"))
    return axis != "time" and steps is not None and end >= now.pace.place(axis, 0.0, steps)


EACH = 4  # up to so many GPUs have a line each; of more, their mean and their extremes are drawn
_BOUNDS = {"busy": "share", "temperature_c": "free"}


# ---- of the GPUs ----------------------------------------------------------------------------------


def of_gpus_used(now: Snapshot) -> list[Plot]:
    """The charts of the GPUs that the run uses; the charts of all GPUs if that is unknown."""
    used = [gpu.index for gpu in now.gpus if gpu.training] or [gpu.index for gpu in now.gpus]
    return of_gpus(now, used)


def of_gpus(now: Snapshot, indices: list[int]) -> list[Plot]:
    """One chart for each figure that at least one of the GPUs reports."""
    charts = [_chart(now, key, name, indices) for name, key in GPU_LINES.items()]
    return [plot for plot in charts if not plot.empty]


def of_machine(now: Snapshot, picked: int | None, drawn: Charts) -> list[Plot]:
    """The charts of all GPUs and of the host's CPUs. If there are many GPUs, the charts of the `picked`
    GPU come first.
    """
    indices = [gpu.index for gpu in now.gpus]
    charts = of_gpus(now, indices)
    if picked is not None and len(indices) > EACH:
        charts = of_gpus(now, [picked]) + charts
    cpu = figures.HOST["cpu"]
    charts.append(Plot(f"host {cpu.label}", "", (Curve("", now.line("cpu")),), "share"))
    end = max(1.0, now.elapsed)
    return [
        as_drawn(replace(plot, key=plot.title, x_end=end, since="after the first reading"), drawn) for plot in charts
    ]


def _chart(now: Snapshot, key: str, name: str, indices: list[int]) -> Plot:
    figure, bounds = figures.GPU[key], _BOUNDS.get(key, "zero")
    title = f"GPU {figure.label}" if len(indices) != 1 else f"GPU {indices[0]} {figure.label}"
    unit = "GiB" if figure.unit == "bytes" else "" if bounds == "share" else figure.unit
    if len(indices) <= EACH:
        curves = [Curve(f"GPU {index}", _line(now, f"gpu{index}{name}", key), short=str(index)) for index in indices]
    else:
        words = {"mean": "mean", "lowest": "low", "highest": "high"}
        curves = [Curve(word, _line(now, f"gpus {word}{name}", key), short=short) for word, short in words.items()]
    return Plot(title, unit, tuple(curves), bounds)


def _line(now: Snapshot, name: str, key: str) -> Line:
    line = now.line(name)
    if figures.GPU[key].unit != "bytes":
        return line
    made: Line = line.once("GiB", lambda: _in_gib(line))
    return made


def _in_gib(line: Line) -> Line:
    y, low, high = (array("d", [value / GIB for value in values]) for values in (line.y, line.low, line.high))
    last = None if line.last is None else line.last / GIB
    return replace(line, y=y, low=low, high=high, last=last, made={})
