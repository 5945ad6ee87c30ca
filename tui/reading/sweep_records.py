"""The records of sweeps whose trials are among the runs, read from disk and cached while their files do not change."""

from __future__ import annotations

from collections.abc import Collection

from ...engine.proof.folder import Proof, proofs_folder
from ...engine.trials.record import Record


class SweepRecords:
    """Reads the records of sweeps. That of a sweep that has ended is read again only if its file has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Record]] = {}

    def read(self, sweeps: Collection[str]) -> dict[str, Record]:
        """Return the record of each of the sweeps with these ids. UNREAD for one that cannot be read."""
        for name in sweeps:
            proof, former = Proof(proofs_folder() / name), self._known.get(name)
            stamp = _written(proof)
            if former is None or former[0] != stamp or former[1].state in ("running", "waiting"):
                self._known[name] = stamp, proof.record
        return {name: self._known[name][1] for name in sweeps}


def _written(proof: Proof) -> float:
    try:
        return (proof.path / "proof.json").stat().st_mtime
    except OSError:
        return 0.0
