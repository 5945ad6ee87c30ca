"""The figures of a run on which its diagnosis rests. Shares are 0 to 1, an unknown figure is None."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..finding import Finding
from ..gpu import Gpu
from ..learning import NOTHING
from ..options.own_code import SCRIPT
from ..runs.events import HostReading, Outcome, Progress

Reading = Gpu | HostReading | Progress


def numbers(readings: Iterable[Reading], name: str) -> list[float]:
    """Return the values of the field `name`, from the readings that have a value."""
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


def mean(readings: Iterable[Reading], name: str) -> float | None:
    values = numbers(readings, name)
    return statistics.fmean(values) if values else None


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The figures of a run. Waits and the shares of Python and computing are shares of the step time."""

    options: Mapping[str, Any] = field(default_factory=dict)  # by `group.name`
    on_gpu: bool = False
    gpus: int = 0  # GPUs that train
    idle_gpus: int = 0  # visible GPUs that no program uses
    usable_gpus: tuple[int, ...] | None = None  # indexes of those that train or are idle; None: all of the machine's
    given_gpus: tuple[int, ...] | None = None  # indexes of those that a launcher has given; None: all
    compute_capability: tuple[int, int] | None = None  # the lowest compute capability of the GPUs that train
    newest_capability: tuple[int, int] | None = None  # the highest
    replicas: int = 1
    cpus: int | None = None
    cpu_bfloat16: bool = False  # the CPU multiplies bfloat16 natively
    jit_compile: bool | None = None  # whether XLA compiles the step, by the model itself
    xla_reason: str = ""  # why it does or does not
    numa: str = ""  # on which CPUs the trainer runs, or why on all
    train_samples: int | None = None
    sample_bytes: int | None = None
    inapplicable: Mapping[str, str] = field(default_factory=dict)  # options that do nothing in own code, and why
    global_batch_size: int | None = None
    steps_per_epoch: int | None = None
    steps: int = 0
    seconds: float = 0.0
    samples_per_second: float | None = None
    step_ms: float | None = None
    uneven: float | None = None  # 95th percentile of the step time / median
    windows: int = 0
    input_wait: float | None = None
    python_share: float | None = None
    compute_share: float | None = None  # the graph: kernels, copies to the device, exchange, gaps between them
    transfer: float | None = None  # the copy of a batch to a GPU, as a share of the step
    device_batches: int | None = None  # batches that are copied to each GPU ahead of their step
    pauses: float | None = None  # share of the time since the first step, without one-time work
    pauses_counted: int = 0  # the number of evaluations or of checkpoints, whichever is larger
    traces: int | None = None
    stages: tuple[Mapping[str, Any], ...] = ()
    buffer_fill: float | None = None
    ablation: float | None = None  # share of the step that the input costs (measured by separate trials)
    busy_mean: float | None = None  # the GPUs' utilization
    busy_p5: float | None = None
    busy_p95: float | None = None
    busy_gap: float | None = None  # difference between the most and the least busy GPU
    clock_gap: float | None = None  # how much lower the lowest clock is than that of the other GPUs, while they work
    slow_gpu: int | None = None  # index of the GPU that the others wait for, if any
    slow_gpu_busy: float | None = None
    slow_gpu_causes: tuple[str, ...] = ()
    worker_gap: float | None = None  # by how much more of its steps one worker waits for its input than the others
    slow_worker: str = ""  # that worker, by its number and address, if they differ
    slow_worker_wait: float | None = None
    worker_exchange: float | None = None  # of gradients between machines, timed alone, as a share of the step
    exchange_ms: float | None = None
    exchanged: str = ""  # the size of the gradients, in words
    exchange_rate: str = ""
    hosts: tuple[str, ...] = ()  # the hosts of the workers
    sm_active: float | None = None  # share of the time, as the next two
    tensor_active: float | None = None
    dram_active: float | None = None
    nvlink: bool | None = None  # whether anything has passed between the GPUs over NVLink
    clock_share: float | None = None  # of the highest clock, mean while the GPUs work
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    power_capped: float | None = None  # share of the time in which the power limit holds the clock down
    power_limit_w: float | None = None  # of the GPU whose limit is lowest in relation to its default
    power_limit_default_w: float | None = None
    clocks_set_by: tuple[str, ...] = ()  # application clocks and others that a person has set
    gpu_indexes: tuple[int, ...] = ()  # NVML's, of the GPUs that train
    throttled: float | None = None  # share of the time, by heat and other faults
    throttle: tuple[str, ...] = ()  # NVML's reasons
    gpu_neighbours: tuple[str, ...] = ()  # other programs that use much memory of these GPUs
    mfu: float | None = None
    memory_peak: float | None = None  # share of what TensorFlow may take of a GPU's memory, by its allocator
    memory_growth: float | None = None  # growth of that share from the first readings to the last
    host_memory_growth: float | None = None  # growth of the trainer's memory, as a share of the host's
    host_memory_free_bytes: int | None = None
    cpu: float | None = None  # share of all cores, used by any program
    others_cpu: float | None = None  # share of all cores, used by other programs
    trainer_cores: float | None = None
    io_wait: float | None = None
    read_bytes_per_second: float | None = None
    communication: float | None = None  # share of the step in collectives (from a profile)
    outcome: Outcome | None = None
    learning: Finding = NOTHING

    @property
    def of_script(self) -> bool:
        """True if a script has run its own fit, which Monitor has watched."""
        return self.inapplicable.get("input.parallel_calls") == SCRIPT

    @property
    def in_script(self) -> bool:
        """True if a script makes the data, whose fit gputui runs or Monitor has watched: there is no `build`."""
        return self.of_script or self.option("workload.left_to_fit") is not None

    def option(self, key: str) -> Any:
        return self.options.get(key)

    @property
    def slowest_stage(self) -> Mapping[str, Any] | None:
        """The stage of the input that the others wait for, by `stage_ms`. None if no stage was timed."""
        timed = [stage for stage in self.stages if stage_ms(stage) is not None]
        return max(timed, key=lambda stage: stage_ms(stage) or 0.0, default=None)

    @property
    def cores_busy(self) -> bool:
        """True if the training itself uses nearly all CPU cores, so that more threads cannot help. False if unknown."""
        return self.cpu is not None and self.cpu - (self.others_cpu or 0.0) >= CORES_BUSY

    @property
    def unseen(self) -> bool:
        """True if the GPU's utilization is unknown: in MIG mode before Hopper, with vGPU, in WSL or without NVML."""
        return self.on_gpu and self.busy_mean is None and self.sm_active is None

    @property
    def gpu_full(self) -> bool:
        """True if the GPU never waits for the host: kernels always run, and not on a few multiprocessors."""
        if self.busy_mean is None:
            return self.sm_active is not None and self.sm_active >= SM_FULL
        return self.busy_mean >= GPU_FULL and (self.sm_active is None or self.sm_active >= SM_FEW)

    @property
    def kernels_run(self) -> bool:
        """True if kernels run on the GPU most of the time, or if that is unknown. False on a CPU."""
        return self.on_gpu and (self.busy_mean is None or self.busy_mean >= GPU_WORKS)

    @property
    def gpu_works(self) -> bool:
        """True if kernels run most of the time on a good part of the GPU, or if unknown. False on a CPU."""
        return self.kernels_run and (self.sm_active is None or self.sm_active >= SM_FEW)

    @property
    def crowded(self) -> bool:
        """True if other programs use CPU cores that the training needs. False if unknown."""
        return (self.others_cpu or 0.0) >= OTHERS_NOTABLE and (self.cpu or 0.0) >= CORES_SHORT

    @property
    def reads_from_disk(self) -> bool:
        """True if the training reads at least READS_BYTES per second from the disk, or if that is unknown."""
        return self.read_bytes_per_second is None or self.read_bytes_per_second >= READS_BYTES

    @property
    def disk_waited_for(self) -> bool:
        return self.io_wait is not None and self.io_wait >= DISK_WAITED and self.reads_from_disk


