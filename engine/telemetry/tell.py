"""`python -P -m gputui.engine.telemetry.tell WHAT`: prints as JSON what NVML tells, for a trainer.

A trainer may run in an interpreter without the module that reads NVML (run.python), and a driver that hangs must not
hang it. WHAT is `gpus`, `free INDEX` (bytes of memory) or `beside INDEX ...` (the CPUs beside each GPU).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from . import cpus_beside, machine


def _gpus(_indexes: Sequence[int]) -> Any:
    return asdict(machine.answers())


def _free(indexes: Sequence[int]) -> Any:
    return machine.memory_free_bytes(indexes[0])


def _beside(indexes: Sequence[int]) -> Any:
    return [sorted(cpus) for cpus in cpus_beside.gpus(indexes)]


_TELLING: dict[str, Callable[[Sequence[int]], Any]] = {"gpus": _gpus, "free": _free, "beside": _beside}

if __name__ == "__main__":
    print(json.dumps(_TELLING[sys.argv[1]]([int(word) for word in sys.argv[2:]])))
