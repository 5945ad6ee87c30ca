"""The charts of the GPUs over time: utilization, memory, power and temperature."""

from __future__ import annotations

from array import array
from dataclasses import replace

from ...engine import figures
from ...engine.units import GIB
from ..base.settings import Charts
from ..reading.series import Line
from ..reading.snapshot import Snapshot
from ..reading.store import GPU_LINES
from .curves import Curve, Plot
from .looks import as_drawn

EACH = 4  # up to so many GPUs have a line each; of more, their mean and their extremes are drawn
_BOUNDS = {"busy": "share", "temperature_c": "free"}


def of_run(now: Snapshot) -> list[Plot]:
    """Those of the GPUs that the run uses, where that is known; else of all."""
    used = [gpu.index for gpu in now.gpus if gpu.training] or [gpu.index for gpu in now.gpus]
    return of_gpus(now, used)


def of_gpus(now: Snapshot, indices: list[int]) -> list[Plot]:
    """A chart for each figure that some of the GPUs tell."""
    found = [_chart(now, key, name, indices) for name, key in GPU_LINES.items()]
    return [plot for plot in found if not plot.empty]


def of_machine(now: Snapshot, picked: int | None, drawn: Charts) -> list[Plot]:
    """Those of the picked GPU first, where there are many; then of all GPUs of the machine, and the host's CPUs."""
    indices = [gpu.index for gpu in now.gpus]
    found = of_gpus(now, indices)
    if picked is not None and len(indices) > EACH:
        found = of_gpus(now, [picked]) + found
    cpu = figures.HOST["cpu"]
    found.append(Plot(f"host {cpu.label}", "", (Curve("", now.line("cpu")),), "share"))
    end = max(1.0, now.elapsed)
    return [
        as_drawn(replace(plot, key=plot.title, x_end=end, since="after the first reading"), drawn) for plot in found
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
