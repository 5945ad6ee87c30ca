"""Error messages on stderr: one or two plain lines, or one line for each fault of a preset. Also the exit codes.
Deferred imports: only a command that fails needs them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ...engine.files.values import brief, harmless

DONE, FAILED, WRONG, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 2, 3, 130
STDOUT = "-"  # as the name of an output file
NOT_WRITTEN = 74  # EX_IOERR of sysexits.h: an error of input or output
TO_BE_RESUMED = 75  # EX_TEMPFAIL of sysexits.h: to be tried again
_BY_OUTCOME = {"ok": DONE, "oom": OUT_OF_MEMORY, "stopped": INTERRUPTED}


def exit_code(outcome: str | None) -> int:
    return _BY_OUTCOME.get(outcome or "", FAILED)


NAMED = 5  # of the problems of a preset
ON_ANOTHER_DISK = "GPUTUI_HOME=/other/folder puts the runs on another disk"


class Refused(Exception):
    """A command is refused and nothing was started. The exception's text is one or two lines that say what to do."""


class OutputFault(Exception):
    """Standard output cannot be written. The exception's text gives the reason. It is no OSError, which click, rich and
    the commands would handle as a fault of another file."""

    def __init__(self, fault: OSError) -> None:
        self.is_unread = isinstance(fault, BrokenPipeError)
        super().__init__("nobody reads it" if self.is_unread else fault.strerror or str(fault))


class _Output(io.FileIO):
    """Standard output as Python opens it, except that a failed write raises OutputFault."""

    def write(self, block: Any, /) -> int:
        try:
            return super().write(block)
        except OSError as fault:
            raise OutputFault(fault) from None


def clean(text: object) -> str:
    """Return text of logs, presets or paths without characters that would control the terminal."""
    return harmless(str(text))


def complain(text: object) -> None:
    """Write lines to stderr without control characters."""
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        print(clean(text), file=sys.stderr, flush=True)


def report(fault: Exception) -> int:
    from ...engine.files import places, writing
    from ...engine.files.writing import ExistsError
    from ...engine.job.cluster import ClusterError
    from ...engine.presets import PresetError
    from ...engine.process import ending
    from ...engine.runs import RunError

    if isinstance(fault, PresetError):
        for problem in fault.problems[:NAMED]:
            complain(problem)
        if more := len(fault.problems[NAMED:]):
            complain(f"and {more} more; gputui presets check FILE shows all")
    elif isinstance(fault, Refused | RunError | ClusterError | ExistsError):
        complain(fault)
    elif isinstance(fault, RuntimeError | MemoryError | BlockingIOError) and (end := ending.of_fault(fault)):
        complain(f"{end.message}\n{end.hint}")
    elif isinstance(fault, OSError):
        written = "the file that was being written" if writing.refusal(fault) else ""
        where = fault.filename or written
        if not where:
            try:
                os.getcwd()
            except OSError:
                where = "the current folder has been deleted; change to another one"
        at_home = fault.filename and str(places.home()).startswith(str(fault.filename))
        elsewhere = f"\n{ON_ANOTHER_DISK}" if at_home or (fault.filename and writing.refusal(fault)) else ""
        complain((f"{fault.strerror or fault}: {where}" if where else f"{fault.strerror or fault}") + elsewhere)
    else:
        complain(f"unexpected {type(fault).__name__}: {brief(str(fault))}\nplease report it, with the command you gave")
        return FAILED
    return WRONG


def interruptible() -> None:
    """Make Ctrl-C raise KeyboardInterrupt. Until then the system's handler ends the process (tui/__init__.py)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def guarded(command: Callable[[], int]) -> int:
    open_closed_streams()
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):  # not replaced by a test
        sys.stdout = _output(sys.stdout)
    code = DONE
    try:
        code = _code(command)
        sys.stdout.flush()
        return code
    except OutputFault as fault:  # never hides that the command has failed
        discard_output()
        if fault.is_unread:  # `head` ends after its lines
            return code
        complain(f"standard output cannot be written ({fault})")
        return code or NOT_WRITTEN
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # else Python replaces the exit code by 120 at its end
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stderr.fileno())


def _output(given: io.TextIOWrapper) -> io.TextIOWrapper:
    # Its failed writes raise OutputFault.
    raw = _Output(given.fileno(), "w", closefd=False)
    lines, at_once = given.line_buffering, given.write_through
    return io.TextIOWrapper(
        io.BufferedWriter(raw), given.encoding, given.errors, line_buffering=lines, write_through=at_once
    )


def _code(command: Callable[[], int]) -> int:
    try:
        return command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputFault:
        raise
    except Exception as fault:  # noqa: BLE001 - no traceback on the terminal
        return report(fault)


def discard_output() -> None:
    """Discard standard output from now on, so that a full buffer cannot fail again when Python ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def unheard(fault: OutputFault, goes_on: str) -> int:
    """Say that standard output cannot be written, and what goes on nevertheless. Return the exit code."""
    complain(f"standard output cannot be written ({fault})\n{goes_on}")
    discard_output()
    return NOT_WRITTEN


def open_closed_streams() -> None:
    """Open the standard streams that were closed at the start, so that no other file gets their descriptors."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", encoding="utf-8"))
