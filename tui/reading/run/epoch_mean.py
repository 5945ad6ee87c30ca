"""A run's loss or metric that all views show: of an ended run the mean over its last complete epoch, as Keras reports
it (result.json), or up to the end; of a running run the mean so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....engine.files.values import mapping, number
from .snapshot import Snapshot

WHOLE, UNFINISHED, SO_FAR = "last whole epoch", "epoch not finished", "epoch so far"


@dataclass(frozen=True)
class EpochMean:
    """The mean of a loss or metric; None if there is none. `steps` names in a word the steps of which it is the
    mean."""

    value: float | None = None
    steps: str = ""


def of_result(summary: Mapping[str, Any], name: str = "loss") -> EpochMean:
    value = number(mapping(summary.get("metrics")).get(name))
    if value is None:
        return EpochMean()
    return EpochMean(value, WHOLE if number(summary.get("epochs")) else UNFINISHED)


def of_progress(progress: Mapping[str, Any], name: str = "loss") -> EpochMean:
    value = number(progress.get("loss") if name == "loss" else mapping(progress.get("metrics")).get(name))
    return EpochMean(value, SO_FAR) if value is not None else EpochMean()


def latest(summary: Mapping[str, Any], progress: Mapping[str, Any], name: str = "loss") -> EpochMean:
    """Return the mean of a loss or metric: that of the result `summary`, else that of the newest `progress`."""
    mean = of_result(summary, name)
    if mean.value is not None:
        return mean
    so_far = of_progress(progress, name)
    return EpochMean(so_far.value, UNFINISHED) if so_far.value is not None and summary else so_far


def of_run(now: Snapshot, name: str = "loss") -> EpochMean:
    """Return the mean that the live view and the table of runs show for this run."""
    return latest(now.summary if now.outcome is not None else {}, now.progress, name)
