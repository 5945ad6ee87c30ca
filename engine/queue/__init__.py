"""The queue: runs and measurements that wait for their devices, and the runner that starts each when its devices are
free.

entries.py (the entries, and what a user does with them), adding.py (puts runs in it), runner.py (a small process of its
own, which decides what is started), start.py (starts one run, in a process of its own), free_devices.py (which devices
are free), fair_share.py (turns among users), queue_settings.py, user_service.py (a systemd unit for the runner).
"""

from __future__ import annotations

import os

from ..files.places import home

FOLDER = "queue"  # in the home folder, as runs/run.py has it


def any_entry() -> bool:
    """Return True if the queue of this home has an entry, also a damaged one. Reads one folder, as every command calls
    it.
    """
    try:
        return any(name.endswith(".json") and not name.startswith(".") for name in os.listdir(home() / FOLDER))
    except OSError:
        return False
