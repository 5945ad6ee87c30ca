"""Names the processes on a GPU, and says which of them is the training.

In a container the driver reports the host's process ids, which inside the container belong to no process or to a
different one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psutil

_MPS = "nvidia-cuda-mps"  # its server holds the GPU, and takes many processes


def described(found: Sequence[Mapping[str, Any]], own_pid: int | None) -> list[dict[str, Any]]:
    """Each process with `name` and `own`; both are None for a process that cannot be seen from here."""
    return [dict(process) | _described(process["pid"], own_pid) for process in found]


def named(process: Mapping[str, Any]) -> str:
    """A described process for people."""
    return f"{process['name'] or 'process'} {process['pid']}"


def sole(processes: Sequence[Mapping[str, Any]]) -> str:
    """The process that keeps all others from a GPU in exclusive mode; none where CUDA's MPS shares it out."""
    shared = any((process["name"] or "").startswith(_MPS) for process in processes)
    return named(processes[0]) if processes and not shared else ""


def _described(pid: int, own_pid: int | None) -> dict[str, Any]:
    try:
        name = psutil.Process(pid).name()
    except psutil.AccessDenied:
        name = None
    except (psutil.Error, ValueError):
        return {"name": None, "own": None}
    return {"name": name, "own": pid == own_pid}
