"""The console that commands print to, and texts whose lines end between words."""

from __future__ import annotations

import sys
import textwrap

from rich.console import Console

from ..base.errors import clean

_INDENT = "    "


def console() -> Console:
    """Standard output; never guesses markup or emoji in text that is not ours."""
    return Console(markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    """Print a text: on a terminal broken between words, elsewhere in whole lines."""
    print(broken(clean(text), console().width) if sys.stdout.isatty() else clean(text))


def broken(text: str, width: int) -> str:
    """The text in lines of this width, longer only by a word that does not fit; continued lines are indented."""
    return "\n".join(textwrap.fill(
        line, max(width, 2 * len(_INDENT)), subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    ) for line in text.splitlines())  # fmt: skip
