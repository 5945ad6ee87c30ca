"""Whether everything can be read in every theme of gputui, by the contrast ratios of WCAG 2.1."""

from __future__ import annotations

import re
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.tui.app import GputuiApp
from gputui.tui.base.glyphs import glyphs_of
from gputui.tui.base.themes import HIGH_CONTRAST, MONOCHROME, THEMES, own_colours
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.rows import plain
from gputui.tui.reading.run.series import Line
from gputui.tui.screens.dialogs import Copyable, CopyScreen
from gputui.tui.screens.runs.run_table import ColumnsScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.widgets.row_widgets import STYLES, Painted, Panel
from gputui.tui.widgets.table import Table
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.color import Color
from textual.containers import Vertical
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import OptionList, Static

from tests.support import recorded
from tests.support.tiny import Tiny, wait_for

TEXT, GRAPHIC = 4.5, 3.0  # success criteria 1.4.3 and 1.4.11
GROUNDS = ("background", "surface", "panel")
WORDS = ("foreground", "foreground-muted", "text-primary", "text-success", "text-warning", "text-error")
PAINTED_TEXT = ("title", "label", "value", "good", "warn", "bad", "here", "badge", "light", "moderate", "heavy")
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


def test_the_row_under_the_cursor_and_the_present_tab_can_be_read_in_sixteen_colours() -> None:
    def shown(colour: str) -> Color:
        nearest = RichColor.parse(colour).downgrade(ColorSystem.STANDARD)
        return Color(*nearest.get_truecolor(DEFAULT_TERMINAL_THEME))

    for name, words in (("picked", ("foreground", "accent", "warning")), ("here", ("foreground", "primary"))):
        for word in words:
            ratio = contrast(shown(getattr(HIGH_CONTRAST, word)), shown(HIGH_CONTRAST.variables[name]))
            assert ratio >= TEXT, f"{word} on {name}: {ratio:.2f}"


async def test_without_colours_nothing_that_matters_is_dimmer_than_plain_text(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = GputuiApp()
    assert app.theme == MONOCHROME.name
    async with Tiny(Grounds).run_test(size=(80, 60)) as pilot:
        pilot.app.theme = MONOCHROME.name
        await pilot.pause()
        for panel in pilot.app.screen.query(Painted):
            light = {name: _luminance(Color.from_rich_color(panel._style(name).color)) for name in PAINTED_TEXT}
            assert all(light[name] >= light["value"] for name in set(PAINTED_TEXT) - {"label"}), light
            assert light["label"] < light["value"]
        ends = array("d", (0, 1))
        plot = Plot("", "", (Curve("rises", Line(ends, ends)), Curve("falls", Line(ends, ends[::-1]))), x_end=1.0)
        rows, _ = draw(plot, 40, 9, glyphs_of(pilot.app))
        assert {"*", "o"} <= set("".join(map(plain, rows[1:]))), "each curve has a character of its own"


async def test_the_marked_line_of_a_list_can_be_read_in_every_theme() -> None:
    offered = [Copyable("id", "20260921", lambda: "")]
    dialogs: tuple[Any, ...] = (partial(ColumnsScreen, ["run"]), partial(CopyScreen, offered))
    for make in dialogs:
        async with Tiny(make).run_test(size=(80, 24)) as pilot:
            for theme in THEMES:
                pilot.app.theme = theme.name
                await pilot.pause()
                listed = pilot.app.screen.query_one(OptionList)
                line = next(strip for strip in listed.render_lines(Region(0, 0, *listed.size)) if strip.text.strip())
                for piece in line:
                    if piece.text.strip() and piece.style and piece.style.color and piece.style.bgcolor:
                        ratio = contrast(*map(Color.from_rich_color, (piece.style.color, piece.style.bgcolor)))
                        assert ratio >= TEXT, f"{theme.name}: {piece.text} in {make}: {ratio:.2f}"


async def test_the_cells_of_a_table_take_the_colours_of_a_new_theme(home: Path) -> None:
    recorded.write(home, gpus=0, seconds=30)
    async with Tiny(RunsScreen).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "1 of 1")
        table = pilot.app.screen.query_one(Table)

        def colours() -> list[str]:
            return [str(cell.style) for cell in table.get_row_at(0)]

        before = colours()
        pilot.app.theme = next(theme.name for theme in THEMES if not theme.dark)
        await wait_for(pilot, lambda: colours() != before)


