"""Chooses the charts of a run from its snapshot, the most important first."""

from __future__ import annotations

from dataclasses import replace

from ...engine import figures
from ...engine.text import percent
from ..reading import epoch_mean
from ..reading.series import Line
from ..reading.store import Snapshot, number
from .plot import Curve, Plot

# What a metric's mean covers, where it is not a whole epoch.
NOTES = {"": "", epoch_mean.WHOLE: "", epoch_mean.SO_FAR: "so far", epoch_mean.UNFINISHED: "unfinished epoch"}


_SPEED, _P50, _P95, _WAIT, _MFU, _BUSY = (
    figures.of_run(key)
    for key in ("samples_per_second", "step_ms.p50", "step_ms.p95", "input_wait", "mfu", "gpu_busy_mean")
)


def plots(now: Snapshot) -> list[Plot]:
    """Throughput, loss, step time, input wait, every metric, and GPU busy where there are several GPUs."""
    found = [
        _throughput(now),
        _over_steps(now, "loss"),
        _step_time(now),
        _over_time(now, _WAIT.label, "of the step", "share", Curve("", now.line(_WAIT.progress))),
        *(_over_steps(now, name) for name in now.metrics),
    ]
    if len(now.gpus) > 1:
        lowest, mean = now.line("gpu_busy_lowest"), now.line("gpu_busy_mean")
        busy = _over_time(now, _BUSY.label, "", "share", Curve("mean", mean), Curve("lowest", lowest))
        found.insert(min(len(found), 5), busy)
    return found


def _throughput(now: Snapshot) -> Plot:
    plot = _over_time(now, _SPEED.label, _SPEED.unit, "zero", Curve("", now.line(_SPEED.progress)))
    return replace(plot, note=_mfu(now))


def _step_time(now: Snapshot) -> Plot:
    """Median and 95th percentile under the name that they share."""
    curves, title = [], ""
    for figure in (_P50, _P95):
        title, _, which = figure.label.rpartition(" ")
        curves.append(Curve(which, now.line(figure.progress)))
    return _over_time(now, title, _P50.unit, "zero", *curves)


def _mfu(now: Snapshot) -> str:
    """The share of the GPUs' peak that is reached, where it is known."""
    reached = number(now.summary.get(_MFU.key) if now.outcome else now.progress.get(_MFU.progress))
    return f"{_MFU.label} {percent(reached)}" if reached is not None else ""


def _over_time(now: Snapshot, title: str, unit: str, bounds: str, *curves: Curve) -> Plot:
    return Plot(title, unit, curves, bounds, "time", _grown(now.elapsed, curves), now.outcome is not None)


def _over_steps(now: Snapshot, name: str) -> Plot:
    mean = epoch_mean.of_run(now, name)
    curves = [Curve("train", now.line(name), value=mean.value)]
    if len(validation := now.line(f"val_{name}")):
        curves.append(Curve("val", validation, marked=True))
    end = max((line.x[-1] for line in (curve.line for curve in curves) if len(line)), default=0.0)
    steps = number(now.progress.get("steps"))
    final = now.outcome is not None or (steps is not None and end >= steps)
    return Plot(figures.metric(name).label, "", tuple(curves), "free", "steps", end, final, NOTES[mean.steps])


def _grown(elapsed: float, curves: tuple[Curve, ...]) -> float:
    """The time of the last point: a chart stays the same between two readings."""
    lines: list[Line] = [curve.line for curve in curves if len(curve.line)]
    return max((line.x[-1] for line in lines), default=0.0) or min(elapsed, 1.0)
