"""What goes to the terminal: only changed cells, figures that are never cut, and colours that can be read."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.containers import Vertical
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from tests.doors.tui import (
    HIGH_CONTRAST,
    STYLES,
    THEMES,
    ChangedCellsUpdate,
    Painted,
    Panel,
)
from tests.support.tiny import Tiny

TOKEN = re.compile(r"\x1b\[([0-9;]*)([Hm])|(\n)|([^\x1b\n]+)")


class Drawn:
    """What a terminal shows that was sent escape sequences: each cell with its look; what it does not know is an
    error."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}
        self.x, self.y, self.look = 0, 0, ""

    def send(self, text: str) -> None:
        at = 0
        while at < len(text):
            token = TOKEN.match(text, at)
            assert token, repr(text[at : at + 20])
            at = token.end()
            numbers, final, line, written = token.groups()
            if final == "H":
                self.y, self.x = (int(number) - 1 for number in numbers.split(";"))
            elif final:
                self.look = numbers.removeprefix("0").removeprefix(";")
            elif not line:
                for character in written:
                    self.cells[self.x, self.y] = character, self.look
                    self.x += cell_len(character)


CONSOLE = Console(color_system="truecolor", force_terminal=True)
LOOKS = [Style.parse(text) for text in (
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
            segments.append(Segment(text, rng.choice(LOOKS)))
            left -= cell_len(text)
    return Strip(segments, width)


@pytest.mark.parametrize("seed", range(3))
def test_changed_cells_look_as_the_strips_they_are_of(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        ours, theirs = Drawn(), Drawn()
        spans, chops = [], [dict[int, Strip | None]() for _ in range(20)]
        for y in rng.sample(range(20), rng.randint(1, 5)):
            at = rng.randint(0, 5)
            whole = strip(rng, WIDTH - at)
            ends = sorted(rng.sample(range(at, WIDTH + 1), 4))
            for begin, end in (ends[:2], ends[2:]):
                spans.append((y, begin, end))
                chops[y] = {0: None, at: whole} if at else {0: whole}
                theirs.send(f"\x1b[{y + 1};{begin + 1}H{whole.crop(begin - at, end - at).render(CONSOLE)}")
        ends_of = [[*list(line)[1:], WIDTH] for line in chops]
        ours.send(ChangedCellsUpdate(chops, sorted(spans), ends_of).render_segments(CONSOLE))
        assert ours.cells == theirs.cells


TEXT = 4.5  # success criterion 1.4.3
GROUNDS = ("background", "surface", "panel")
WORDS = ("foreground", "foreground-muted", "text-primary", "text-success", "text-warning", "text-error")
PAINTED_TEXT = ("title", "label", "value", "good", "warn", "bad", "here", "badge", "moderate", "heavy")
CURVES = tuple(f"curve{number}" for number in range(1, 9))


class Grounds(Screen[None]):
    """A picture and a text on every ground of the themes."""

    DEFAULT_CSS = "".join(f".{ground} {{ background: ${ground}; }}\n" for ground in GROUNDS) + "".join(
        f".{word} {{ color: ${word}; }}\n" for word in WORDS
    )

    def compose(self):  # type: ignore[no-untyped-def]
        for ground in GROUNDS:
            with Vertical(classes=ground):
                yield Panel(lambda width, height: [])
                yield from (Static(word, classes=word) for word in WORDS)


async def test_text_and_curves_stand_out_from_every_ground_in_every_theme() -> None:
    async with Tiny(Grounds).run_test(size=(80, 60)) as pilot:
        for theme in THEMES:
            pilot.app.theme = theme.name
            await pilot.pause()
            for place in pilot.app.screen.query(Vertical):
                (ground,) = place.classes
                for panel in place.query(Painted):
                    for style in (*PAINTED_TEXT, *CURVES):
                        found = panel._style(style)
                        ratio = contrast(Color.from_rich_color(found.color), Color.from_rich_color(found.bgcolor))
                        assert ratio >= TEXT, f"{theme.name}: {style} on {ground}: {ratio:.2f}"
                for text in place.query(Static):
                    ratio = contrast(text.colors[3], text.colors[2])
                    assert ratio >= TEXT, f"{theme.name}: {text.content} on {ground}: {ratio:.2f}"
        for other in set(pilot.app.available_themes) - {theme.name for theme in THEMES}:
            pilot.app.theme = other  # those of Textual, which do not name our colours
            await pilot.pause()
            assert pilot.app.get_css_variables()["heavy"], other
    assert set(PAINTED_TEXT) < set(STYLES)
    assert HIGH_CONTRAST.dark


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.1 between two opaque colours."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    parts = [part / 255 for part in colour.rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
