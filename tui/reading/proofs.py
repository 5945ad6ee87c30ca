"""The proofs as rows of a table. A proof that has ended is read again only if its file changes. Reading is done in a
thread. Imports no Textual."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial

from ...engine.files import writing
from ...engine.files.reading import written_at
from ...engine.proof import folder
from ...engine.proof.folder import Proof
from ...engine.runs import Run
from ...engine.trials.kinds import kind
from ...engine.trials.record import UNREAD, Record, elapsed_of
from ...engine.trials.search_results import limit_seconds
from ...engine.units import share
from .queue_places import Kept
from .run.reader import RunReader
from .run.snapshot import Snapshot

NOUNS = {"scaling": "scaling", "diagnosis": "diagnosis"}  # shorter than a measurement or a proof of that
_REACHED = re.compile(r"(\d+) of (\d+)")  # in what a measurement says that it does, such as `repeat 2 of 3`


@dataclass(frozen=True)
class ProofEntry:
    """A proof and the content of its proof.json, which is UNREAD if the file cannot be read. `when` is the Unix time of
    its start, and `size` the bytes of its folder, None if not measured yet."""

    proof: Proof
    data: Record = field(default_factory=lambda: UNREAD)
    when: float = 0.0
    size: int | None = None  # bytes on the disk, with all trials; None: not measured yet

    @property
    def state(self) -> str:
        return self.data.state or "crashed"

    @property
    def is_active(self) -> bool:
        return self.state == "running"

    @property
    def noun(self) -> str:
        return NOUNS.get(self.data.kind) or kind(self.data.kind).noun

    @property
    def reached(self) -> str:
        """How far it is: the share of a search's minutes, else the repeat or the ended trials, such as `2 of 3`."""
        if limit := limit_seconds(self.data):
            return share(min(1.0, elapsed_of(self.data) / limit))
        words = _REACHED.search(self.data.doing)
        return words[0] if words else ""

    @property
    def under_way(self) -> str:
        """The words of the header for one that goes on, such as `proof 2/3`."""
        return f"{self.noun} {self.reached.replace(' of ', '/') or 'under way'}"


_kept = Kept[ProofEntry](lambda entry: entry.is_active)  # for all viewers


def all_proofs() -> list[ProofEntry]:
    """Return all proofs, the newest first. Unchanged files of ended proofs are not read again."""
    entries = []
    for proof in folder.proofs():
        stamp = written_at(proof.path / "proof.json"), written_at(proof.queue_file)
        entries.append(_kept.read(str(proof.path), stamp, partial(_entry_of, proof)))
    return entries


def measure() -> bool:
    """Measure changed folders for a short time. True if an entry has another size than before."""
    return _kept.measure(lambda entry: replace(entry, size=writing.used_bytes(entry.proof.path)))


def _entry_of(proof: Proof, earlier: ProofEntry | None) -> ProofEntry:
    return ProofEntry(proof, proof.record, written_at(proof.path / "request.json"), earlier.size if earlier else None)


# ---- a search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProofReading:
    """The content of proof.json and, while a search is running, its newest trial with a snapshot."""

    data: Record = field(default_factory=lambda: UNREAD)
    run: Run | None = None
    trial: Snapshot | None = None


class SearchReader:
    """Reads the record of a search and its running trial, for one viewer."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._reader: RunReader | None = None

    def read(self) -> ProofReading:
        data = self._proof.record
        newest = self._proof.trials[-1:] if data.state == "running" else []
        if not newest:
            self._reader = None
            return ProofReading(data)
        if self._reader is None or self._reader.run != newest[0]:
            self._reader = RunReader(newest[0])
        while self._reader.poll():
            pass
        return ProofReading(data, newest[0], self._reader.picture.snapshot)
