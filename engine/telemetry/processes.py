"""The processes on a GPU with their names, and which of them is the training.

Separates the driver's numbers from this machine's processes: in a container the driver counts in the host's numbers,
which here belong to nobody or to somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psutil


def described(found: Sequence[Mapping[str, Any]], own_pid: int | None) -> list[dict[str, Any]]:
    """Each with `name` and `own`; both None for a process that cannot be seen from here."""
    return [dict(process) | _described(process["pid"], own_pid) for process in found]


def _described(pid: int, own_pid: int | None) -> dict[str, Any]:
    try:
        name = psutil.Process(pid).name()
    except psutil.AccessDenied:
        name = None
    except (psutil.Error, ValueError):
        return {"name": None, "own": None}
    return {"name": name, "own": pid == own_pid}
