"""Finds out why TensorFlow sees no GPU on a machine that has some, and returns one finding with a remedy. `python -P -m
gputui.engine.doctor.no_gpu machine PYTHON` prints it as JSON, for a trainer that runs in PYTHON; standard input has
TensorFlow's log. With `log DRIVER` only this log is examined.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

from ..interpreter import installed
from ..telemetry import chips
from . import driver, gpu_findings, libraries, tensorflow_check
from .host_findings import Finding
from .libraries import CudaQuery
from .nvml_query import NvmlQuery

PATIENCE_SECONDS = 2.0
_BLOCKS = ("error", "warning")


def reason(log: str = "") -> str:
    """One line with the remedy, after two seconds at most; empty if no cause is recognized. `log` is TensorFlow's."""
    finding = first(log)
    return "" if finding is None else "; ".join(part for part in (finding.what, finding.remedy) if part)


def first(log: str = "") -> Finding | None:
    """The first error, or else the first warning."""
    findings = list(_causes(log))
    return next((finding for level in _BLOCKS for finding in findings if finding.level == level), None)


def _causes(log: str) -> Iterator[Finding]:
    """Causes before consequences. Starts two short processes and waits PATIENCE_SECONDS at most."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    nvml, cuda = NvmlQuery(), CudaQuery()
    try:
        findings = [*libraries.tensorflow(True)]
        bus, confined = chips.gpus_on_bus(), chips.confined()
        seen = nvml.by(deadline)
        opened = cuda.by(deadline)
        findings += [*driver.findings(seen, bus, confined, opened), *gpu_findings.hidden(seen, opened.works)]
        box = gpu_findings.Box(seen.driver, cuda_works=opened.works)
        findings += (finding for gpu in seen.gpus for finding in gpu_findings.hides(gpu, box))
        findings += (finding for finding in gpu_findings.choice_findings(seen) if finding.level == "error")
        findings += libraries.findings(opened, seen.driver, findings)
        yield from findings
        if (cause := tensorflow_check.likely(log, seen.driver)) is not None:
            yield Finding("error", "TensorFlow", cause.what, cause.remedy)
        yield from libraries.libcuda(seen.driver, confined)
        yield from libraries.cuda(libraries.missing(), True)
    finally:
        cuda.end()


def _finding_for(words: list[str], log: str) -> dict[str, str] | None:
    if words[0] == "log":
        likely = tensorflow_check.likely(log, words[1])
        return {"what": likely.what, "remedy": likely.remedy} if likely else None
    finding = first(log)
    return {"what": finding.what, "remedy": finding.remedy} if finding else None


if __name__ == "__main__":
    with installed.of(sys.argv[-1]):
        print(json.dumps(_finding_for(sys.argv[1:-1], sys.stdin.read())))
