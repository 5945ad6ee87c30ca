"""Partial updates of any strips and of widgets over each other, cell by cell, without an application."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gputui.tui.upstream.partial_updates import ChangedCellsCompositor, ChangedCellsUpdate, Shown
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip

from tests.tui.test_partial_updates import Screen

CONSOLE = Console(color_system="truecolor", force_terminal=True)
STYLES = [Style.parse(text) for text in (
    "red on blue", "green on blue", "bold red on blue", "reverse red on blue", "default on blue", "red", "underline",
    "none", "bold green",
)]  # fmt: skip
TEXTS = ("a", "bcd", " ", "   ", "x y", "─┤", "界", "界 b", "")
WIDTH = 40


def strip(rng: random.Random, width: int) -> Strip:
    """A line of exactly so many cells."""
    segments: list[Segment] = []
    left = width
    while left:
        text = rng.choice(TEXTS)
        if cell_len(text) <= left:
            segments.append(Segment(text, rng.choice(STYLES)))
            left -= cell_len(text)
    return Strip(segments, width)


@pytest.mark.parametrize("seed", range(3))
def test_changed_cells_look_as_the_strips_they_are_of(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        ours, theirs = Screen(), Screen()
        shown = []
        for y in rng.sample(range(20), rng.randint(1, 5)):
            at = rng.randint(0, 5)
            whole = strip(rng, WIDTH - at)
            ends = sorted(rng.sample(range(at, WIDTH + 1), 4))
            for begin, end in (ends[:2], ends[2:]):
                shown.append(Shown(y, begin, end, whole, at))
                theirs.send(f"\x1b[{y + 1};{begin + 1}H{whole.crop(begin - at, end - at).render(CONSOLE)}")
        shown.sort(key=lambda part: part[:2])
        ours.send(ChangedCellsUpdate([part[:3] for part in shown], shown, WIDTH).render_segments(CONSOLE))
        assert ours.cells == theirs.cells


def sent(*parts: tuple[int, str], width: int = 10) -> str:
    """What is sent for these texts in one line, each at its column."""
    shown = [Shown(0, at, at + cell_len(text), Strip([Segment(text)]), at) for at, text in parts]
    return ChangedCellsUpdate([part[:3] for part in shown], shown, width).render_segments(CONSOLE)


def test_the_cursor_is_moved_from_where_it_is_only_if_that_is_sure() -> None:
    assert sent((0, "ab"), (5, "c")) == "\x1b[0m\x1b[1;1Hab\x1b[3Cc\x1b[0m"
    assert sent((0, "─"), (5, "c")) == "\x1b[0m\x1b[1;1H─\x1b[1;6Hc\x1b[0m", "a character of one cell or two"
    shown = [Shown(0, 8, 10, Strip([Segment("ab")]), 8), Shown(1, 8, 9, Strip([Segment("c")]), 8)]
    spans = [part[:3] for part in shown]
    for width, move in ((10, "\x1b[2;9H"), (11, "\x1b[B\b\b")):
        assert ChangedCellsUpdate(spans, shown, width).render_segments(CONSOLE) == f"\x1b[0m\x1b[1;9Hab{move}c\x1b[0m"


class Letters:
    """Stands in for a widget, whose cells have its letter."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self.asked: list[Region] = []

    def render_lines(self, region: Region) -> list[Strip]:
        self.asked.append(region)
        return [Strip([Segment(self.letter * region.width)], region.width) for _ in region.line_range]


class Over(ChangedCellsCompositor):
    """A compositor of widgets that are given, those in front first."""

    visible_widgets: Any = None


@pytest.mark.parametrize("seed", range(3))
def test_of_widgets_over_each_other_the_one_in_front_is_seen(seed: int) -> None:
    rng = random.Random(seed)

    def region(least: int = 1) -> Region:
        x, y = rng.randint(0, 20), rng.randint(0, 8)
        return Region(x, y, rng.randint(least, WIDTH - x), rng.randint(least, 12 - y))

    for _ in range(30):
        compositor: Any = Over()
        compositor.size = Size(WIDTH, 12)
        whole = Region(0, 0, WIDTH, 12)
        places = {Letters(letter): (region(), region()) for letter in "abc"} | {Letters("z"): (whole, whole)}
        compositor.visible_widgets = places
        dirty = {region() for _ in range(rng.randint(1, 3))}
        compositor._dirty_regions = set(dirty)
        update = compositor.render_partial_update()
        screen = Screen()
        screen.send(update.render_segments(CONSOLE))
        cells = {}
        for y in range(12):
            for x in range(WIDTH):
                if any(part.contains(x, y) for part in dirty):
                    front = next(widget for widget, seen in places.items() if all(each.contains(x, y) for each in seen))
                    cells[x, y] = front.letter
        assert {place: letter for place, (letter, _) in screen.cells.items()} == cells
        assert compositor.render_partial_update() is None, "nothing has changed since"
        for widget, seen in places.items():
            inside = seen[0].intersection(seen[1]).translate(-seen[0].offset)
            assert set(widget.asked) <= {inside}, "each is asked for its visible part"
