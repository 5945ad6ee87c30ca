"""The command `gputui logs`: prints the log of a run with a line for each of its epochs, also while it goes on."""

from __future__ import annotations

import codecs
import math
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import BinaryIO

import click

from ..base.errors import DONE, INTERRUPTED, Refused, clean
from . import completion, is_called

if is_called():
    from ...engine import runs as run_folders
    from ...engine.files.reading import open_regular
    from ...engine.process.known_failures import RESUMED
    from ...engine.runs import Run
    from ...engine.runs.run import WAITING
    from ...engine.runs.run_state import Epoch
    from ..drawing.log_rows import epoch_text, judged
    from ..reading.run.reader import EpochTail
    from .stopping import code_of

POLL_SECONDS = 0.2
BLOCK_BYTES = 1 << 16
# Lines that are written over one another come one below the other; the last character may be half an end of a line.
_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")


@click.command()
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run has ended, and exit with its exit code.")
@click.option("-n", "--lines", "last", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
def logs(run: str, follow: bool, last: int | None) -> int:
    """The log is what the training and gputui have printed."""
    named = run_folders.find(run)
    try:
        for text in _texts(named, follow, last):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED  # of looking on: the run goes on
    return code_of(named, (named.result or {}).get("outcome")) if follow else DONE


def _texts(run: Run, follow: bool, last: int | None) -> Iterator[str]:
    """Yield the present lines and, with `follow`, the new ones until the run ends. Each text ends with a line break."""
    stream = _opened(run, follow)
    if stream is None:
        return
    lines = _InOrder(run)
    with stream:
        if last is None:
            yield from lines.with_epochs(iter(partial(stream.read, BLOCK_BYTES), b""))
        else:
            yield from _last_of(lines, stream, last, follow)
        while follow:
            ended = not _goes_on(run)
            yield from lines.with_epochs([stream.read()], arrived=time.time())
            if ended:
                break
            time.sleep(POLL_SECONDS)
    yield from lines.rest()


def _last_of(lines: _InOrder, stream: BinaryIO, last: int, follow: bool) -> Iterator[str]:
    """Yield the last lines, ended epochs among them. `stream` is then at its end; with `follow` an incomplete line is
    left."""
    stream.seek(max(0, stream.seek(0, 2) - max(BLOCK_BYTES, last * 1000)))
    cut = stream.tell() > 0
    block = stream.read()
    block = block[block.find(b"\n") + 1 :] if cut else block
    present = list(lines.with_epochs([block], cut=cut))
    if not follow:
        present += lines.rest()
    yield from present[max(0, len(present) - last) :]


class _InOrder:
    """The lines of the log and of the epochs, in the order of time. A line without a time follows the line before it in
    the log. A line that arrives while the log is followed has the time of its arrival."""

    def __init__(self, run: Run) -> None:
        self._events = EpochTail(run)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a block may end within a character
        self._begun = ""  # a line whose end is still to come
        self._epoch_t = 0.0
        self._resumes: tuple[float, ...] = ()
        self._resumes_told = 0

    def with_epochs(self, blocks: Iterable[bytes], arrived: float = 0.0, cut: bool = False) -> Iterator[str]:
        """Yield the complete lines in `blocks` and, by time, a line for each new epoch. `arrived` is the Unix time of
        lines that have no time; with 0 such a line follows the one before it. `cut` is True if the beginning of the log
        is missing."""
        now = self._events.read()
        epochs = deque(epoch for epoch in now.epochs if epoch.t > self._epoch_t)
        self._resumes = now.resumes
        for block in blocks:
            *whole, self._begun = _LINE_END.split(self._begun + self._decoder.decode(block))
            if cut:
                self._resumes_told = max(0, len(now.resumes) - whole.count(RESUMED))
            for line in whole:
                t = self._time(line) or arrived
                while epochs and epochs[0].t < t:
                    yield self._epoch_line(epochs.popleft())
                yield f"{_shown(line)}\n"
        yield from map(self._epoch_line, epochs)

    def _time(self, line: str) -> float:
        if line != RESUMED:
            return judged(line).t
        self._resumes_told += 1
        return self._resumes[self._resumes_told - 1] if self._resumes_told <= len(self._resumes) else math.inf

    def _epoch_line(self, epoch: Epoch) -> str:
        self._epoch_t = epoch.t
        return f"{epoch_text(epoch)}\n"

    def rest(self) -> Iterator[str]:
        if self._begun:
            yield _shown(self._begun.rstrip("\r"))
            self._begun = ""


def _opened(run: Run, follow: bool) -> BinaryIO | None:
    """Return the opened log; None if the run ends without one. With `follow`, wait for the log of a run that will
    start."""
    while True:
        try:
            return open_regular(run.file("engine.log"))
        except FileNotFoundError:
            if not follow:
                raise Refused(f"{run.name} has no log") from None
        if not _goes_on(run):
            return None
        time.sleep(POLL_SECONDS)


def _goes_on(run: Run) -> bool:
    return run.is_active or run.state == WAITING


def _shown(line: str) -> str:
    return clean(line.expandtabs(8))
