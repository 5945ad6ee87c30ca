"""Error messages on stderr, one or two plain lines each, and the exit codes of the command.

Exit codes: 0 done; 1 the training failed; 2 a wrong command line or preset; 3 out of memory; 74 the output could not be
written, and a run goes on; 130 interrupted.

Deferred imports: only a command that fails pays for them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from ...engine.files.values import brief

DONE, FAILED, WRONG, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 2, 3, 130
UNHEARD = 74  # EX_IOERR of sysexits.h: an error of input or output
_BY_OUTCOME = {"ok": DONE, "oom": OUT_OF_MEMORY, "stopped": INTERRUPTED}


class Refused(Exception):
    """Nothing was started; the text is one or two lines that say what to do."""


def exit_code(outcome: str | None) -> int:
    """The exit code for the outcome of a run."""
    return _BY_OUTCOME.get(outcome or "", FAILED)


def clean(text: object) -> str:
    """Text from logs, presets or paths without characters that would control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text))


def complain(text: object) -> None:
    """Write lines to stderr without control characters; the middle of a very long line is left out."""
    with contextlib.suppress(OSError, ValueError):  # nobody may be reading it
        print("\n".join(brief(line) for line in clean(text).split("\n")), file=sys.stderr, flush=True)


def report(fault: Exception) -> int:
    """Write what a command raised as one or two lines; returns its exit code."""
    from ...engine.files import disk
    from ...engine.presets import PresetError
    from ...engine.process import ending
    from ...engine.runs import RunError

    if isinstance(fault, PresetError):
        more = len(fault.problems) - 1
        complain(fault.problems[0])
        if more:
            complain(f"and {more} more; gputui presets check FILE shows all")
    elif isinstance(fault, Refused | RunError | click.ClickException):
        complain(fault)
    elif isinstance(fault, RuntimeError | MemoryError | BlockingIOError) and (end := ending.of_fault(fault)):
        complain(f"{end.message}\n{end.hint}")
        return FAILED
    elif isinstance(fault, OSError):
        written = "standard output, or the file that was being written" if disk.refusal(fault) else ""
        where = fault.filename or written
        complain(f"{fault.strerror or fault}: {where}" if where else fault.strerror or fault)
    else:
        complain(f"unexpected {type(fault).__name__}: {fault}\nplease report it, with the command you gave")
        return FAILED
    return WRONG


def discard_output() -> None:
    """Send standard output nowhere from now on, so that a full buffer cannot fail again when Python ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def open_closed_streams() -> None:
    """Open the standard streams that were closed at the start, so that no file takes their place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", encoding="utf-8"))


def error_text(error: Mapping[str, Any]) -> str:
    """A run's error in at most two lines."""
    hint = error.get("hint")
    return str(error.get("message")) + (f"\n{hint}" if hint else "")
