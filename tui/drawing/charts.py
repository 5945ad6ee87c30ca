"""The charts of a run, of GPUs, of the machine and of compared runs, the most important first, as the settings
request."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine import figures
from ...engine.files.values import EMPTY
from ...engine.units import GIB, percent
from ..base.glyphs import Glyphs
from ..base.settings import Charts
from ..reading.run.series import NOTHING, Line, along
from ..reading.run.snapshot import GPU_LINES, SO_FAR, UNFINISHED, WHOLE, Snapshot
from ..wording.run import brief
from .live import phases
from .plot import cursor
from .plot.axes import column_of, x_scale
from .plot.cursor import place_text
from .plot.curves import Curve, Plot, as_drawn
from .plot.viewport import Viewport, Window
from .rows import Row, joined, kept_items, length, spread

# The remark on a metric's mean that does not cover a whole epoch.
NOTES = {"": "", WHOLE: "", SO_FAR: "so far", UNFINISHED: "unfinished epoch"}
AS_DECLARED = Charts()
_SEEN_SPELL = 0.01  # of the visible time, from which on a phase between steps is marked
_BEFORE_GPUS = 5  # charts that are more important than those of the GPUs

_SPEED, _P50, _P95, _WAIT, _MFU, _RATE = (
    figures.of_run(key)
    for key in ("samples_per_second", "step_ms.p50", "step_ms.p95", "input_wait", "mfu", "learning_rate")
)


def plots(now: Snapshot, drawn: Charts = AS_DECLARED) -> list[Plot]:
    """Return a run's charts: speed, loss, step time, input wait, first metric, GPUs, learning rate, other metrics."""
    ended_or_now = now.summary if now.outcome else now.progress
    mfu = ended_or_now.mfu if ended_or_now else None
    note = f"{_MFU.label} {percent(mfu)}" if mfu is not None else ""
    percentiles = tuple(Curve(each.label.rpartition(" ")[2], now.line(each.progress)) for each in (_P50, _P95))
    charts = [
        Plot(_SPEED.label, _SPEED.unit, (Curve("", now.line(_SPEED.progress)),), "zero", note=note),
        _of_steps(now, "loss"),
        Plot(_P50.label.rpartition(" ")[0], _P50.unit, percentiles, "zero"),
        Plot(_WAIT.label, "of the step", (Curve("", now.line(_WAIT.progress)),), "share"),
        *(_of_steps(now, name) for name in now.metrics),
    ]
    rate = Plot(_RATE.label, "", (Curve("", now.line(_RATE.progress)),), "zero", x_unit="step")
    charts[_BEFORE_GPUS:_BEFORE_GPUS] = [*of_gpus(now, _training(now)), *([] if rate.empty else [rate])]
    if now.outcome is not None:
        charts = [plot for plot in charts if not plot.empty] or charts
    return [arranged(replace(plot, key=plot.title), now, drawn) for plot in charts]


def on_one_axis(now: Snapshot, drawn: Charts, window: Window | None = None) -> list[Plot]:
    """Return a run's charts on one axis, that of the settings (else time or steps). `window` is the visible part."""
    axis = drawn.x_axis if drawn.x_axis in now.pace.axes() else "time" if now.elapsed else "step"
    end = max((now.pace.place(axis, *line.end) for line in now.lines.values() if len(line)), default=0.0)
    final = _is_final(now, axis, end)
    seen = (window[1] - window[0]) / end if window and end else 1.0
    least = _SEEN_SPELL * seen * max(0.0, now.elapsed - now.pace.begin)
    spells = tuple(
        (now.pace.place(axis, each.begin, each.step), now.pace.place(axis, each.end, each.step), mark_of(each.phase))
        for each in now.spells
        if each.end - each.begin >= least
    )
    charts = plots(now, replace(drawn, x_axis=axis))
    return [replace(plot, x_end=max(end, 0.0), final=final, window=window, spells=spells) for plot in charts]


