"""A line that names keys and their effects; a click on one of them does the same as its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from textual.content import Content
from textual.widgets import Label

from ..base import keys


class KeyHint(NamedTuple):
    """A key as the application knows it, such as escape, and its effect in words."""

    key: str
    effect: str


class KeyHints(Label):
    """Shows key hints, such as `enter accepts, esc leaves`."""

    DEFAULT_CSS = """
    KeyHints {
        width: 100%; color: $foreground-muted;
        link-color: $foreground-muted; link-style: none; link-background: transparent;
        link-color-hover: $foreground; link-style-hover: underline; link-background-hover: transparent;
    }
    """

    def __init__(self, hints: Iterable[KeyHint], *, id: str | None = None) -> None:
        super().__init__(hints_text(hints), id=id, markup=False)


def hints_text(hints: Iterable[KeyHint]) -> Content:
    """Return the hints in one line, each with the click that stands for its key. A key without an effect has that of
    the next one."""
    line = Content()
    for hint in hints:
        line += clickable(f"{keys.shown(hint.key)} {hint.effect}".rstrip(), hint.key)
        line += Content(", " if hint.effect else " ")
    return line.rstrip(", ")


def clickable(text: str, key: str) -> Content:
    """Return the text; a click on it has the effect of the key."""
    return Content.from_markup(f"[@click=app.simulate_key({key!r})]$text[/]", text=text)
