"""Names the processes on a GPU, and says which of them is the training.

In a container the driver reports the host's process ids, which inside the container belong to no process or to a
different one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psutil


def described(found: Sequence[Mapping[str, Any]], own_pid: int | None) -> list[dict[str, Any]]:
    """Each process with `name` and `own`; both are None for a process that cannot be seen from here."""
    return [dict(process) | _described(process["pid"], own_pid) for process in found]


def _described(pid: int, own_pid: int | None) -> dict[str, Any]:
    try:
        name = psutil.Process(pid).name()
    except psutil.AccessDenied:
        name = None
    except (psutil.Error, ValueError):
        return {"name": None, "own": None}
    return {"name": name, "own": pid == own_pid}