def _of_steps(now: Snapshot, name: str) -> Plot:
    """The loss or a metric: values of steps (only the loss), Keras' means of whole epochs, values of validation."""
    mean = now.epoch_mean(name)
    line = now.line(name)
    curves = [Curve("train", line, lesser=True)] if name == "loss" and now.windowed else []
    means = now.line(f"epoch {name}") if curves else line
    curves.append(Curve("epoch mean", means, marked=bool(curves), value=mean.value, short="mean"))
    if len(validation := now.line(f"val_{name}")):
        curves.append(Curve("val", validation, marked=True))
    epochs = sorted({best.epoch for best in now.best.values()})
    how = (f"best epoch {', '.join(map(str, epochs))}",) if epochs else ()
    figure, note = figures.metric(name), NOTES[mean.steps]
    return Plot(figure.label, "", tuple(curves), x_unit="step", note=note, how=how, falls=not figure.more_is_better)


# ---- as the settings say --------------------------------------------------------------------------


def arranged(plot: Plot, now: Snapshot, drawn: Charts) -> Plot:
    """Return the plot with the axis, its end, the scale and the smoothing that the settings request."""
    axis = plot.x_unit if drawn.x_axis == "auto" else drawn.x_axis
    axis = axis if axis in now.pace.axes() else plot.x_unit
    curves = tuple(replace(curve, line=along(curve.line, axis, now.pace)) for curve in plot.curves)
    joins = tuple(now.pace.place(axis, *moment) for moment in now.joins)
    best = tuple(now.pace.place(axis, *each.moment) for each in now.best.values())
    end = max((max(curve.line.x) for curve in curves if len(curve.line)), default=0.0)
    if not end and axis == "time":
        end = min(max(0.0, now.elapsed - now.pace.begin), 1.0)
    placed = replace(plot, curves=curves, x_unit=axis, x_end=end, joins=joins, best=best)
    return as_drawn(replace(placed, final=_is_final(now, axis, end)), drawn)


def _is_final(now: Snapshot, axis: str, end: float) -> bool:
    if now.outcome is not None:
        return True
    steps = now.progress.steps if now.progress else None
    return axis != "time" and steps is not None and end >= now.pace.place(axis, 0.0, steps)


EACH = 4  # up to so many GPUs have a line each; of more, their mean and their extremes are drawn
_BOUNDS = {"busy": "share", "temperature_c": "free"}


# ---- of the GPUs ----------------------------------------------------------------------------------


def _training(now: Snapshot) -> list[int]:
    # Those that the run uses; if these are unknown, all.
    return [gpu.index for gpu in now.gpus if gpu.training] or [gpu.index for gpu in now.gpus]


def of_gpus(now: Snapshot, indices: list[int]) -> list[Plot]:
    """Return one chart for each figure that at least one of the GPUs, numbered from 0, reports."""
    charts = [_chart(now, key, name, indices) for name, key in GPU_LINES.items()]
    return [plot for plot in charts if not plot.empty]


def of_machine(now: Snapshot, picked: int | None, drawn: Charts) -> list[Plot]:
    """Return the charts of all GPUs and of the host's CPUs, for a screen without a run. `picked` is the number of the
    selected GPU, from 0, or None. If there are more than EACH GPUs, its charts come first."""
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

    def in_gib() -> Line:
        y, low, high = (array("d", [value / GIB for value in values]) for values in (line.y, line.low, line.high))
        return replace(line, y=y, low=low, high=high, last=None if line.last is None else line.last / GIB, made={})

    made: Line = line.once("GiB", in_gib)
    return made


# ---- charts of compared runs ----------------------------------------------------------------------


_SEEN = 0.05  # of the axis, from which on a run can be seen
MOST_COMPARED = 8  # curves that can still be distinguished


