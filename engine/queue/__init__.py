"""The queue: runs and measurements that wait for their devices, and the runner that starts each when its devices are
free.

entries.py has the entries, entry_changes.py moves, holds and removes them, adding.py puts runs in the queue. runner.py
is a small process of its own that decides which entry is started; interrupted_sweeps.py: sweeps that a restart of the
machine has ended. start.py starts one entry, in another process.
free_devices.py: which devices are free. fair_share.py: turns among users. forecast.py: about when entries start;
durations.py: how long they take. jobs.py: the folder of an entry. queue_settings.py: queue.yaml. user_service.py: a
systemd unit for the runner.

If Slurm starts the runs: slurm_queue.py submits an entry as a job, slurm_job.py is the process of the job, and with
slurm_follower.py the runner follows the jobs.
"""

from __future__ import annotations

import os

from ..files.places import QUEUE, home


def any_entry() -> bool:
    """Return True if the queue of this home has an entry, also a damaged one. Reads one folder, as every command calls
    it.
    """
    try:
        return any(name.endswith(".json") and not name.startswith(".") for name in os.listdir(home() / QUEUE))
    except OSError:
        return False
