"""The proofs as rows of a table. A proof that has ended is read again only if its file changes. Reading is done in a
thread. Imports no Textual."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ...engine.files import writing
from ...engine.files.reading import written_at
from ...engine.proof import folder
from ...engine.proof.folder import Proof, proofs_folder
from ...engine.runs import Run
from ...engine.trials.record import UNREAD, Record
from .run.reader import RunReader
from .run.snapshot import Snapshot


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


class ProofList:
    """Reads all proofs, and measures the sizes of their folders."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, ProofEntry]] = {}
        self._to_measure: dict[str, None] = {}

    def read(self) -> list[ProofEntry]:
        """Return all proofs, the newest first. Unchanged files of ended proofs are not read again."""
        entries: dict[str, tuple[object, ProofEntry]] = {}
        for proof in folder.proofs():
            changed = written_at(proof.path / "proof.json"), written_at(proof.queue_file)
            kept = self._known.get(proof.id)
            if kept is None or kept[0] != changed or kept[1].is_active:
                size = kept[1].size if kept else None
                kept = (changed, ProofEntry(proof, proof.record, written_at(proof.path / "request.json"), size))
                self._to_measure[proof.id] = None
            entries[proof.id] = kept
        self._known = entries
        return [entry for _, entry in entries.values()]

    def measure(self) -> bool:
        """Measure the size of one changed proof's folder. Return True if the list is to be read again at once: the size
        has changed, or there are more to measure."""
        name = next(iter(self._to_measure), "")
        self._to_measure.pop(name, None)
        if name not in self._known:
            return bool(self._to_measure)
        changed, entry = self._known[name]
        self._known[name] = changed, replace(entry, size=writing.used_bytes(entry.proof.path))
        return self._known[name][1].size != entry.size or bool(self._to_measure)


# ---- a search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProofReading:
    """The content of proof.json and, while the search is running, the run of its newest trial and this run's
    snapshot."""

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


class SweepRecords:
    """Reads the records of sweeps. That of a sweep that has ended is read again only if its file has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Record]] = {}

    def read(self, sweeps: Collection[str]) -> dict[str, Record]:
        """Return the record of each of the sweeps with these ids. UNREAD for one that cannot be read."""
        for name in sweeps:
            proof, former = Proof(proofs_folder() / name), self._known.get(name)
            stamp = written_at(proof.path / "proof.json")
            if former is None or former[0] != stamp or former[1].state in ("running", "waiting"):
                self._known[name] = stamp, proof.record
        return {name: self._known[name][1] for name in sweeps}
