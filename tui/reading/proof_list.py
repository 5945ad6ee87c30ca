"""The proofs as rows of a table; a proof that has ended is read again only when its file changes.

Reading is done in a thread. Imports no Textual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...engine.proof import folder
from ...engine.proof.folder import Proof


@dataclass(frozen=True)
class ProofEntry:
    """A proof with what its proof.json says; empty where that cannot be read."""

    proof: Proof
    data: Mapping[str, Any] = field(default_factory=dict)
    when: float = 0.0

    @property
    def state(self) -> str:
        return str(self.data.get("state") or "crashed")

    @property
    def goes_on(self) -> bool:
        return self.state == "running"


class ProofList:
    """Reads all proofs."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, ProofEntry]] = {}

    def read(self) -> list[ProofEntry]:
        """The newest first."""
        found: dict[str, tuple[float, ProofEntry]] = {}
        for proof in folder.proofs():
            changed = _changed(proof, "proof.json")
            known = self._known.get(proof.id)
            if known is None or known[0] != changed or known[1].goes_on:
                known = (changed, ProofEntry(proof, proof.data, _changed(proof, "request.json")))
            found[proof.id] = known
        self._known = found
        return [entry for _, entry in found.values()]


def _changed(proof: Proof, name: str) -> float:
    try:
        return (proof.path / name).stat().st_mtime
    except OSError:
        return 0.0
