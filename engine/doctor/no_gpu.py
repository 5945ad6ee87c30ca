"""Finds out why TensorFlow sees no GPU on a machine that has some, and returns one finding with a remedy. `python -P -m
gputui.engine.doctor.no_gpu machine PYTHON` prints it as JSON, for a trainer that runs in PYTHON; standard input has
TensorFlow's log. With `log DRIVER` only this log is examined.
"""

from __future__ import annotations

import json
import sys
import time

from ..finding import Finding, errors, worst_first
from ..interpreter import installed
from ..telemetry import chips
from . import gpu_findings, libraries, tensorflow_check
from .nvml_query import NvmlQuery

PATIENCE_SECONDS = 2.0


def reason(log: str = "") -> Finding | None:
    """The first error, or else the first warning, after PATIENCE_SECONDS at most. `log` is TensorFlow's."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    nvml, cuda = NvmlQuery(), libraries.started()
    try:
        findings = list(libraries.tensorflow(True))
        seen, opened = nvml.by(deadline), libraries.answer(cuda, deadline)
    finally:
        cuda.end()
    confined, box = chips.confined(), gpu_findings.Box(seen.driver, cuda_works=opened.works)
    findings += gpu_findings.driver_findings(seen, chips.gpus_on_bus(), confined, opened)
    findings += gpu_findings.hidden(seen, opened.works)
    findings += (finding for gpu in seen.gpus for finding in gpu_findings.hides(gpu, box))
    findings += errors(gpu_findings.choice_findings(seen))
    findings += libraries.findings(opened, seen.driver, findings)
    findings += filter(None, [tensorflow_check.likely(log, seen.driver)])
    findings += libraries.libcuda(seen.driver, confined)
    findings += libraries.cuda(libraries.missing(), True)
    return next((finding for finding in worst_first(findings) if finding.level in ("error", "warning")), None)


if __name__ == "__main__":
    with installed.of(sys.argv[-1]):
        log = sys.stdin.read()
        finding = tensorflow_check.likely(log, sys.argv[2]) if sys.argv[1] == "log" else reason(log)
        print(json.dumps(finding and {"what": finding.what, "remedy": finding.remedy}))
