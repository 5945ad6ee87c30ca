"""The epochs of a run and the moments at which it was resumed, for its log: read from its events as they grow."""

from __future__ import annotations

from ...engine.files.reading import GrowingFile
from ...engine.runs import Run
from ...engine.runs.events import EVENTS_FILE
from ...engine.runs.parsing import parse_line
from .snapshot import Snapshot
from .store import Store

_KINDS = (b'"type":"epoch"', b'"type":"started"', b'"type":"phase"')


class EpochTail:
    """Passes over all other events, of which there are many more."""

    def __init__(self, run: Run) -> None:
        self._file, self._store = GrowingFile(run.file(EVENTS_FILE)), Store()

    def read(self) -> Snapshot:
        """The snapshot of the run now; empty without events."""
        try:
            for line in self._file.lines():
                if any(kind in line for kind in _KINDS) and (event := parse_line(line.decode("utf-8", "replace"))):
                    self._store.feed([event])
        except OSError:
            pass  # the log is shown without them
        return self._store.snapshot()
