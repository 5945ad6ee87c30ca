"""Saves the preset with the changes that a proof has kept, laid out like the preset it came from."""

from __future__ import annotations

from pathlib import Path

from ..presets import Preset, saving
from ..runs import new_file
from .folder import Proof
from .request import ProofError
from .trial import with_changes


def preset(proof: Proof) -> Preset:
    """The original preset with all changes that were kept; raises ProofError where none was."""
    kept = proof.data.get("changes_kept")
    if not kept:
        raise ProofError(f"{proof.id} has kept no change: there is nothing to save")
    return with_changes(proof.request.baseline(), kept)


def save(proof: Proof, path: Path) -> None:
    """Write the preset; comments and order are those of the original file where there is one. Raises ProofError."""
    source = Path(proof.request.source) if proof.request.source else None
    try:
        saving.save_as(preset(proof), path, source if source and source.is_file() else None)
    except saving.SaveError as fault:
        raise ProofError(f"not saved: {fault}") from None


def refuse(path: Path) -> None:
    """Raises ProofError, before anything is measured, for a file that could not be written or found again."""
    if path.suffix not in (".yaml", ".yml"):
        raise ProofError(f"{path}: give a file that ends in .yaml, so that --preset finds it")
    try:
        new_file.refuse(path)
    except new_file.ExistsError as fault:
        raise ProofError(str(fault)) from None
    if not path.parent.is_dir():
        raise ProofError(f"{path.parent} is not a folder")
