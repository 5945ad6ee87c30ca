"""What the output of a command is: a terminal, in which lines can be drawn again, or the cell of a notebook."""

from __future__ import annotations

import os
import sys


def in_cell() -> bool:
    """True in the cell of a notebook: the kernel of IPython sets these two variables (ipykernel/zmqshell.py); a cell
    passes for a terminal, but takes no keys and shows each drawing of a screen below the one before."""
    return os.environ.get("TERM") == "xterm-color" and os.environ.get("GIT_PAGER") == "cat"


def takes_keys() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not in_cell()


def draws_again(is_dumb: bool) -> bool:
    """Return True if lines on standard output can be drawn again. `is_dumb`: its kind of terminal cannot do that."""
    return sys.stdout.isatty() and not is_dumb and not in_cell()
