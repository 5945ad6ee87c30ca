"""The command `gputui logs`: prints the log of a run with a line for each of its epochs, also while it goes on."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import click

from ..base.errors import DONE, INTERRUPTED, Refused, clean
from . import completion, is_called

if is_called():
    from ...engine import runs as run_folders
    from ...engine.files.reading import open_regular
    from ...engine.runs import Run
    from ...engine.runs.event_reading import Tail
    from ...engine.runs.events import EVENTS_FILE
    from ...engine.runs.run import WAITING
    from ...engine.runs.run_state import RunState
    from ..base.glyphs import RICH
    from ..drawing import log_rows
    from .stopping import code_of

POLL_SECONDS = 0.2
LEAST_BYTES = 1 << 16  # that are read for the last lines
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
    """Yield the present lines (of which only the `last`) with ended epochs among them by time, then with `follow` the
    new ones until the run ends. A line that arrives while the log is followed has the time of its arrival."""
    stream = _opened(run, follow)
    if stream is None:
        return
    events, state, epoch_t, arrived = Tail(run.file(EVENTS_FILE)), RunState(), 0.0, 0.0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # what is read may end within a character
    begun = ""  # a line whose end is still to come
    with stream:
        if last is not None:
            stream.seek(max(0, stream.seek(0, 2) - max(LEAST_BYTES, last * 1000)))
            if stream.tell():
                stream.readline()
        while True:
            ended = not follow or (arrived > 0 and not _goes_on(run))  # not before the present lines are told
            for event in events.read():
                state.fold(event)
            *whole, begun = _LINE_END.split(begun + decoder.decode(stream.read()))
            epochs = [epoch for epoch in state.epochs if epoch.t > epoch_t]
            epoch_t = max([epoch_t, *(epoch.t for epoch in epochs)])
            times = [arrived] * len(whole)
            rows = log_rows.rows([*map(_shown, whole)], times, epochs, RICH, fold=False, resumes=state.resumes)
            texts = [f"{row.text}\n" for row in rows]
            if ended and begun:
                texts.append(_shown(begun.rstrip("\r")))
            yield from texts if last is None else texts[max(0, len(texts) - last) :]
            if ended:
                return
            last, arrived = None, time.time()
            time.sleep(POLL_SECONDS)


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
