"""How much of the speed of more replicas arrives: the throughput of n replicas over n times that of one.

Speeds are samples per second, in which the larger global batch of more replicas is counted already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import text
from ..files.values import whole


def efficiency(times_as_fast: float, times_as_many: float) -> float:
    """1 where the speed grows as the replicas do."""
    return times_as_fast / times_as_many


def of_comparison(comparison: Mapping[str, Any]) -> str:
    """`2 replicas instead of 1: an efficiency of 92 %`; nothing where the replicas are as many, or not known."""
    a, b = (_replicas(comparison.get("trials") or (), side) for side in "ab")
    gain = comparison.get("gain")
    if a is None or b is None or a == b or gain is None:
        return ""
    found = efficiency(1 + gain, b / a)
    return f"{b} replica{'s' if b > 1 else ''} instead of {a}: an efficiency of {text.share(found)}"


def _replicas(trials: Iterable[Mapping[str, Any]], side: str) -> int | None:
    """Those of a side, where all its good trials had as many."""
    found = {whole(one.get("replicas")) for one in trials if one.get("side") == side and one.get("outcome") == "ok"}
    return found.pop() if len(found) == 1 else None
