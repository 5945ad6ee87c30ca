from gputui.engine.queue import (
    adding, empty_notice, entries, entry_changes, fair_share, free_devices, interrupted_sweeps, jobs, queue_settings,
    runner, slurm_follower, slurm_job, start,
)
from gputui.engine.queue.durations import Durations
from gputui.engine.queue.entries import Entry
from gputui.engine.queue.fair_share import FairShare
from gputui.engine.queue.forecast import Begun, Expected, start_times
from gputui.engine.queue.free_devices import CPU, Device, DeviceReader
from gputui.engine.queue.jobs import SLURM_LOG
from gputui.engine.queue.queue_settings import Settings
from gputui.engine.queue.runner import BEGUN, NOT_FREE, REFUSED, Runner
