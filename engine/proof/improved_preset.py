"""Saves the preset with the kept changes, laid out as its file, each value with a comment why it was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import units
from ..files.writing import ExistsError, refuse_existing
from ..options import BY_KEY
from ..presets import Preset, saving
from ..trials import proof_sentences
from ..trials.record import Record, search_of
from ..trials.search_results import BATCH, leading_to, together
from ..trials.trial_preset import with_changes
from .folder import Proof
from .request import ProofError

UNPROVED = "(tuned, not proved)"  # at the end of the description


def preset(proof: Proof) -> Preset:
    """Return the preset with the kept changes, or what seems faster, as UNPROVED. Raises ProofError."""
    data = proof.record
    taken = proof_sentences.to_take(data)
    if not taken:
        raise ProofError(f"{proof.id} has kept no change: there is nothing to save")
    improved = with_changes(proof.request.baseline(), taken)
    if not proof_sentences.unproved(data):
        return improved
    return replace(improved, description=f"{improved.description} {UNPROVED}".strip())


def save(proof: Proof, path: Path) -> None:
    """Write that preset, laid out as its file, with its gain and a comment at each change. Raises ProofError."""
    source = Path(proof.request.source) if proof.request.source else None
    improved = preset(proof)
    record = proof.record
    why = reasons(record, proof.request.baseline().options.values())
    comments = {(info.group, info.name): why[key] for key, info in BY_KEY.items() if key in why}
    comments[saving.HEAD] = in_total(record)
    try:
        saving.save_as(improved, path, source if source and source.is_file() else None, comments=comments)
    except saving.SaveError as fault:
        raise ProofError(f"not saved: {fault}") from None


def refuse(path: Path) -> None:
    """Raise ProofError if `path` exists, lies in no folder, or has no name of a preset that --preset finds."""
    if path.suffix not in (".yaml", ".yml"):
        raise ProofError(f"{path}: give a file that ends in .yaml, so that --preset finds it")
    try:
        refuse_existing(path)
    except ExistsError as fault:
        raise ProofError(str(fault)) from None
    if path.is_dir():  # an empty one, which `refuse_existing` accepts
        raise ProofError(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise ProofError(f"{path.parent} is not a folder")


# ---- why each changed value was chosen -----------------------------------------------------------


_LEARNING_RATE = {"linear": "in proportion to the batch size", "sqrt": "by the square root of the batch size"}


def reasons(data: Record, before: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each saved key with a known reason, the comment why its value was chosen."""
    comments = {key: next(_reasons(key, data, before), "") for key in proof_sentences.to_take(data)}
    return {key: reason for key, reason in comments.items() if reason}


def in_total(data: Record) -> str:
    """Return a sentence about the gain of all changes together by pairs (of a range test: about the losses). It says if
    nothing is proved, or the preset runs out of memory.
    """
    if settings := proof_sentences.unproved(data):
        return f"{proof_sentences.changes(settings)}: {proof_sentences.not_proved(data)}"
    if data.rate is not None or data.sweep is not None or data.scaling is not None:
        return proof_sentences.result(data)
    if data.gain_total is None:
        return "the preset that it was made from runs out of memory" if data.kind == "tune" else ""
    proven = [comparison for comparison in data.comparisons if comparison.decision in ("kept", "faster")]
    alone = proven[0].spread if len(proven) == 1 else None
    noise = "" if alone is None else f" (spread {units.spread(alone)})"
    return f"{proof_sentences.speedup(data)} as the preset that it was made from, by pairs of trials{noise}"


def _reasons(key: str, data: Record, before: Mapping[str, Any]) -> Iterator[str]:
    """The most exact comment first; the gain of a candidate, from one short trial, is no proof."""
    value, search = proof_sentences.to_take(data)[key], search_of(data)
    limits, was = search.limits, proof_sentences.value(before.get(key))
    if data.rate is not None:
        yield data.rate.reason
    # the learning rate and its schedule follow from the batch size, and no candidate tries them
    if key.startswith("train.") and limits.learning_rate in _LEARNING_RATE:
        if key == "train.learning_rate":
            yield f"scaled {_LEARNING_RATE[limits.learning_rate]}"
        elif key == "train.warmup_steps" and limits.warmup_steps is not None:
            yield "asked for, with the scaled learning rate"
        yield "as many samples as before, with another batch size"
    if key == BATCH:
        worse = [check.settings.get(BATCH) for check in search.losses if check.decision == "worse"]
        for check in search.losses:
            if worse and check.settings.get(BATCH) == value and check.decision == "no worse":
                losses = f"{check.of} loss {units.amount(check.loss_b)}, {units.amount(check.loss_a)} with the preset's"
                yield f"{proof_sentences.value(worse[0])} is faster and learns worse; {losses}"
        if data.kind == "tune" and data.gain_total is None and data.changes_kept:
            yield f"{was} runs out of memory"
    yield from _proven(key, data, was, alone=True)
    kept = [candidate for candidate in search.candidates if candidate.decision == "kept" and candidate.tried]
    # also candidates whose change of another option was taken back by one that tried `key`
    of_key = [candidate for candidate in kept if key in candidate.tried]
    taken_back = {
        name for candidate in of_key for name, of in candidate.tried.items() if name != key and of == before.get(name)
    }
    about = [candidate for candidate in kept if candidate in of_key or taken_back & set(candidate.tried)]
    if chain := leading_to({key: value}, about):
        tried = {name: of for candidate in chain for name, of in candidate.tried.items()}
        others = {name: of for name, of in tried.items() if name != key and of != before.get(name)}
        beside = f"with {proof_sentences.changes(others)}" if others else "alone"
        how = ", without input" if chain[-1].without_input else ""
        yield f"tried {beside}: {_faster(was, *together(chain), how)}"
    yield from _proven(key, data, was, alone=False)


def _proven(key: str, data: Record, was: str, alone: bool) -> Iterator[str]:
    for comparison in data.comparisons:
        if comparison.decision in ("kept", "faster") and key in comparison.changes and comparison.gain is not None:
            others = {name: of for name, of in comparison.changes.items() if name != key}
            beside = f", with {proof_sentences.changes(others)}" if others else ""
            if not (alone and others):
                yield f"{_faster(was, comparison.gain, comparison.spread, ' of the pairs')}{beside}"


def _faster(was: str, gain: float | None, spread: float | None, how: str) -> str:
    # `1.52 times as fast as 32 (spread 4.2 %)`
    noise = "" if spread is None else f" (spread {units.spread(spread)}{how})"
    return f"{units.times(1 + (gain or 0.0))} as fast as {was}{noise}"
