"""The figures of a diagnosis and of a profile."""

from __future__ import annotations

from .figure import Figure
from .machine import GPU, HOST, _by_key
from .run import RUN

_EVENTS, _XPROF = "the run's events", "XProf"
# Figures of a diagnosis that are not figures of a run, a GPU or the host.
_MEASURED = _by_key(
    Figure("throttled", "throttled", "share", "the part of the time in which heat or a fault slows the GPU down",
           "NVML's violation counters and the reasons in its readings"),
    Figure("clock_share", "clock", "share", "of the highest clock of the multiprocessors, mean while they work",
           "NVML"),
    Figure("power_capped", "at the power limit", "share", "the part of the time in which the power limit holds the "
           "clock down", "NVML's violation counters, or else the reasons in its readings"),
    Figure("memory_growth", "memory growth", "share", "of the memory that TensorFlow may take, from first to last",
           "tf.config.experimental.get_memory_info"),
    Figure("host_memory_growth", "memory growth", "share", "of the host's memory, by the training", "psutil"),
    Figure("memory_peak", "peak memory", "share", "of the memory that TensorFlow may take on the device",
           "tf.config.experimental.get_memory_info"),
    Figure("ablation", "input cost", "share", "the part of the step that vanishes with the input",
           "trials with the input and on one batch that was prepared once"),
    Figure("compute_share", "graph", "share", "the part of the step that is neither input nor Python: kernels, copies "
           "to the device, exchange, and gaps between them", _EVENTS),
    Figure("pauses", "pauses", "share", "the part of the time for evaluation and checkpoints", _EVENTS),
    Figure("uneven", "uneven steps", "times", "step time p95 / step time p50", _EVENTS),
    Figure("communication", "exchange", "share", "the part of the step in collectives", _XPROF),
    Figure("worker_exchange", "exchange between workers", "share", "how long it takes to exchange the gradients of a "
           "step between the workers of several machines, timed alone, compared with the step time",
           "an all-reduce of the same size between two executions / step time"),
    Figure("busy_mean", "GPU busy", "share", "mean of the GPUs that train", "NVML"),
    Figure("busy_p5", "GPU busy p5", "share", "95 of 100 readings are higher", "NVML"),
    Figure("busy_gap", "busy gap", "share", "between the busiest GPU that trains and the idlest", "NVML"),
    Figure("clock_gap", "clock gap", "share", "how far the lowest clock of the GPUs that train is below that of the "
           "others, while they work", "NVML"),
    Figure("slow_gpu_busy", "slow GPU busy", "share", "how busy the GPU is that the others wait for", "NVML"),
    Figure("worker_gap", "worker gap", "share", "by how much more of its steps one worker waits for its input than the "
           "others of its training do", "the workers' runs"),
    Figure("slow_worker_wait", "slow worker waits", "share", "how much of its steps the worker that the others wait "
           "for waits for its input", "that worker's run"),
    Figure("others_cpu", "other programs", "share", "of all cores, by other programs", "psutil"),
    Figure("trainer_cores", "trainer", "cores", "cores that the training uses", "psutil", digits=1),
    Figure("disk_reads", "disk reads", "bytes/s", "what the training reads from the disk", "psutil"),
    Figure("stage", "slowest stage", "ms", "a batch, shared by the calls that run at once", "tf.data's model"),
    Figure("buffer_fill", "prefetch buffer", "share", "how full the last buffer of the input is", "tf.data's model"),
)  # fmt: skip
_ALL = {figure.key: figure for figure in RUN} | GPU | HOST | _MEASURED
# The parts of a step's time, by the fields of Shares (profile/xprof_tables.py).
PROFILE = _by_key(
    Figure("input", "waiting for input", "share", "of the step time", _XPROF),
    Figure("compute", "computing", "share", "of the step time", _XPROF),
    Figure("communication", "exchange between devices", "share", "of the step time", _XPROF),
    Figure("copies", "copies between devices", "share", "of the step time", _XPROF),
    Figure("kernel_launch", "launching kernels", "share", "of the step time", _XPROF),
    Figure("output", "output to the host", "share", "of the step time", _XPROF),
    Figure("host", "host, while the device waits", "share", "of the step time", _XPROF),
)


def measurement(name: str) -> Figure:
    """Return the figure that a rule of the diagnosis uses. Raises KeyError if it is not declared."""
    return _ALL[name]


def is_declared(name: str) -> bool:
    return name in _ALL


def evidence(name: str, unit: str) -> Figure:
    """Return the figure of a piece of evidence; if this version does not declare it with this unit, make a figure from
    `name` and `unit`.
    """
    figure = _ALL.get(name)
    return figure if figure is not None and figure.unit == unit else Figure(name, name.replace("_", " "), unit, "", "")
