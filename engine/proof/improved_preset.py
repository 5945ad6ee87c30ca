"""Saves the preset with the changes that a proof has kept, laid out like the preset it came from.

The best settings of a search that has not proved them are saved, too: comment and description say that they are not
proved.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files.writing import ExistsError, refuse_existing
from ..options import OPTIONS, by_key
from ..presets import Preset, saving
from ..trials import sentences
from ..trials.bench import with_changes
from . import value_reasons
from .folder import Proof
from .request import ProofError

UNPROVED = "(tuned, not proved)"  # at the end of the description


def preset(proof: Proof) -> Preset:
    """The original preset with all changes that were kept, or that seem faster; raises ProofError where none is."""
    data = proof.data
    taken = sentences.to_take(data)
    if not taken:
        raise ProofError(f"{proof.id} has kept no change: there is nothing to save")
    improved = with_changes(proof.request.baseline(), taken)
    if not sentences.unproved(data):
        return improved
    return replace(improved, description=f"{improved.description} {UNPROVED}".strip())


def save(proof: Proof, path: Path) -> None:
    """Write the preset, with the proven gain at its head, and a comment at each changed value that says why it stands.

    The other comments and the order are those of the original file where there is one. Raises ProofError.
    """
    source = Path(proof.request.source) if proof.request.source else None
    improved = preset(proof)
    told = value_reasons.reasons(proof.data, _values(proof.request.baseline()))
    comments = {(info.group, info.name): told[key] for key, info in by_key(OPTIONS).items() if key in told}
    comments[saving.HEAD] = value_reasons.in_total(proof.data)
    try:
        saving.save_as(improved, path, source if source and source.is_file() else None, comments=comments)
    except saving.SaveError as fault:
        raise ProofError(f"not saved: {fault}") from None


def _values(preset: Preset) -> dict[str, Any]:
    return {key: getattr(getattr(preset.options, info.group), info.name) for key, info in by_key(OPTIONS).items()}


def refuse(path: Path) -> None:
    """Raises ProofError, before anything is measured, for a file that could not be written or found again."""
    if path.suffix not in (".yaml", ".yml"):
        raise ProofError(f"{path}: give a file that ends in .yaml, so that --preset finds it")
    try:
        refuse_existing(path)
    except ExistsError as fault:
        raise ProofError(str(fault)) from None
    if not path.parent.is_dir():
        raise ProofError(f"{path.parent} is not a folder")