def stage_ms(stage: Mapping[str, Any]) -> float | None:
    """Return the shortest time in ms between two batches of a stage: its work divided by its parallel calls."""
    work: float | None = stage["ms_per_batch"]
    return None if work is None else work / max(1.0, stage.get("parallelism") or 1.0)


# ---- thresholds that several modules use, with their source if it is not gputui: of the host

CORES_BUSY = 0.90  # share of all cores: above it no more input can be prepared
OTHERS_NOTABLE, CORES_SHORT = 0.10, 0.75  # shares of all cores: used by other programs, and in total
DISK_WAITED = 0.30  # share of all cores' time; a mean of 30 % includes moments at SageMaker Debugger's 50 %
READS_BYTES = 1e6  # per second: below it the disk does not wait for the training's reads
MUCH_PYTHON = 0.15  # share of the step from which Python decides

# ---- the GPU

GPU_WORKS, GPU_FULL = 0.70, 0.90  # NVML's utilization: SageMaker's threshold, and one of a GPU that never waits
# Share of the multiprocessors with work, mean over the time. NVIDIA's DCGM guide ("SM Activity"): at least 0.8 if a GPU
# is used well, less than 0.5 if it is likely not used well. Only values far below the latter count here.
SM_FEW, SM_FULL = 0.40, 0.80
COMPUTES = 0.80  # share of the step: the rest is too small to limit the speed
HOT = 0.10  # share of the readings, from which heat is the cause of a low clock, which has a verdict of its own
SCREEN_BYTES = 1024**3  # a screen and its programs take less of a GPU's memory

# ---- remedies

ROOM_FOR_BATCH = 0.45  # share of the memory that TensorFlow may take: below it a batch of twice the size fits
ROOM_FOR_CACHE = 0.5  # share of the free host memory that a cache may take
