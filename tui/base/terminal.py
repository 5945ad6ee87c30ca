"""What the terminal shows besides the screens: its title while a run goes on, a bell and a notification at its end.

Only control sequences that a terminal ignores if it does not know them. Titles: XTerm Control Sequences, "Operating
System Commands" (OSC 2) and "Window manipulation" (CSI 22 t and 23 t, which keep and bring back the title).
Notifications: OSC 9, as iTerm2 has it, which kitty, WezTerm, Ghostty, foot and others have taken over.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from .errors import clean
from .glyphs import is_poor

KEEP, BRING_BACK = "\x1b[22;2t", "\x1b[23;2t"
LONGEST = 120  # characters of a title or a notification
TMUX_SECONDS = 1.0


class TerminalTitle:
    """Sets the title of the terminal, and restores the former title at the end; `write` sends text to the terminal."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._now = ""

    def show(self, text: str) -> None:
        """Set the title; an empty text restores the former title."""
        if text == self._now:
            return
        if text:
            self._write(("" if self._now else KEEP) + titled(text))
        else:  # a terminal that keeps no titles then has none until the shell sets one
            self._write(titled("") + BRING_BACK)
        self._now = text


def titled(text: str) -> str:
    return f"\x1b]2;{_harmless(text)}\x07"


def notification(text: str, environment: Mapping[str, str]) -> str:
    """Return the control sequence that makes the terminal show a text as a desktop notification; empty if tmux or GNU
    screen would not pass it on.
    """
    sequence = f"\x1b]9;{_harmless(text)}\x07"
    if "TMUX" in environment:
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\" if tmux_passes_on(environment) else ""
    if "STY" in environment or environment.get("TERM", "").startswith("screen"):
        return ""  # GNU screen
    return sequence


def tmux_passes_on(environment: Mapping[str, str]) -> bool:
    """Return whether this tmux passes control sequences on to its terminal; its user has to allow that."""
    try:
        answer = subprocess.run(
            ["tmux", "show-options", "-Apqv", "-t", environment.get("TMUX_PANE", ""), "allow-passthrough"],
            capture_output=True, text=True, timeout=TMUX_SECONDS, env=dict(environment), check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.stdout.strip() in ("on", "all")


def understands(environment: Mapping[str, str]) -> bool:
    """Return whether titles and notifications may be sent to the terminal: it understands or ignores them."""
    return not is_poor(environment)


def _harmless(text: str) -> str:
    return clean(text).replace("\n", " ")[:LONGEST]
