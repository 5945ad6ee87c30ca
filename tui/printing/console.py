"""The console that commands print to, and texts whose lines end between words."""

from __future__ import annotations

import sys
import textwrap

from rich.console import Console

from ..base.errors import clean

_INDENT = "    "


def console() -> Console:
    """A console for standard output that prints texts unchanged: without markup, emoji codes and automatic
    highlighting.
    """
    return Console(markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    """Print a text; on a terminal its lines are broken between words, elsewhere they stay whole."""
    print(broken(clean(text), console().width) if sys.stdout.isatty() else clean(text))


def broken(text: str, width: int) -> str:
    """The text with lines of at most `width` characters; only a word that is longer makes a longer line. Continued
    lines are indented.
    """
    return "\n".join(textwrap.fill(
        line, max(width, 2 * len(_INDENT)), subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    ) for line in text.splitlines())  # fmt: skip
