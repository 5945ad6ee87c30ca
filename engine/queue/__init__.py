"""The queue: runs and measurements that wait for their devices. The runner, a small process, chooses the entry that
start.py starts in another process.
"""

from __future__ import annotations

import os

from ..files.places import QUEUE, home


def entry_names() -> list[str]:
    """Reads one folder only, as every command calls it; also those of damaged entries."""
    try:
        return sorted(name[:-5] for name in os.listdir(home() / QUEUE) if name.endswith(".json") and name[0] != ".")
    except OSError:
        return []
