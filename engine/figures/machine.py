"""The figures of GPUs and of the host, which the engine reads during a run."""

from __future__ import annotations

from .figure import Figure, View

_NVML, _GPM, _PSUTIL = "NVML", "NVML's GPU performance monitoring (GPM)", "psutil"
_HISTORY: tuple[View, ...] = ("history",)


def _by_key(*figures: Figure) -> dict[str, Figure]:
    return {figure.key: figure for figure in figures}


GPU = _by_key(
    Figure("busy", "busy", "share", "the part of the time in which a kernel ran", _NVML, shown=_HISTORY),
    Figure("memory_busy", "memory controller", "share",
           "the part of the time in which the memory controller read or wrote the GPU's memory", _NVML, narrow="mem"),
    Figure("memory_used_bytes", "memory", "bytes", "memory in use, by whichever process", _NVML, shown=_HISTORY),
    Figure("memory_total_bytes", "memory in all", "bytes", "the memory of the GPU", _NVML),
    Figure("memory_reserved_bytes", "reserved", "bytes", "what the driver keeps for itself", _NVML),
    Figure("tf_current_bytes", "TF", "bytes", "what TensorFlow's tensors take",
           "tf.config.experimental.get_memory_info"),
    Figure("tf_peak_bytes", "peak", "bytes", "the most that they have taken",
           "tf.config.experimental.get_memory_info"),
    Figure("temperature_c", "temperature", "°C", "of the chip", _NVML, digits=0, shown=_HISTORY),
    Figure("power_w", "power", "W", "drawn now", _NVML, digits=0, shown=_HISTORY),
    Figure("power_limit_w", "power limit", "W", "the most that it may draw", _NVML, digits=0),
    Figure("power_limit_default_w", "default power limit", "W", "the limit that the chip's maker has set", _NVML,
           digits=0),
    Figure("energy_j", "energy", "J", "drawn since the driver was loaded", _NVML, digits=0),
    Figure("slowed_by_power_seconds", "slowed by power", "seconds",
           "for how long the power limit has held its clock down since the driver was loaded", _NVML),
    Figure("slowed_by_heat_seconds", "slowed by heat", "seconds",
           "for how long heat has held its clock down since the driver was loaded", _NVML),
    Figure("slowed_by_board_limit_seconds", "slowed by board limit", "seconds",
           "the same of a limit of the board, such as that of its voltage", _NVML),
    Figure("slowed_by_reliability_limit_seconds", "slowed by reliability limit", "seconds",
           "the same of the limit that keeps the chip reliable", _NVML),
    Figure("slowed_by_sync_boost_seconds", "slowed by sync boost", "seconds",
           "the same of a group of GPUs whose clocks go together", _NVML),
    Figure("max_sm_clock_mhz", "maximum SM clock", "MHz", "the highest clock of the multiprocessors", _NVML, digits=0),
    Figure("sm_clock_mhz", "SM clock", "MHz", "clock of the multiprocessors", _NVML, digits=0, shown=_HISTORY),
    Figure("memory_clock_mhz", "clock", "MHz", "clock of the memory", _NVML, digits=0),
    Figure("pstate", "state", "P", "performance state, P0 the fastest", _NVML),
    Figure("throttle", "throttling", "", "why it runs slower than it could", _NVML),
    Figure("sm_active", "SM", "share", "the part of the time in which a multiprocessor had work, mean of all", _GPM,
           shown=_HISTORY),
    Figure("tensor_active", "tensor", "share", "the part of the time in which the tensor cores worked", _GPM,
           shown=_HISTORY),
    Figure("dram_active", "DRAM", "share", "the part of the memory's bandwidth that is used", _GPM),
    Figure("pcie_rx_bytes_per_second", "in", "bytes/s", "from the host", _NVML),
    Figure("pcie_tx_bytes_per_second", "out", "bytes/s", "to the host", _NVML),
    Figure("nvlink_rx_bytes_per_second", "in", "bytes/s", "from other GPUs", _NVML),
    Figure("nvlink_tx_bytes_per_second", "out", "bytes/s", "to other GPUs", _NVML),
    Figure("nvlink_links", "links", "count", "NVLink's active links", _NVML),
    Figure("ecc_corrected", "corrected", "count", "memory errors that were corrected", _NVML),
    Figure("ecc_uncorrected", "uncorrected", "count", "memory errors that were not", _NVML),
)  # fmt: skip
HOST = _by_key(
    Figure("cpu", "cpu", "share", "of all cores, whoever uses them", _PSUTIL, shown=_HISTORY),
    Figure("io_wait", "disk wait", "share", "the part of the time in which cores stand idle because of the disk",
           _PSUTIL, shown=_HISTORY),
    Figure("memory_used_bytes", "memory", "bytes", "memory that is not available to programs", _PSUTIL),
    Figure("memory_total_bytes", "memory in all", "bytes", "of the machine, or what the container may use", _PSUTIL),
    Figure("trainer_cpu", "trainer", "cores", "cores that the training uses", _PSUTIL, digits=1, shown=_HISTORY),
    Figure("trainer_bytes", "trainer", "bytes", "memory of the training", _PSUTIL, shown=_HISTORY),
    Figure("engine_bytes", "engine", "bytes", "memory of the process that watches the training", _PSUTIL),
)  # fmt: skip
