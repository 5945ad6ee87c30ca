"""The tables of proofs, searches and scaling: made once here, drawn as columns on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import figures
from ..diagnosis.measurements import stage_ms
from ..text_table import Code, Table
from ..units import NONE, amount, change, spread, times
from . import proof_sentences, scaling_sentences
from .record import Comparison, Record, Trial

_FIGURES = figures.shown("trial")


def settings(changed: Mapping[str, Any]) -> str:
    return Code(proof_sentences.changes(changed)) if changed else ""


# ---- trials and comparisons ----------------------------------------------------------------------


def trials(titled: Iterable[tuple[str, Trial]], head: str = "side") -> Table:
    """Return a table of trials with their titles, failed ones included, without figures that no trial has."""
    rows = list(titled)
    columns = [figure for figure in _FIGURES if any(trial.figure(figure.key) is not None for _, trial in rows)]
    cells = [
        [
            trial.run,
            title,
            str(trial.repeat),
            *(figure.bare(trial.figure(figure.key)) for figure in columns),
            proof_sentences.outcome(trial),
        ]
        for title, trial in rows
    ]
    of_figures = range(3, 3 + len(columns))
    names = ["trial", head, "repeat", *(figure.head for figure in columns), "outcome"]
    return Table(names, cells, right=(2, *of_figures), spare=of_figures)


def comparisons(rows: Sequence[Comparison]) -> Table:
    """Return a table of the comparisons: the change, its gain and spread, and the decision with its reason."""
    cells = [
        [
            proof_sentences.changes(comparison.changes),
            change(comparison.gain),
            spread(comparison.spread),
            at_most(comparison.expected_gain),
            comparison.decision,
            comparison.why,
        ]
        for comparison in rows
    ]
    return Table(["change", "gain", "spread", "expected", "decision", "why"], cells, right=(1, 2))


def at_most(expected_gain: float | None) -> str:
    """Return `at most 2.5 times` for the greatest possible speed-up. A dash if it is not known."""
    return NONE if expected_gain is None else f"at most {times(expected_gain)}"


def before_and_after(data: Record, names: tuple[str, str] = ("before", "after")) -> Table:
    """Return a table of the medians of both sides, whose `names` are the heads."""
    before, after = data.before or {}, data.after or {}
    rows = [
        [figure.head, *(figure.bare(side.get(figure.key)) for side in (before, after))]
        for figure in _FIGURES
        if before.get(figure.key) is not None or after.get(figure.key) is not None
    ]
    return Table(["median", *names], rows, right=(1, 2))


def scaling(data: Record) -> Table:
    """Return a table of replicas or copies; if one has failed, the last column is the outcome."""
    points, head = scaling_sentences.points(data), list(scaling_sentences.head(data))
    rows = [scaling_sentences.row(point) for point in points]
    figures_at = range(len(head))
    if any(map(scaling_sentences.outcome, points)):
        head.append("outcome")
        rows = [[*row, scaling_sentences.outcome(point) or NONE] for row, point in zip(rows, points, strict=True)]
    return Table(head, rows, right=figures_at)


# ---- a diagnosis ---------------------------------------------------------------------------------


def evidence(diagnosis: Mapping[str, Any]) -> Table:
    """Return a table of the figures that a diagnosis rests on, with their thresholds and sources."""
    rows = []
    for piece in diagnosis["evidence"]:
        figure = figures.evidence(piece["signal"], piece["unit"])
        value, threshold = figure.text(piece["value"]), figure.text(piece.get("threshold"))
        rows.append([piece["text"], value, threshold, piece["source"]])
    return Table(["evidence", "value", "threshold", "source"], rows)


def remedies(diagnosis: Mapping[str, Any]) -> Table:
    """Return a table of the remedies of a diagnosis, each with its reason and greatest possible speed-up."""
    rows = []
    for remedy in diagnosis["remedies"]:
        learns = "; changes what is learnt" if remedy.get("changes_learning") else ""
        what = settings(remedy["changes"]) or "(advice)"
        rows.append([what, remedy["reason"] + learns, at_most(remedy.get("expected_gain"))])
    return Table(["remedy", "reason", "expected"], rows)


def input_stages(stages: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the stages of the input pipeline from its source, the slowest marked, with the milliseconds
    from one batch to the next, which takes parallel calls into account.
    """
    times = [stage_ms(stage) for stage in stages]
    slowest = max((time for time in times if time), default=None)
    rows = [
        [
            stage["name"],
            stage.get("op") or NONE,
            amount(time),
            str(stage.get("parallelism") or NONE),
            amount(stage.get("ms_per_batch")),
            "slowest" if slowest and time == slowest else "",
        ]
        for stage, time in zip(stages, times, strict=True)
    ]
    head = ["input stage", "operation", "ms from batch to batch", "calls at a time", "ms of work", ""]
    return Table(head, rows, right=(2, 3, 4))
