"""Prints a diagnosis: the sentence, its evidence with thresholds and sources, findings, remedies, input stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine import figures
from ...engine.diagnosis import label
from ...engine.diagnosis.measurements import stage_ms
from ...engine.trials import sentences
from ...engine.units import NONE, amount, counted, share, times
from ..base.errors import clean
from .tables import Columns, show_table


def show(diagnosis: Mapping[str, Any]) -> None:
    """Print all parts of a diagnosis that engine.diagnosis has made."""
    print(clean(diagnosis["sentence"]))
    if diagnosis["verdict"] != "undecided":
        print(f"confidence {share(diagnosis['confidence'])}, from {counted(diagnosis['steps'], 'steps')}")
    if diagnosis["evidence"]:
        print()
        show_table(Columns(["evidence", "value", "threshold", "source"], [_evidence(e) for e in diagnosis["evidence"]]))
    if diagnosis["others"]:
        print(f"\nalso: {', '.join(label(name) for name in diagnosis['others'])}")
    if diagnosis["remedies"]:
        print()
        rows = [_remedy(number, remedy) for number, remedy in enumerate(diagnosis["remedies"], 1)]
        show_table(Columns(["", "remedy", "reason", "expected"], rows))


def show_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    """Print the input pipeline from its source to its end, and mark the slowest stage; the times consider that calls
    run in parallel.
    """
    times = [stage_ms(stage) for stage in stages]
    slowest = max((time for time in times if time), default=None)
    rows = [
        [
            stage["name"],
            stage.get("op") or NONE,
            amount(time),
            str(stage.get("parallelism") or NONE),
            amount(stage["ms_per_batch"]),
            "slowest" if slowest and time == slowest else "",
        ]
        for stage, time in zip(stages, times, strict=True)
    ]
    head = ["input stage", "operation", "ms from batch to batch", "calls at a time", "ms of work", ""]
    show_table(Columns(head, rows, right=(2, 3, 4)))


def _evidence(evidence: Mapping[str, Any]) -> list[str]:
    figure = figures.evidence(evidence["signal"], evidence["unit"])
    value, threshold = (figure.text(evidence[name]) for name in ("value", "threshold"))
    return [evidence["text"], value, threshold, evidence["source"]]


def _remedy(number: int, remedy: Mapping[str, Any]) -> list[str]:
    gain = remedy.get("expected_gain")
    learns = "; changes what is learnt" if remedy.get("changes_learning") else ""
    what = sentences.changes(remedy["changes"]) if remedy["changes"] else "(advice)"
    return [str(number), what, remedy["reason"] + learns, NONE if gain is None else f"at most {times(gain)}"]
