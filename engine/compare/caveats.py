"""What cannot be compared honestly: runs of another model, other data, another batch, or as many samples again.

Separates what the figures may say of each other from the figures. Each rule gives a sentence where it applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..files.values import number

Options = Mapping[str, Any]
Figures = Mapping[str, float]
SAME_SAMPLES = 0.01  # of the most: an epoch's last batch may be a smaller one
ONE_REPLICA = ("single", "one_device")


def caveats(options: Sequence[Options], results: Sequence[Figures], states: Sequence[str]) -> list[str]:
    """Sentences about runs in the order in which they are compared, the baseline first."""
    known = [of_run for of_run in options if of_run]
    batches = [_global_batch(*run) for run in zip(options, results, strict=True)]
    said = (_baseline(results[0], states[0]), _workload(known), _one_batch(known), _batch(batches),
            _samples(results, batches))
    return [text for text in said if text]


def _baseline(result: Figures, state: str) -> str:
    return "" if result else f"the baseline has no figures to measure against (it is {state})"


def _workload(options: Sequence[Options]) -> str:
    keys = [key for key in options[0] if key.startswith("workload.")] if options else []
    differing = [key for key in keys if any(of_run.get(key) != options[0][key] for of_run in options)]
    if not differing:
        return ""
    return f"the work is not the same ({', '.join(differing)}): speed and loss are of different models or data"


def _one_batch(options: Sequence[Options]) -> str:
    if not any(of_run.get("input.one_batch") for of_run in options):
        return ""
    return "input.one_batch trains on one batch again and again: what the speed could be, and a loss that says nothing"


def _batch(batches: Sequence[float | None]) -> str:
    sizes = dict.fromkeys(batch for batch in batches if batch is not None)
    if len(sizes) < 2:
        return ""
    return f"the global batches are not the same ({_amounts(sizes)} samples): steps are of different amounts of work"


def _samples(results: Sequence[Figures], batches: Sequence[float | None]) -> str:
    """Losses, and other metrics, are of the same training only after the same number of samples."""
    seen = {
        result["steps"] * batch: None
        for result, batch in zip(results, batches, strict=True)
        if batch is not None and result.get("steps") and any(key.startswith("metrics.") for key in result)
    }
    if len(seen) < 2 or max(seen) - min(seen) <= SAME_SAMPLES * max(seen):
        return ""
    return f"the losses are after different numbers of samples ({_amounts(seen)}): they do not tell which learns better"


def _global_batch(options: Options, result: Figures) -> float | None:
    """Samples in a step; the option is of one replica."""
    told = result.get("global_batch_size")
    if told is not None:
        return told
    batch = number(options.get("input.batch_size"))
    return batch if options.get("strategy.kind") in ONE_REPLICA else None


def _amounts(numbers: Mapping[float, None]) -> str:
    return ", ".join(f"{number:,.0f}" for number in numbers)
