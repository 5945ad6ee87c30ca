"""Shared by the screens of runs: a table that opens its rows, and the colours of the theme."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

# A section of the help.
LOSS = ("Loss and metrics", (("goes on", "the mean of the epoch so far"), ("has ended", "of its last whole epoch")))


def colour(app: App[Any], name: str) -> str:
    """A colour of the theme (success, warning, error, primary) for text that is styled by hand."""
    return str(getattr(app.current_theme, name, None) or "")


def styled(app: App[Any], name: str) -> str:
    """The colour that goes with the name of a painted style; what has none is plain or dim."""
    colours = {"good": "success", "warn": "warning", "bad": "error", "curve1": "primary", "curve2": "warning"}
    return colour(app, colours[name]) if name in colours else "dim" if name == "label" else ""


class OpeningTable(DataTable[Any]):
    """A table whose footer says what Enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]
    DEFAULT_CSS = """
    OpeningTable {
        height: 1fr;
        background: $background;
        &:focus { background-tint: $foreground 0%; }
        scrollbar-size: 1 1;
        & > .datatable--header { background: $panel; color: $foreground; text-style: bold; }
        & > .datatable--odd-row, & > .datatable--even-row, & > .datatable--fixed { background: $background; }
        &:focus > .datatable--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
    }
    """