@dataclass(frozen=True)
class Named:
    """A compared run with the names of its curves: `label`, and `short` for narrow charts. Both are different for each
    run. `colour` is the number of the colour of its curves. `now` has the curves, and `figures` the figures of its
    result by their keys."""

    label: str
    short: str
    colour: int
    now: Snapshot
    figures: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class _Kind:
    """A kind of chart for compared runs: its title, its unit and a function that returns the line of a run. `key` is
    the figure's key in a run's result. `bounds`, `axis` and `falls` are the fields `bounds`, `x_unit` and `falls` of
    the plot."""

    key: str
    title: str
    unit: str
    line: Callable[[Snapshot], Line]
    bounds: str = "free"
    axis: str = "step"
    falls: bool = False


def compared_plots(runs: Sequence[Named], drawn: Charts) -> list[Plot]:
    """Return one chart for each figure that at least one of the first MOST_COMPARED runs has."""
    shown, charts = list(runs[:MOST_COMPARED]), []
    common, final = axes(shown), all(run.now.outcome is not None for run in shown)
    for kind in _kinds(shown):
        axis = kind.axis if drawn.x_axis == "auto" or drawn.x_axis not in common else drawn.x_axis
        curves = tuple(_curve(kind, run, axis) for run in shown)
        end = max((max(curve.line.x) for curve in curves if len(curve.line)), default=0.0)
        plot = Plot(kind.title, kind.unit, curves, kind.bounds, axis, end, final, key=kind.title, falls=kind.falls)
        charts.append(replace(as_drawn(plot, drawn), filled=False))
    return [plot for plot in charts if not plot.empty]


def axes(runs: Sequence[Named]) -> list[str]:
    axes_of_runs = [run.now.pace.axes() for run in runs]
    return [axis for axis in axes_of_runs[0] if all(axis in others for others in axes_of_runs)] if axes_of_runs else []


def hardly_seen(plot: Plot) -> str:
    """Return a remark if the shortest curve covers less than 5 % of a whole axis, and is hard to see."""
    ends = [(curve.line.x[-1], curve) for curve in plot.in_legend if len(curve.line)]
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
    busy = figures.of_run("gpu_busy_mean")
    timed = [
        _Kind(_SPEED.key, _SPEED.label, _SPEED.unit, lambda now: now.line(_SPEED.progress), "zero", "time"),
        _Kind(_P50.key, _P50.label, _P50.unit, lambda now: now.line(_P50.progress), "zero", "time"),
        _Kind(_WAIT.key, _WAIT.label, "of the step", lambda now: now.line(_WAIT.progress), "share", "time"),
        _Kind(busy.key, busy.label, "", _gpu_busy, "share", "time"),
    ]
    return [*learning[:1], timed[0], *learning[1:], *timed[1:]]


def _metric(key: str, name: str) -> _Kind:
    title = f"{'val ' if key != name else ''}{figures.metric(name).label}"
    figure = figures.metric(key)
    return _Kind(figure.key, title, "", lambda now: now.line(key), falls=not figure.more_is_better)


def _gpu_busy(now: Snapshot) -> Line:
    together = now.line("gpus mean")
    training = _training(now)
    return together if len(together) or len(training) != 1 else now.line(f"gpu{training[0]}")


def _curve(kind: _Kind, run: Named, axis: str) -> Curve:
    """A run without this figure gets an empty curve, so that the legend still names it. "last" marks a reading."""
    line, value = kind.line(run.now), run.figures.get(kind.key)
    other = " (epoch mean)" if kind.title == "loss" and len(line) and not run.now.windowed else ""
    last = " last" if value is None and len(line) else ""
    placed = along(line, axis, run.now.pace) if len(line) else NOTHING
    marked = kind.title.startswith("val ")
    return Curve(
        f"{run.label}{other}{last}", placed, marked=marked, value=value, short=f"{run.short}{last}", colour=run.colour
    )


_PHASES = ("phases ", "label")  # as wide as the labels of a chart's vertical axis
_LEAST_PHASES = 24  # columns that the phases need next to the marks
_UNITS = ("time", "step", "epoch")


