"""Prints a diagnosis: the sentence, its evidence with thresholds and sources, findings, remedies, input stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.diagnosis import label
from ...engine.diagnosis.measurements import stage_ms
from ...engine.table import Table
from ...engine.trials import tables
from ...engine.units import NONE, amount, counted, share
from ..base.errors import clean
from .tables import show_table


def show(diagnosis: Mapping[str, Any]) -> None:
    """Print all parts of a diagnosis that engine.diagnosis has made."""
    print(clean(diagnosis["sentence"]))
    if diagnosis["verdict"] != "undecided":
        print(f"confidence {share(diagnosis['confidence'])}, from {counted(diagnosis['steps'], 'steps')}")
    if diagnosis["evidence"]:
        print()
        show_table(tables.evidence(diagnosis))
    if diagnosis["others"]:
        print(f"\nalso: {', '.join(label(name) for name in diagnosis['others'])}")
    if diagnosis["remedies"]:
        print()
        show_table(tables.remedies(diagnosis).numbered())


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
    show_table(Table(head, rows, right=(2, 3, 4)))
