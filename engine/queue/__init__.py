"""The queue: runs and measurements that wait for their devices, and the runner that starts each when its devices are
free. The runner (runner.py) is a small process that chooses an entry (entries.py), which start.py starts in another
process.
"""

from __future__ import annotations

import os

from ..files.places import QUEUE, home


def any_entry() -> bool:
    """Reads one folder only, as every command calls it; True also for a damaged entry."""
    try:
        return any(name.endswith(".json") and not name.startswith(".") for name in os.listdir(home() / QUEUE))
    except OSError:
        return False
