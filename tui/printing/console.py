"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console


def console() -> Console:
    """Standard output; never guesses markup or emoji in text that is not ours."""
    return Console(markup=False, emoji=False, highlight=False)
