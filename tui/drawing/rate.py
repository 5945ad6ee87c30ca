"""The chart of a learning-rate range test: the loss of the ramp over the rate, single losses and the smoothed curve."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from ...engine.trials import proof_sentences
from ...engine.trials.record import RateTest
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import Line
from .plot.axes import POWERS
from .plot.canvas import draw
from .plot.curves import Curve, Plot
from .rows import Row, wrapped

HEADROOM = 0.3  # of the range of the smoothed loss: a higher single loss is drawn there
TALL = 14  # rows of the chart where there is room


def plot(test: RateTest) -> Plot:
    """Return the losses of the steps over the logarithm of the rate, smoothed too, with a mark at the suggestion."""
    count = min(len(test.smoothed), len(test.rates), len(test.losses))
    places = [math.log10(rate) for rate in test.rates[:count]]
    smoothed = test.smoothed[:count]
    most = max(smoothed, default=0.0) + HEADROOM * (max(smoothed, default=0.0) - min(smoothed, default=0.0))
    single = [most if loss is None else min(loss, most) for loss in test.losses[:count]]
    raw, line = _line(places, single), _line(places, smoothed)
    curves = [Curve("loss", raw, faint=True), Curve("lowest", line, raw=raw, value=min(smoothed, default=None))]
    if test.suggested is not None and count:
        place = math.log10(test.suggested)
        height = smoothed[min(range(count), key=lambda number: abs(places[number] - place))]
        curves.append(Curve("suggested rate", _line([place], [height]), marked=True, value=test.suggested))
    return Plot(
        "loss of the ramp",
        "",
        tuple(curves) if count else (),
        x_unit=POWERS,
        x_end=places[-1] if places else 1.0,
        final=True,
        window=(places[0], places[-1]) if count > 1 else None,
    )


def chart(test: RateTest, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    return draw(plot(test), width, height, glyphs)[0] if len(test.smoothed) > 1 else []


def detail(test: RateTest, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    lines = wrapped(clean(proof_sentences.suggestion(test)), width, glyphs)
    drawn = chart(test, width, min(TALL, height - len(lines)), glyphs) if height - len(lines) > 4 else []
    return [*drawn, *([(line, "value")] for line in lines)][:height]


def _line(x: Sequence[float], y: Sequence[float]) -> Line:
    xs = array("d", x)
    return Line(xs, array("d", y), last=y[-1] if y else None, steps=xs)
