"""The profiles of compared runs (`run.profile`) as figures in ms of a step: the step and its parts, then the layers or,
where a run has no times of layers, the kinds of operations; of these the MOST that differ most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..figures import Figure
from ..profile import reports
from ..profile.reports import ProfileError, ProfileReport
from ..runs import Run
from .comparison import Comparison, figure_row

MOST = 12
Times = dict[str, float]  # in ms of a step, by name


def are_in(runs: Sequence[Run]) -> bool:
    """Return True if two of the runs have a profile."""
    return sum(run.file("profile").is_dir() for run in runs) > 1


def with_profiles(comparison: Comparison, runs: Sequence[Run]) -> Comparison:
    """Return the comparison of these runs with the figures of their profiles, and a note why a run has none. XProf
    takes some seconds for each.
    """
    profiled, notes = list[ProfileReport | None](), list[str]()
    for run in runs:
        try:
            profiled.append(reports.read(run))
        except ProfileError as reason:
            profiled.append(None)
            notes.append("; ".join(str(reason).splitlines()))
    of_layers = all(report is None or report.layers for report in profiled)
    parts = [_parts(report) if report else {} for report in profiled]
    pieces = [_pieces(report, of_layers) if report else {} for report in profiled]

    def spread(name: str) -> float:
        each = [times.get(name, 0.0) for times in pieces if times]
        return max(each) - min(each)

    names = [*dict.fromkeys(name for times in parts for name in times)]
    names += sorted({name for times in pieces for name in times}, key=lambda name: (-spread(name), name))[:MOST]
    of_runs = [part | piece for part, piece in zip(parts, pieces, strict=True)]
    rows = [
        figure_row(Figure(name, name, "ms", "", "XProf", more_is_better=False), of_runs, comparison.groups)
        for name in names
    ]
    return replace(comparison, figures=(*comparison.figures, *rows), notes=(*comparison.notes, *notes))


def _parts(report: ProfileReport) -> Times:
    return {"profiled step": report.step_ms} | {
        f"profiled {words}": part * report.step_ms for words, part in reports.shares(report)
    }


def _pieces(report: ProfileReport, of_layers: bool) -> Times:
    times: Times = {}
    if of_layers:
        pieces = [(f"layer {layer.name}", layer.forward_ms + layer.backward_ms) for layer in report.layers or ()]
    else:
        pieces = [(f"operation {reports.kind(each)}", each.ms) for each in report.operations]
    for name, ms in pieces:
        times[name] = times.get(name, 0.0) + ms / report.steps
    return times
