"""The colour themes of gputui: a calm dark one, and one of high contrast for weak displays and eyes and 16 colours."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.theme import Theme

CALM = Theme(
    name="gputui",
    primary="#7aa2c8",
    secondary="#9aa7b5",
    accent="#8fc98f",
    success="#8fc98f",
    warning="#e0b860",
    error="#ee7d7d",
    foreground="#d6dbe0",
    background="#14171a",
    surface="#1a1e22",
    panel="#22272c",
    variables={"footer-key-foreground": "#e0b860", "border": "#3a4249"},
)

HIGH_CONTRAST = Theme(
    name="high-contrast",
    primary="#00ffff",
    secondary="#ffffff",
    accent="#00ff00",
    success="#00ff00",
    warning="#ffff00",
    error="#ff5555",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    boost="#000000",
    text_alpha=1.0,
    variables={
        "text-muted": "#ffffff",
        "text-disabled": "#ffffff",
        "foreground-muted": "#ffffff",
        "border": "#ffffff",
        "border-blurred": "#ffffff",
        "block-cursor-foreground": "#000000",
        "block-cursor-background": "#ffff00",
        "block-cursor-blurred-background": "#000000",
        "block-cursor-blurred-foreground": "#ffffff",
        "footer-background": "#000000",
        "footer-key-foreground": "#ffff00",
        "input-selection-background": "#0000ff",
    },
)

THEMES = (CALM, HIGH_CONTRAST)


def colour(app: App[Any], name: str) -> str:
    """A colour of the theme (success, warning, error, primary) for text that is styled by hand."""
    return str(getattr(app.current_theme, name, None) or "")


def painted_colour(app: App[Any], style: str) -> str:
    """The colour that goes with the name of a painted style; what has none is plain or dim."""
    colours = {"good": "success", "warn": "warning", "bad": "error", "curve1": "primary", "curve2": "warning"}
    return colour(app, colours[style]) if style in colours else "dim" if style == "label" else ""
