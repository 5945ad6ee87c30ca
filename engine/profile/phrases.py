"""Sentences about the figures of a profile, used by the views of a run and of a proof."""

from __future__ import annotations

from collections.abc import Iterator

from ..figures import PROFILE
from ..text import amount, share
from .reports import ProfileReport
from .xprof_tables import Operation

HOST_ON_CPU = "Python, outside the graph"
PLACES = {"GPU": "operations on the GPU", "GPU kernels": "kernels on the GPU", "CPU": "operations on the CPU"}
MOST = 3  # operations in brief
LEAST_SHARE = 0.005  # of the step's parts


def shares(report: ProfileReport) -> Iterator[tuple[str, float]]:
    """The parts of a step that are known, the most interesting first."""
    for field, figure in PROFILE.items():
        value: float | None = getattr(report.shares, field)
        if value is not None:
            yield HOST_ON_CPU if field == "host" and report.device == "CPU" else figure.label, value


def in_brief(report: ProfileReport) -> list[str]:
    """A few lines: the parts of a step, the slowest stage of its input, the operations that take most of the time."""
    parts = ", ".join(f"{words} {share(value)}" for words, value in shares(report) if value >= LEAST_SHARE)
    lines = [f"a step of {amount(report.step_ms)} ms on the {report.device}: {parts}"]
    stage = report.slowest_stage
    if stage is not None:
        lines.append(f"slowest input stage: {stage.name}, {share(stage.share)} of the input's own time")
    if report.operations:
        most = ", ".join(f"{kind(one)} {share(one.share)}" for one in report.operations[:MOST])
        lines.append(f"{PLACES[report.operations_on]} that take most: {most}")
    return lines


def kind(operation: Operation) -> str:
    """The type of an operation, or the operation's own name where its type is unknown."""
    return operation.type or operation.name