async def test_the_words_of_the_screens_can_be_read_in_every_theme_also_right_after_it_was_changed(home: Path) -> None:
    runs = [
        recorded.write(home, name=f"20260921-1{n}0000-cnn", seconds=40, outcome=outcome)
        for n, outcome in enumerate(("ok", "oom", "stopped"))
    ]
    app = GputuiApp()
    async with app.run_test(size=(140, 40)) as pilot:
        for keys, awaited in (
            ("slash b a t", "input.batch_size"), ("escape comma", "charts.fill"), ("escape o", "quickstart"),
            ("q u i", "quickstart"), ("escape escape f4 slash c n", "3 of 3 runs"), ("enter w escape", "stopped"),
        ):  # fmt: skip
            await pilot.press(*keys.split())
            await wait_for(pilot, awaited)
            await reads_well(pilot, keys)
        app.open_compare(runs[:2])
        await wait_for(pilot, "outcome")
        await reads_well(pilot, "compare")


async def reads_well(pilot: Pilot[Any], where: str) -> None:
    """Each word of the screen has the contrast of WCAG in every theme."""
    for theme in THEMES:
        pilot.app.theme = theme.name
        await pilot.pause()
        await pilot.pause()
        for strip in pilot.app.screen._compositor.render_strips():
            for piece in strip:
                if re.search(r"\w", piece.text) and piece.style and piece.style.color and piece.style.bgcolor:
                    ratio = contrast(*map(Color.from_rich_color, (piece.style.color, piece.style.bgcolor)))
                    assert ratio >= TEXT, f"{theme.name}: {piece.text.strip()!r} in {where}: {ratio:.2f}"
    pilot.app.theme = THEMES[0].name
    await pilot.pause()


def test_colours_mean_the_same_in_every_theme() -> None:
    """The heavier the load, the nearer to red; what is chosen is green; the present tab stands out from the cursor."""

    def redness(colour: str) -> int:
        parsed = Color.parse(colour)
        return parsed.r - parsed.g

    for theme in THEMES:
        colours = own_colours(theme) | theme.variables
        assert theme.accent == theme.success, theme.name
        if theme is not MONOCHROME:
            assert redness(str(theme.success)) < redness(colours["moderate"]) < redness(colours["heavy"]), theme.name
            assert redness(str(theme.success)) < redness(str(theme.warning)) < redness(str(theme.error)), theme.name
        picked, here = (Color.parse(colours[name]) for name in ("picked", "here"))
        if theme is MONOCHROME:
            assert picked.rgb < here.rgb
        assert picked.a <= here.a


def test_the_ratio_is_that_of_wcag() -> None:
    assert round(contrast(Color.parse("#777777"), Color.parse("#ffffff")), 2) == 4.48
    assert contrast(Color.parse("black"), Color.parse("white")) == 21


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.1 between two opaque colours."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    parts = [part / 255 for part in colour.rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_eight_runs_have_eight_colours_also_among_sixteen() -> None:
    variables = own_colours(HIGH_CONTRAST) | HIGH_CONTRAST.variables
    four = (HIGH_CONTRAST.primary, HIGH_CONTRAST.warning, HIGH_CONTRAST.success, HIGH_CONTRAST.error)
    colours = [*four, *(variables[curve] for curve in CURVES[4:])]
    assert len({RichColor.parse(str(colour)).downgrade(ColorSystem.STANDARD).number for colour in colours}) == 8
