"""The texts about the best epochs of a run: why the training has ended early, and where the best models are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...engine.files.values import whole
from ...engine.options.training import EARLY_STOP, KEEP_BEST
from ...engine.units import amount, counted


def sentences(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences about the best epochs of a run. `summary` is that of its last event, or its result.json. None
    if the options asked for no best epoch, or no epoch has ended."""
    best = {entry["option"]: entry for entry in summary.get("best") or ()}
    early, kept = best.get(EARLY_STOP), best.get(KEEP_BEST)
    same = early and kept and (early["figure"], early["epoch"]) == (kept["figure"], kept["epoch"])
    where = _where(kept)
    if early:
        ends = ", whose weights the model has" if early.get("restores") and summary.get("ended_by") else ""
        ends += where if same else ""
        begin = stopped_early(summary)
        text = _best(early)
        yield f"{begin}; best {text}{ends}" if begin else f"best {early['figure']} {text}{ends}"
    if kept and not same:
        yield f"best {kept['figure']} {_best(kept)}{where}"


def stopped_early(summary: Mapping[str, Any]) -> str:
    """Return why train.early_stop has ended the training: `stopped early after epoch 12: val_loss has not improved for
    5 epochs`. Empty if the training has ended in another way."""
    early = next((entry for entry in summary.get("best") or () if entry["option"] == EARLY_STOP), None)
    epochs = whole(summary.get("epochs"))
    if summary.get("ended_by") != "early_stop" or early is None or epochs is None:
        return ""
    since = counted(epochs - early["epoch"], "epochs")
    return f"stopped early after epoch {epochs}: {early['figure']} has not improved for {since}"


def _best(entry: Mapping[str, Any]) -> str:
    return f"{amount(entry.get('value'))} in epoch {entry['epoch']}"


def _where(kept: Mapping[str, Any] | None) -> str:
    # Such as `, kept in best/epoch-0007.keras and 2 more`.
    files = [item["file"] for item in (kept or {}).get("files") or () if item["file"]]
    if not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f", kept in {files[0]}{more}"