def row(
    now: Snapshot, plots: Sequence[Plot], view: Viewport, width: int, glyphs: Glyphs, back: str, alone: bool = False
) -> Row:
    """Return one row: the cursor's place in all units, or the selected range and the key `back`, which shows the whole
    axis; else, of a new run, the parts of its start, then a strip of the phases over the axis of all charts; at the
    right the names of the marks in `plots` and in the strip. `alone` is True below a chart alone,
    where another row has the place of the cursor in the unit of the axis."""
    if not plots:
        return phases.phase_line(now, width) if phases.is_new(now) else []
    plot = plots[0]
    right: Row = [(f"  {back}", "title"), (" shows all", "label")] if view.window is not None else []
    room = width - length(right)
    if view.dragged is not None:
        return spread(_range(plot, view.dragged, "select "), right, width)
    if view.cursor is not None:
        texts = places(now, plot, view.cursor)[alone:]
        items: list[Row] = [[(f"{'  ' * bool(at)}{text}", "value")] for at, text in enumerate(texts)]
        return spread([piece for item in kept_items(items, room) for piece in item], right, width)
    if view.window is not None:
        return spread(_range(plot, view.window, "only "), right, width)
    named = {mark_of(spell.phase): brief(spell.phase) for spell in now.spells}
    letters = sorted({spell[2] for spell in plot.spells}) if not phases.is_new(now) else []
    items = [[("  ", ""), *mark] for mark in marks_of(now, plot, glyphs)]
    items += [[(f"  {letter}", "value"), (f" {named[letter]}", "label")] for letter in letters]
    marks = [piece for item in kept_items(items, width) for piece in item]
    left = width - length(marks)
    if left < _LEAST_PHASES or not (letters or phases.is_new(now)):
        return spread(marks, [], width)
    return [*(_strip(plot, left, glyphs) if letters else phases.phase_line(now, left)), *marks]


def _strip(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """The phases over the axis of the plot: its letter at each column of a phase, a line while the run trains."""
    inner = max(1, width - length([_PHASES]))
    across, cells = x_scale(plot, inner), [(glyphs.rule, "track")] * inner
    for begin, end, letter in plot.spells:
        first, last = column_of(begin, across, inner), column_of(end, across, inner)
        for column in range(max(0, first), min(last + 1, inner)):
            cells[column] = (letter, "value")
    return [_PHASES, *joined(cells)]


def _range(plot: Plot, ends: Window, verb: str) -> Row:
    low, high = (place_text(plot, place, max(ends) - min(ends)) for place in sorted(ends))
    return [(verb, "label"), (low.removesuffix(f" {plot.since}"), "value"), (" to ", "label"), (high, "value")]


def places(now: Snapshot, plot: Plot, place: float) -> list[str]:
    """Return a place on the plot's axis in words, in its unit, then as time, step and epoch as far as known."""
    texts = [place_text(plot, place)]
    line = now.line(_SPEED.progress)
    placed = along(line, plot.x_unit, now.pace)
    if not len(placed) or not len(placed.steps):
        return texts
    after = min(bisect_left(placed.x, place), len(placed) - 1)
    near = min((max(0, after - 1), after), key=lambda index: abs(placed.x[index] - place))
    seconds = line.x[near - len(placed)]  # readings before training are left out on an axis of time
    for unit in _UNITS:
        if unit != plot.x_unit and unit in now.pace.axes():
            other = Plot("", "", (), x_unit=unit)
            texts.append(place_text(other, now.pace.place(unit, seconds, placed.steps[near])))
    return texts


def marks_of(now: Snapshot, plot: Plot, glyphs: Glyphs) -> list[Row]:
    marks: list[Row] = []
    if plot.best:
        epochs = sorted({best.epoch for best in now.best.values()})
        marks.append([(glyphs.best, "good"), (f" best epoch {', '.join(map(str, epochs))}", "label")])
    if plot.joins:
        marks.append([(glyphs.join, "title"), (" resumed", "label")])
    return marks


def mark_of(phase: str) -> str:
    return phase[:1]
