"""A run that waits in the queue as rows of the live view: its place, its needs, why it waits and about when it
starts."""

from __future__ import annotations

import textwrap

from ....engine.units import clock
from ...base.errors import clean
from ...reading.queue_places import Waiting
from ..rows import Row, fit

LABEL = 12  # columns of the names
PURPOSE = "It starts by itself, also if you quit, and is then shown here."
RELEASE = "It does not start until it is released, in the runs or by gputui queue release {run}"


def state(waiting: Waiting) -> str:
    return "held" if waiting.held else "waiting in the queue"


def rows(waiting: Waiting, now: float, width: int, is_new: bool) -> list[Row]:
    """Return the rows about a waiting run: one row for each item of a new run, else one row in all."""
    if not is_new:
        return [fit([(line, "warn")], width) for line in textwrap.wrap(clean(str(waiting)), max(10, width))]
    items = {
        "place": f"{waiting.place} of {waiting.count}" if waiting.place else "",
        "needs": waiting.needs,
        "begins after": waiting.after,
        "has waited": clock(max(0.0, now - waiting.since)),
        "starts": "" if waiting.held else waiting.when or "not known yet",
        "why": waiting.why,
    }
    drawn: list[Row] = [[]]
    for name, text in items.items():
        lines = textwrap.wrap(clean(text), max(10, width - LABEL - 2))
        for number, line in enumerate(lines):
            drawn.append(fit([(f"{'' if number else name:<{LABEL}}  ", "label"), (line, "value")], width))
    purpose = RELEASE.format(run=waiting.run) if waiting.held else PURPOSE
    return [*drawn, [], *(fit([(line, "label")], width) for line in textwrap.wrap(clean(purpose), max(10, width)))]
