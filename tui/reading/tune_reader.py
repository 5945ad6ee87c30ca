"""Reads a search as it is made: its proof.json, and the run of the trial that is being measured.

Reading is done in a thread. Imports no Textual.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...engine.proof.folder import Proof
from ...engine.runs import Run
from ...engine.trials.record import UNREAD, Record
from .run.reader import RunReader
from .run.snapshot import Snapshot


@dataclass(frozen=True)
class SearchReading:
    """The content of proof.json. While the search is running, also the newest trial's run and its snapshot."""

    data: Record = field(default_factory=lambda: UNREAD)
    run: Run | None = None
    trial: Snapshot | None = None


class SearchReader:
    """Reads one search for one viewer."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._reader: RunReader | None = None

    def read(self) -> SearchReading:
        data = self._proof.record
        newest = self._proof.trials[-1:] if data.state == "running" else []
        if not newest:
            self._reader = None
            return SearchReading(data)
        if self._reader is None or self._reader.run != newest[0]:
            self._reader = RunReader(newest[0])
        while self._reader.poll():
            pass
        return SearchReading(data, newest[0], self._reader.picture.snapshot)
