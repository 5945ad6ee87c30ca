"""The axes of a plot: the scales that suit it, and the labels at its left and below it."""

from __future__ import annotations

import math

from ....engine.units import DAY, axis_time, share
from ..rows import Row
from .curves import Plot
from .scales import TIME_STEPS, Scale, log_scale, round_scale, round_step, share_scale, soon
from .strokes import reach

GUTTER = 7  # six characters for a label, and the axis
POWERS = "rate"  # an axis whose places are powers of ten
_LABEL = 9  # cells that a label of the horizontal axis takes
_LEAST = 1e-9  # the narrowest part of an axis, as a share of its place


def y_scale(plot: Plot, tall: int, before: Scale | None) -> Scale:
    """Return the scale of the values: `before` if they still fit, so that the picture does not jump."""
    if plot.bounds == "share":
        return share_scale(tall)
    extremes = reach(plot)
    if extremes is None:
        return Scale(0.0, 1.0, 1.0)
    low, high = extremes
    low = 0.0 if plot.bounds == "zero" and not plot.logarithmic else low
    if before is not None and before.logarithmic == plot.logarithmic and before.holds(low, high):
        return before
    return log_scale(low, high, tall) if plot.logarithmic else round_scale(low, high, tall)


def x_scale(plot: Plot, width: int) -> Scale:
    """Return the axis: the window, or from 0 to the last point or, of a running run, a round place after it."""
    labels = max(1, width // _LABEL)
    low, high = plot.window or (0.0, max(plot.x_end, _least_end(plot)))
    high = max(high, low + _LEAST * max(1.0, abs(low)))
    if plot.x_unit == "time":
        step = _time_step(high - low, labels)
        return _from_round(low, soon(high) if plot.window is None and not plot.final else high, step)
    whole = 0.0 if plot.x_unit == "epoch" else 1.0
    step = max(whole, round_step((high - low) / labels))
    step = 5.0 if whole and step == 2.5 else step  # there is no half a step
    if plot.window is None and not plot.final:
        quantum = max(whole, round_step(high / 8))
        high = math.ceil(high / quantum) * quantum
    return _from_round(low, high, step)


def _from_round(low: float, high: float, step: float) -> Scale:
    return Scale(low, high, step, first=math.ceil(low / step - 1e-6) * step)


def _time_step(length: float, labels: int) -> float:
    if length < labels:
        return round_step(length / labels)
    return float(next((s for s in TIME_STEPS if length / s <= labels), math.ceil(length / labels / DAY) * DAY))


def _least_end(plot: Plot) -> float:
    if plot.x_unit == "time":
        return 1.0 if plot.final else 20.0
    return 1e-3 if plot.x_unit == "epoch" else 1.0


def row_of(value: float, scale: Scale, tall: int) -> int:
    return round((scale.high - value) / (scale.high - scale.low) * (tall - 1))


def column_of(place: float, across: Scale, width: int) -> int:
    return round((place - across.low) / (across.high - across.low) * (width - 1))


def place_of(column: int, across: Scale, width: int) -> float:
    """Return the place on the axis in the middle of a column, which counts from 0."""
    return across.low + column / max(1, width - 1) * (across.high - across.low)


def tick_text(value: float, step: float) -> str:
    """Return the label of a value on an axis with a label at each `step`, mostly of at most six characters. From
    100,000 on it has at most four digits and k, M or G. A smaller value that needs more is written with one digit, such
    as 1e+04, so that near values may have equal labels."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if step < 10 and round(step * 10**digits, 6) != round(step * 10**digits):  # 2.5, 0.25
        digits += 1
    texts = [f"{value + 0.0:,.{digits}f}", f"{value + 0.0:.{digits}f}"]
    if abs(value) >= 100_000:
        power, letter = (1e9, "G") if abs(value) >= 1e9 else (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        short, shorter = (f"{value / power:.{significant}g}" for significant in (4, 3))
        if abs(float(short) * power - value) < step / 4:
            texts = [f"{short}{letter}", f"{shorter}{letter}"]
        else:
            texts = [texts[1], f"{short}{letter}"]
    return next((text for text in texts if len(text) < GUTTER), f"{value:.0e}")


def power_text(value: float) -> str:
    """Return the label of a value above 0 on a logarithmic scale: up to three significant digits, in most cases at most
    six characters."""
    if value >= 1000:
        return tick_text(value, value)
    for digits in (3, 2, 1):
        mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
        text = f"{mantissa}e{int(exponent)}" if e else mantissa
        if len(text) < GUTTER:
            return text
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def y_label(place: float, scale: Scale, bounds: str) -> str:
    if bounds == "share":
        return share(place)
    if not scale.logarithmic:
        return tick_text(place, scale.step)
    value = scale.value(place)
    return tick_text(value, scale.step) if scale.step else power_text(value)


def x_text(place: float, axis: str, step: float) -> str:
    if axis == POWERS:
        return f"1e{place:.0f}"
    return axis_time(place) if axis == "time" and step >= 1 else tick_text(place, step)


def x_labels(plot: Plot, across: Scale, width: int, named: bool) -> Row:
    """Return the labels below their places, as there is room, and the axis' name if `named`."""
    text = [" "] * width
    free = 0
    name = plot.x_unit + (" in s" if plot.x_unit == "time" and across.step < 1 else "")
    corner = f"{name}  {plot.corner}".rstrip() if named else plot.corner
    beyond = width - (len(corner) + 2 if corner else 1)
    for tick in across.ticks:
        label = x_text(tick, plot.x_unit, across.step)
        if not named and plot.x_unit != "time" and tick == 0:
            label = f"{name} 0"
        at = GUTTER + column_of(tick, across, width - GUTTER)
        start = max(0, min(at - len(label) // 2, width - len(label) - 1))
        if start >= free and start + len(label) <= beyond:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    if corner and len(corner) < width:
        text[width - len(corner) - 1 : width - 1] = corner
    return [("".join(text), "label")]
