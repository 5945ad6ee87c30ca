"""The evidence of a verdict: figures as sentences, first those of its rules, then figures that explain them."""

from __future__ import annotations

from collections.abc import Sequence

from .. import figures
from ..runs.events import Verdict
from . import clocks
from .measurements import Measurements, stage_ms
from .rules import Finding

HOST_VIEWED = ("python_overhead", "compute_bound", "healthy")  # by host times if the utilization is unknown


def evidence(s: Measurements, verdict: Verdict, mine: Sequence[Finding]) -> list[dict[str, object]]:
    """The rows of evidence: first a row for each finding's figure, then a row for each figure that explains the
    verdict.

    A figure has only one row, except if the GPU's utilization is unknown (`s.unseen`).
    """
    shown = {finding.rule.measurement for finding in mine}
    more = [row for row in _explaining(s, verdict) if row["signal"] not in shown or s.unseen]
    return [*map(_of_finding, mine), *more]


def _of_finding(finding: Finding) -> dict[str, object]:
    rule = finding.rule
    return {
        "signal": rule.measurement,
        "value": round(finding.value, 4),
        "unit": rule.figure.unit,
        "threshold": rule.strong if finding.strong else rule.notable,
        "text": rule.text.format(value=rule.figure.text(finding.value)),
        "source": rule.source,
    }


def _explaining(s: Measurements, verdict: Verdict) -> list[dict[str, object]]:
    """Rows of figures that explain the verdict but have no threshold of their own."""
    rows: list[dict[str, object]] = []
    if s.crowded:
        rows += _row("others_cpu", s.others_cpu, "other programs use {} of the CPU's cores")
    if verdict == "input_bound":
        rows += _about_input(s)
    if verdict in ("imbalance", "throttled") and s.slow_gpu is not None:
        causes = _braced("".join(f"; {cause}" for cause in s.slow_gpu_causes))
        text = f"the others wait for GPU {s.slow_gpu}, which is busy {{}} of the time{causes}"
        rows += _row("slow_gpu_busy", s.slow_gpu_busy, text)
    if verdict == "slow_worker":
        text = f"the others wait for {_braced(s.slow_worker)}, which waits {{}} of its steps for its input"
        rows += _row("slow_worker_wait", s.slow_worker_wait, text)
    if verdict == "communication_bound" and s.exchanged:
        text = f"{s.exchanged} pass between the workers on {_braced(', '.join(s.hosts))} in {{}}"
        rows += _row("exchange_ms", s.exchange_ms, text)
    if verdict == "healthy":
        rows += _row("compute_share", s.compute_share, "TensorFlow's graph takes {} of the step")
    if s.unseen and verdict in HOST_VIEWED:
        rows += _row(
            "compute_share",
            s.compute_share,
            "measured on the host alone: the driver reports no utilization "
            "of this GPU, so the graph's {} of the step may include idle time",
        )
    if verdict in ("low_clocks", "bandwidth_bound", "compute_bound", "healthy") and (clock := clocks.evidence(s)):
        rows += _row("sm_clock_mhz", s.sm_clock_mhz, clock)
    if verdict in ("bandwidth_bound", "compute_bound", "healthy", "underfilled", "python_overhead"):
        rows += _row("sm_active", s.sm_active, "the GPU's multiprocessors work {} of the time")
        rows += _row("tensor_active", s.tensor_active, "its tensor cores work {} of the time")
        rows += _row("mfu", s.mfu, "{} of the chip's peak is reached")
    return rows


def _braced(text: str) -> str:
    """Text with braces doubled, so that it can be part of a format string."""
    return text.replace("{", "{{").replace("}", "}}")


def _about_input(s: Measurements) -> list[dict[str, object]]:
    stage = s.slowest_stage
    rows = []
    if stage is not None:
        calls = f" with {stage['parallelism']} calls at a time" if (stage.get("parallelism") or 1) > 1 else ""
        text = f"its slowest stage is {stage['name']}: {{}} per batch{calls}"
        rows += _row("stage", stage_ms(stage), text)
    rows += _row("buffer_fill", s.buffer_fill, "the prefetch buffer is {} full")
    rows += _row("trainer_cores", s.trainer_cores, f"the training uses {{}} of {s.cpus or 1} CPUs")
    if s.disk_waited_for:
        rows += _row("disk_reads", s.read_bytes_per_second, "the training reads {} from the disk")
    elif (s.io_wait or 0) >= 0.05:
        rows += _row("io_wait", s.io_wait, "CPUs wait {} of the time for the disk")
    return rows


def _row(name: str, value: float | None, text: str) -> list[dict[str, object]]:
    if value is None:
        return []
    figure = figures.measurement(name)
    row = {"signal": name, "value": round(value, 4), "unit": figure.unit, "threshold": None}
    return [row | {"text": text.format(figure.text(value)), "source": "measured"}]
