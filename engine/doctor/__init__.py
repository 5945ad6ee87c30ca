"""Examines what this machine can do and what is wrong with it, without TensorFlow and within a fixed time even if the
driver hangs; a deep examination also imports TensorFlow, in a separate process.
"""

from __future__ import annotations

import time

from ..finding import Finding
from ..interpreter import installed, interpreter
from ..telemetry import chips as chips
from . import gpu_findings, host_findings, libraries, tensorflow_check
from .gpu_findings import HIDDEN
from .nvml_query import NvmlQuery

__all__ = ["HIDDEN", "Examination", "examine"]

# Starting gputui and ending processes that hang take time as well; in all, 3 and 20 seconds are promised.
PATIENCE_SECONDS, DEEP_PATIENCE_SECONDS = 2.0, 17.0


class Examination:
    """Begins at once; any thread may call `end`. `python` trains, or is its environment; None: without run.python."""

    def __init__(self, deep: bool = False, python: str | None = None) -> None:
        self._python = interpreter.chosen(python)
        interpreter.forget_failures()
        self._deadline = time.monotonic() + (DEEP_PATIENCE_SECONDS if deep else PATIENCE_SECONDS)
        self._child = tensorflow_check.started(self._python) if deep else None
        self._nvml, self._cuda = NvmlQuery(), libraries.started()

    def findings(self) -> list[Finding]:
        """Causes before consequences, after at most 2 s (`deep`: 17 s)."""
        with installed.of(self._python):
            bus, confined = chips.gpus_on_bus(), chips.confined()
            software, missing = list(host_findings.python_packages()), libraries.missing()
            # The driver and TensorFlow have been queried meanwhile.
            seen, cuda = self._nvml.by(self._deadline), libraries.answer(self._cuda, self._deadline)
            there = gpu_findings.present(seen, bus, confined)
            findings = list(gpu_findings.driver_findings(seen, bus, confined, cuda))
            findings += [*gpu_findings.findings(seen, cuda.works), *gpu_findings.choice_findings(seen)]
            if there:
                findings += libraries.findings(cuda, seen.driver, findings)
            findings += [*gpu_findings.iommu_findings(seen, bus or []), *libraries.tensorflow(there), *software]
            findings += libraries.cuda(missing, there)
            findings += libraries.xla([gpu for gpu in seen.gpus if gpu.usable], missing, there)
            if seen.count or gpu_findings.unreadable(seen):
                findings += libraries.libcuda(seen.driver, confined)
            findings += host_findings.findings(seen.count)
            if self._child is not None:
                findings += tensorflow_check.findings(self._child, seen, self._deadline)
            return findings

    def end(self) -> None:
        """End the processes that the examination has started."""
        self._cuda.end()
        if self._child is not None:
            self._child.end()


def examine(deep: bool = False, python: str | None = None) -> list[Finding]:
    """All findings, after at most about 2 s (`deep`, which imports TensorFlow: 17 s)."""
    examination = Examination(deep, python)
    try:
        return examination.findings()
    finally:
        examination.end()
