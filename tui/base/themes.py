"""The colour themes of gputui: a calm dark theme, a light one, one of high contrast for 16 colours, and one without
colours. All text, and so the curves, in whose colours runs are named, has at least the contrast 4.5 that WCAG 2.1
requires (1.4.3), marks 3 (1.4.11), on every background."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.text import Text
from textual.app import App
from textual.color import Color
from textual.content import Content
from textual.theme import Theme

from ..word_search import Hit, marked

# The first curve has the primary colour. None has a colour of trouble or success: these say how good something is.
_DARK_CURVES = {
    "curve2": "#d59be8", "curve3": "#4fcbd3", "curve4": "#d6dbe0", "curve5": "#8f8ff0", "curve6": "#ee7fc0",
    "curve7": "#a0a8b0", "curve8": "#3fa7b5",
}  # fmt: skip
_LIGHT_CURVES = {
    "curve2": "#8a2fa8", "curve3": "#006a73", "curve4": "#1c2126", "curve5": "#3f3fbf", "curve6": "#a3246f",
    "curve7": "#575f67", "curve8": "#2a6680",
}  # fmt: skip
_SIXTEEN_CURVES = {
    "curve2": "#ff55ff", "curve3": "#ffffff", "curve4": "#7070ff", "curve5": "#00aaaa", "curve6": "#b0b0b0",
    "curve7": "#b86b00", "curve8": "#00aa00",
}  # fmt: skip

CALM = Theme(
    name="gputui", primary="#7aa2c8", secondary="#9aa7b5", accent="#8fc98f", success="#8fc98f", warning="#e0b860",
    error="#ee7d7d", foreground="#d6dbe0", background="#14171a", surface="#1a1e22", panel="#22272c",
    variables={"footer-key-foreground": "#7aa2c8", "foreground-muted": "#939ca5", "border": "#3a4249",
    "scrollbar-background": "#1a1e22", "moderate": "#d8c35a", "heavy": "#e8955a", **_DARK_CURVES},
)  # fmt: skip

LIGHT = Theme(
    name="gputui-light", primary="#1d5c94", secondary="#51606e", accent="#256b2d", success="#256b2d", warning="#805000",
    error="#b3201c", foreground="#1c2126", background="#fbfaf7", surface="#f2f0eb", panel="#e7e4dd", dark=False,
    variables={"footer-key-foreground": "#1d5c94", "foreground-muted": "#575f67", "border": "#b5b0a6",
    "moderate": "#6f5c00", "heavy": "#a84300", **_LIGHT_CURVES},
)  # fmt: skip

HIGH_CONTRAST = Theme(
    name="high-contrast",
    primary="#00ffff",
    secondary="#ffffff",
    accent="#55ff55",
    success="#55ff55",
    warning="#ffff00",
    error="#ff5555",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    boost="#000000",
    text_alpha=1.0,
    variables={
        "moderate": "#ffff00",
        "heavy": "#ff5555",
        **_SIXTEEN_CURVES,
        "picked": "#000080",  # a mixed colour would be grey in sixteen colours
        "here": "#000080",
        "grid": "#808080",  # a fainter grey would be black in sixteen colours
        "text-muted": "#ffffff",
        "text-disabled": "#ffffff",
        "foreground-muted": "#ffffff",
        "border": "#ffffff",
        "border-blurred": "#ffffff",
        "block-cursor-foreground": "#000000",
        "block-cursor-background": "#00ffff",
        "block-cursor-blurred-background": "#000080",  # in the palette, whose field has the focus
        "block-cursor-blurred-foreground": "#ffffff",
        "footer-background": "#000000",
        "footer-key-foreground": "#00ffff",
        "input-selection-background": "#0000ff",
    },
)

# For terminals without colours (NO_COLOR): only labels are dimmer than plain text.
MONOCHROME = replace(
    HIGH_CONTRAST,
    name="monochrome",
    primary="#ffffff",
    accent="#ffffff",
    success="#ffffff",
    warning="#ffffff",
    error="#ffffff",
    variables=HIGH_CONTRAST.variables
    | {
        "moderate": "#ffffff",
        "heavy": "#ffffff",
        "picked": "#383838",
        "here": "#404040",
        **{f"curve{number}": "#ffffff" for number in range(2, 9)},
        "text-muted": "#b0b0b0",
        "text-disabled": "#b0b0b0",
        "foreground-muted": "#b0b0b0",
        "block-cursor-background": "#ffffff",
        "block-cursor-blurred-background": "#404040",
        "footer-key-foreground": "#ffffff",
        "input-selection-background": "#606060",
    },
)

THEMES = (CALM, LIGHT, HIGH_CONTRAST, MONOCHROME)


def own_colours(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme for what is near its limit and at it, the grid, the row under the cursor, the tab
    of the present screen and the curves from the second on, by the names that the style sheets use."""
    moderate = Color.parse(theme.warning or theme.primary)
    heavy = moderate.blend(Color.parse(theme.error or theme.primary), 0.5)
    grid = Color.parse(theme.foreground or ("#e0e0e0" if theme.dark else "#202020")).with_alpha(0.14)
    curves = _DARK_CURVES if theme.dark else _LIGHT_CURVES
    primary = Color.parse(theme.primary)
    backgrounds = {"picked": primary.with_alpha(0.14).hex, "here": primary.with_alpha(0.25).hex}
    return {"moderate": moderate.hex, "heavy": heavy.hex, "grid": grid.hex, **backgrounds, **curves}


def colour(app: App[Any], name: str) -> str:
    """Return a colour of the present theme, such as #e06c75, by its name (success, warning, primary); else empty."""
    return str(getattr(app.current_theme, name, None) or "")


def painted_colour(app: App[Any], style: str) -> str:
    """Return the colour of a style of painted rows. Empty for a style that has the usual colour of text. Labels and
    tracks are muted. That is a colour, as the row under the cursor replaces it by its own; `dim` would stay, and be
    hard to read there. Only themes of Textual whose muted colour is transparent get `dim`."""
    if style in _PAINTED:
        return colour(app, _PAINTED[style])
    if style.startswith("curve"):
        return app.theme_variables.get(style, "")
    if style not in ("label", "track"):
        return ""
    muted = Color.parse(app.theme_variables.get("foreground-muted", "transparent"))
    return muted.hex if muted.a == 1 else "dim"


_PAINTED = {"good": "success", "warn": "warning", "bad": "error", "curve1": "primary"}


# ---- marks of what was found, the same in every list ----------------------------------------------


def with_marks(line: Content, hit: Hit[Any]) -> Content:
    for begin, end in marked(line.plain, hit.words):
        line = line.stylize("bold underline $text-warning", begin, end)
    return line


def mark_cell(cell: Text, hit: Hit[Any], colour: str) -> None:
    """Mark the words of the hit in a cell of a table. `colour` is that of the marks, empty for none."""
    for begin, end in marked(cell.plain, hit.words):
        cell.stylize(f"bold underline {colour}".rstrip(), begin, end)
