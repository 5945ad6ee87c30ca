"""The epochs of a run and the moments at which it was resumed, for its log: read from its events as they grow."""

from __future__ import annotations

from ...engine.files.reading import open_regular
from ...engine.runs import Run
from ...engine.runs.events import EVENTS_FILE
from ...engine.runs.parsing import parse_line
from .snapshot import Snapshot
from .store import Store

_WANTED = (b'"type":"epoch"', b'"type":"started"', b'"type":"phase"')


class EpochTail:
    """Passes over all other events, of which there are many more."""

    def __init__(self, run: Run) -> None:
        self._path, self._offset, self._store = run.file(EVENTS_FILE), 0, Store()

    def read(self) -> Snapshot:
        """What is known now; without events, nothing."""
        try:
            with open_regular(self._path) as stream:
                stream.seek(self._offset)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    self._take(line)
        except OSError:
            pass  # the log is there without them
        return self._store.snapshot()

    def _take(self, line: bytes) -> None:
        if any(name in line for name in _WANTED) and (event := parse_line(line.decode("utf-8", "replace"))):
            self._store.feed([event])
