"""What this machine can do, and what is wrong with it: findings in plain words, each with what to do about it.

Answers without importing TensorFlow, and in a bounded time whatever the driver does; a deep look imports TensorFlow in
a process of its own. Each module looks at one part of the machine and knows nothing of the others.
"""

from __future__ import annotations

from . import gpus, host, libraries, nvml_module, tensorflow_check
from .finding import LEVELS, Finding

__all__ = ["LEVELS", "Finding", "blocks", "examine"]


def examine(deep: bool = False) -> list[Finding]:
    """All findings, in the order of what rests on what."""
    asked = gpus.ask()  # the driver answers while the rest is looked at
    software = [*nvml_module.findings(), *libraries.tensorflow()]
    machine = host.findings()
    seen = gpus.answer(asked, deep)
    found = [*gpus.findings(seen), *software, *libraries.cuda(bool(seen.gpus)), *machine]
    return [*found, *tensorflow_check.findings(seen)] if deep else found


def blocks(found: list[Finding]) -> bool:
    """Whether training as it is meant to be (on the GPUs, where there are any) is not possible."""
    return any(finding.level == "error" for finding in found)
