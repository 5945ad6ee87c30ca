"""The queue: runs and measurements that wait for their devices, and the runner that starts each when its devices are
free. The runner (runner.py) is a small process that chooses an entry (entries.py), which start.py starts in another
process.
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
