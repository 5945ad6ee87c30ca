"""What the output of a command is: a terminal, in which lines can be drawn again, or the cell of a notebook."""

from __future__ import annotations

import os
import sys


def in_cell() -> bool:
    """Return True if the command runs in the cell of a notebook (`!gputui`).

    A cell passes for a terminal, but takes no keys and shows each drawing of a screen or a bar below the one before.
    The kernel of IPython, which all notebooks use for Python, sets these two variables for the programs of its cells
    (ipykernel/zmqshell.py); hardly any terminal is an xterm-color.
    """
    return os.environ.get("TERM") == "xterm-color" and os.environ.get("GIT_PAGER") == "cat"


def takes_keys() -> bool:
    """Return True if a question can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not in_cell()


def draws_again(is_dumb: bool) -> bool:
    """Return True if lines on standard output can be drawn again. `is_dumb`: its kind of terminal cannot do that."""
    return sys.stdout.isatty() and not is_dumb and not in_cell()
