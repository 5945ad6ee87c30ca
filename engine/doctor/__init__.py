"""What this machine can do, and what is wrong with it: findings in plain words, each with what to do about it.

Answers without importing TensorFlow, and in a bounded time whatever the driver does; a deep look imports TensorFlow in
a process of its own. Each module looks at one part of the machine and knows little of the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from . import bytecode, driver, gpus, hardware, host, libraries, nvml_module, tensorflow_check
from .finding import LEVELS, Finding
from .nvml_query import NvmlAnswers, NvmlQuery

__all__ = ["LEVELS", "Examination", "Finding", "blocks", "examine"]

# Starting gputui and ending what hangs come on top: 3 and 20 seconds are promised.
PATIENCE_SECONDS, DEEP_PATIENCE_SECONDS = 2.0, 17.0


class Examination:
    """One look at the machine, which begins when this is made; `end` may be called by any thread."""

    def __init__(self, deep: bool = False) -> None:
        self._deadline = time.monotonic() + (DEEP_PATIENCE_SECONDS if deep else PATIENCE_SECONDS)
        self._child = tensorflow_check.Child() if deep else None
        self._nvml = NvmlQuery()

    def findings(self) -> list[Finding]:
        """In the order of what rests on what. Driver and TensorFlow are waited for while the rest is looked at."""
        bus, confined = hardware.gpus_on_bus(), hardware.confined()
        software = [*nvml_module.findings(), *libraries.tensorflow(), *bytecode.findings()]
        machine, missing = list(host.findings()), libraries.missing()
        seen = self._nvml.by(self._deadline)
        found = [*driver.findings(seen, bus, confined), *gpus.findings(seen), *software]
        found += libraries.cuda(missing, driver.present(seen, bus))
        if seen.count:
            found += libraries.libcuda(seen.driver, confined)
        return [*found, *machine, *self._tensorflow(seen)]

    def _tensorflow(self, seen: NvmlAnswers) -> Iterator[Finding]:
        if self._child is not None:
            yield from tensorflow_check.findings(self._child, seen, self._deadline)

    def end(self) -> None:
        """Leave nothing running."""
        if self._child is not None:
            self._child.end()


def examine(deep: bool = False) -> list[Finding]:
    """All findings."""
    examination = Examination(deep)
    try:
        return examination.findings()
    finally:
        examination.end()


def blocks(found: list[Finding]) -> bool:
    """Whether training as it is meant to be (on the GPUs, where there are any) is not possible."""
    return any(finding.level == "error" for finding in found)
