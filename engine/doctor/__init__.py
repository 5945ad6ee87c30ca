"""Examines what this machine can do and what is wrong with it, and returns findings with remedies in plain words.

The examination does not import TensorFlow and ends within a fixed time even if the driver hangs. A deep examination
also imports TensorFlow, in a separate process. Each module examines one part of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..interpreter import installed, interpreter
from ..telemetry import chips as chips
from . import driver, gpu_findings, host_findings, libraries, python_packages, tensorflow_check, visible_gpus
from .host_findings import LEVELS, Finding
from .libraries import CudaQuery
from .nvml_query import NvmlAnswers, NvmlQuery
from .visible_gpus import HIDDEN

__all__ = ["HIDDEN", "LEVELS", "Examination", "Finding", "blocks", "examine"]

# Starting gputui and ending processes that hang take time as well; in all, 3 and 20 seconds are promised.
PATIENCE_SECONDS, DEEP_PATIENCE_SECONDS = 2.0, 17.0


class Examination:
    """One examination of the machine, which begins when the object is created. Any thread may call `end`.

    `python` is the path of the interpreter that trains, or its environment; by default the one that trains if
    run.python is not set. `deep` also imports TensorFlow, in another process.
    """

    def __init__(self, deep: bool = False, python: str | None = None) -> None:
        self._python = interpreter.chosen(python)
        interpreter.forget_failures()
        self._deadline = time.monotonic() + (DEEP_PATIENCE_SECONDS if deep else PATIENCE_SECONDS)
        self._child = tensorflow_check.started(self._python) if deep else None
        self._nvml, self._cuda = NvmlQuery(), CudaQuery()

    def findings(self) -> list[Finding]:
        """Return all findings, causes before consequences, after at most 2 s (`deep`: 17 s).

        The driver and TensorFlow are queried while other parts are examined.
        """
        with installed.of(self._python):
            return self._findings()

    def _findings(self) -> list[Finding]:
        bus, confined = chips.gpus_on_bus(), chips.confined()
        software = [
            *python_packages.nvml_module_findings(),
            *python_packages.bytecode_findings(),
            *python_packages.tensorboard_findings(),
        ]
        missing = libraries.missing()
        seen, cuda = self._nvml.by(self._deadline), self._cuda.by(self._deadline)
        there = driver.present(seen, bus, confined)
        findings = [*driver.findings(seen, bus, confined, cuda), *gpu_findings.findings(seen, cuda.works)]
        findings += visible_gpus.findings(seen)
        if there:
            findings += libraries.findings(cuda, seen.driver, findings)
        findings += [*gpu_findings.iommu_findings(seen, bus or []), *libraries.tensorflow(there), *software]
        findings += [
            *libraries.cuda(missing, there),
            *libraries.cudnn([gpu for gpu in seen.gpus if gpu_findings.usable(gpu)], there),
        ]
        findings += libraries.xla_tools(missing, there)
        if seen.count or driver.unreadable(seen):
            findings += libraries.libcuda(seen.driver, confined)
        return [*findings, *host_findings.findings(seen.count), *self._tensorflow(seen)]

    def _tensorflow(self, seen: NvmlAnswers) -> Iterator[Finding]:
        if self._child is not None:
            yield from tensorflow_check.findings(self._child, seen, self._deadline)

    def end(self) -> None:
        """End the processes that the examination has started."""
        self._cuda.end()
        if self._child is not None:
            self._child.end()


def examine(deep: bool = False, python: str | None = None) -> list[Finding]:
    """Examine the machine, and return all findings, after at most about 2 s (`deep`: 17 s).

    `deep` also imports TensorFlow, in another process. `python` is the interpreter that trains, as for `Examination`.
    """
    examination = Examination(deep, python)
    try:
        return examination.findings()
    finally:
        examination.end()


def blocks(findings: list[Finding]) -> bool:
    """Return True if one of the findings is an error.

    An error prevents the intended training: on the GPUs if the machine has some, else on the CPU.
    """
    return any(finding.level == "error" for finding in findings)
