"""The end of a run's log, read as it grows and made safe to show, and the epochs that are shown among its lines."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from ....engine.files.reading import GrowingFile
from ....engine.runs import Run
from ....engine.runs.events import EVENTS_FILE
from ....engine.runs.parsing import parse_line
from ...base.errors import clean
from .snapshot import Snapshot
from .store import Store

LOG_LINES = 2000
LOG_BYTES = 400_000


class LogTail:
    """The last lines of engine.log, without characters that control the terminal. `lines` is the same object until
    there are new lines. `arrived` has for each line the Unix time at which it was read, 0 for lines of the first
    reading."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._begun = False
        self._kept: deque[str] = deque(maxlen=LOG_LINES)
        self._arrived: deque[float] = deque(maxlen=LOG_LINES)
        self.lines: tuple[str, ...] = ()
        self.arrived: tuple[float, ...] = ()
        self.count = 0

    def poll(self) -> None:
        now = time.time() if self._begun else 0.0
        try:
            if not self._begun:
                self._file.offset = max(0, self._file.path.stat().st_size - LOG_BYTES)
                self._begun = True
            block = self._file.block(LOG_BYTES)
        except OSError:
            return
        if block:
            fresh = [_shown(line) for line in block.decode("utf-8", "replace").split("\n")[:-1]]
            self._kept.extend(fresh)
            self.count += len(fresh)
            self._arrived.extend([now] * len(fresh))
            self.lines, self.arrived = tuple(self._kept), tuple(self._arrived)


def _shown(line: str) -> str:
    return clean(line.rstrip("\r").rpartition("\r")[2].expandtabs(8))


_KINDS = (b'"type":"epoch"', b'"type":"started"', b'"type":"phase"')


class EpochTail:
    """Reads only the events `epoch`, `started` and `phase` of a growing run, for its epochs and the times at which it
    was resumed."""

    def __init__(self, run: Run) -> None:
        self._file, self._store = GrowingFile(run.file(EVENTS_FILE)), Store()

    def read(self) -> Snapshot:
        """Return the present snapshot of the run, made only from the events `epoch`, `started` and `phase`. Empty if
        there are none."""
        try:
            for line in self._file.lines():
                if any(kind in line for kind in _KINDS) and (event := parse_line(line.decode("utf-8", "replace"))):
                    self._store.feed([event])
        except OSError:
            pass  # the log is shown without them
        return self._store.snapshot()
