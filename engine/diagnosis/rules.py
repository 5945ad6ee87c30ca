"""The verdicts in one table, with labels, remedies and rules: a figure, thresholds from which it counts and decides,
and their source: XProf (TensorFlow's profiler), SageMaker Debugger, Kineto (PyTorch's profiler), DCGM (NVIDIA's guide),
TF guide (to performance), or gputui. `ablation` and `communication` need measurements of a proof or a profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from .. import figures
from ..figures import Figure
from ..runs.events import Remedy, Step
from . import remedies as making
from . import stragglers
from .measurements import COMPUTES, CORES_BUSY, DISK_WAITED, GPU_WORKS, MUCH_PYTHON, SM_FEW, Measurements
from .remedies import computing, for_input, for_transfer, precision

ENOUGH_WINDOWS = 200  # SageMaker requires more than 10 slow steps, which are 5 % of this many readings
LONG_PAUSE_SECONDS = 10.0  # a pause that counts even if it happened only once
COPIES_ALL_THE_TIME = 0.90  # share of the step: with copies ahead of the steps, the longer of both decides
TENSOR_FULL = 0.50  # share of the time: from here on computing limits the speed at least as much as memory
FAULT, LOST_TIME, UNUSED, LIMIT, SUPPORTING = range(5)


@dataclass(frozen=True)
class Rule:
    """A figure of Measurements that counts for a verdict from `notable` on, and decides for it from `strong` on."""

    measurement: str
    notable: float
    strong: float
    text: str
    source: str
    rank: int  # faults, lost time (the largest first), unused devices, limits; SUPPORTING: it only adds confidence
    below: bool = False  # it counts and decides under the thresholds
    when: Callable[[Measurements], bool] = lambda _s: True  # it holds
    verdict: str = ""

    @property
    def figure(self) -> Figure:
        return figures.measurement(self.measurement)

    def value(self, measured: Measurements) -> float | None:
        value = getattr(measured, self.measurement)
        return None if value is None or not self.when(measured) else float(value)

    def passes(self, value: float, threshold: float) -> bool:
        return value < threshold if self.below else value >= threshold


@dataclass(frozen=True)
class Verdict:
    """A verdict of the diagnosis."""

    word: str
    label: str
    remedies: Callable[[Measurements], Iterable[Remedy | str]] = lambda _s: ()  # a text is advice
    rules: tuple[Rule, ...] = ()
    endings: Callable[[Measurements], list[str]] = lambda _s: []  # of its sentence; the longest that fits is added
    step: Step = "device"  # of advice


def _gpu_waits(s: Measurements) -> bool:
    # if the utilization is unknown, the GPU may compute while Python runs
    if s.unseen:
        return (s.python_share or 0.0) >= MUCH_PYTHON
    return not s.on_gpu or not s.gpu_full


def device_works(s: Measurements) -> bool:
    """Return True if the training device is busy. True on a CPU, as no figure shows it there."""
    return not s.on_gpu or s.gpu_works


def _slow_part(s: Measurements) -> list[str]:
    # the longest first
    if s.disk_waited_for:
        return [", and it waits for the disk"]
    stage = f", mostly in {s.slowest_stage['name']}" if s.slowest_stage else ""
    if s.crowded:
        return [f"{stage}; other programs also use the CPU", stage]
    return [f"{stage}; all CPU cores are busy", stage] if s.cores_busy else [stage]


_VERDICTS = (
    #    word, label, remedies; each rule: figure, thresholds to count and to decide, sentence, source, rank
    Verdict("retracing", "Retracing",
            lambda _s: ["inputs change their shape or Python values from step to step: pad or bucket them, "
                        "pass tensors"], (
        # Traces of the function that runs the steps, with all that it calls; not what XLA compiles for another shape.
        Rule("traces", 5, 5, "TensorFlow has traced the step {value} times (usual: 1 or 2)",
             "TF guide (retracing), gputui", FAULT),
    )),
    Verdict("throttled", "Throttled",
            lambda s: [f"check the machine's cooling and power supply ({', '.join(s.throttle)})"], (
        Rule("throttled", 0.10, 0.20, "the GPU slows itself down {value} of the time",
             "SageMaker (outliers), gputui", FAULT),
    )),
    Verdict("memory_growing", "Memory grows",
            lambda _s: ["look for lists that keep tensors, and for functions that are traced repeatedly"], (
        Rule("memory_growth", 0.05, 0.05, "its memory has grown by {value} of what it may take",
             "SageMaker (mean of 10 readings + 5 points)", FAULT),
        Rule("host_memory_growth", 0.05, 0.05, "its memory has grown by {value} of the machine's",
             "SageMaker (mean of 10 readings + 5 points)", FAULT),
    )),
    Verdict("input_bound", "Input-bound", for_input, (
        Rule("input_wait", 0.05, 0.20, "steps wait {value} of their time for input",
             "XProf (5 and 20 % of the step)", LOST_TIME),
        # Measured only by `gputui diagnose --preset` and by proofs.
        Rule("ablation", 0.05, 0.20, "a step takes {value} less time when its input is ready",
             "TF guide (synthetic input), XProf", LOST_TIME),
        Rule("io_wait", DISK_WAITED, 0.50, "the CPU is idle {value} of the time because of the disk",
             "SageMaker (I/O wait 50 %), gputui", SUPPORTING, when=lambda s: s.reads_from_disk),
        Rule("cpu", CORES_BUSY, CORES_BUSY, "all CPU cores are busy ({value})",
             "SageMaker (CPU >= 90 %)", SUPPORTING),
    ), endings=_slow_part, step="input"),
    Verdict("transfer_bound", "Transfer-bound", for_transfer, (
        # XProf counts copies to the device as input.
        Rule("transfer", 0.05, 0.20, "copying a batch to the GPU takes {value} of a step's time",
             "XProf (input and its copies: 5 and 20 %), gputui", LOST_TIME,
             when=lambda s: not s.device_batches or (s.transfer or 0.0) >= COPIES_ALL_THE_TIME),
    ), step="input"),
    Verdict("python_overhead", "Python overhead", making.python_overhead, (
        Rule("python_share", 0.03, MUCH_PYTHON, "Python between the steps takes {value} of the time",
             "XProf (rest of the step: 3 and 15 %)", LOST_TIME, when=_gpu_waits),
    )),
    Verdict("communication_bound", "Communication-bound", stragglers.remedies, (
        # Needs a profile.
        Rule("communication", 0.03, 0.15, "the exchange of gradients takes {value} of the step",
             "XProf (collectives: 3 and 15 %)", LOST_TIME),
        Rule("worker_exchange", 0.03, 0.15,
             "exchanging gradients between workers takes {value} of a step, timed alone",
             "gputui (an all-reduce of their size), XProf (collectives: 3 and 15 %)", LOST_TIME),
    ), step="gpus"),
    Verdict("imbalance", "GPUs are not equally busy", stragglers.gpu_remedies, (
        Rule("busy_gap", stragglers.BUSY_APART, 0.50, "the most and the least busy GPU differ by {value} of the time",
             "SageMaker (0.5), gputui", UNUSED, when=lambda s: s.gpus > 1),
        # Each step waits for the slowest GPU; kernels of NCCL count as busy while they wait, and hide the gap above.
        Rule("clock_gap", stragglers.CLOCK_APART, 0.20, "one GPU's clock is {value} below that of the others",
             "gputui", UNUSED, when=lambda s: s.gpus > 1),
    ), step="gpus"),
    Verdict("slow_worker", "Slow worker",
            lambda s: [f"compare the machine of {s.slow_worker} with the others: its CPUs, other programs on them, and "
                       "the disk or network that it reads from; gputui diagnose of its own run names the slowest "
                       "stage of its input"], (
        # Each step waits for the slowest worker; only the chief's run has the figures of all.
        Rule("worker_gap", stragglers.WAITS_APART, 0.30,
             "one waits {value} of its steps longer for input than the others",
             "gputui", LOST_TIME),
    ), endings=lambda s: [f": {s.slow_worker}", f": {s.slow_worker.partition(' (')[0]}"], step="input"),
    Verdict("underfilled", "GPU underused", making.underfilled, (
        Rule("busy_mean", GPU_WORKS, 0.50, "the GPU is busy {value} of the time",
             "SageMaker (70 %), Kineto (50 %)", UNUSED, below=True, when=lambda s: s.on_gpu),
        # Kernels too small for the chip: some kernel always runs, on few of the multiprocessors.
        Rule("sm_active", SM_FEW, SM_FEW, "the GPU's multiprocessors have work only {value} of the time",
             "DCGM (SM activity below 50 %), gputui", UNUSED, below=True, when=lambda s: s.kernels_run),
    )),
    Verdict("stalls", "Stalls", making.stalls, (
        # A single short evaluation may be slow by chance.
        Rule("pauses", 0.15, 0.30, "evaluation and checkpoints take {value} of the time", "gputui", LOST_TIME,
             when=lambda s: s.pauses_counted > 1 or (s.pauses or 0.0) * s.seconds >= LONG_PAUSE_SECONDS),
        Rule("busy_p5", 0.10, 0.10, "the GPU is busy, but at times only {value}",
             "SageMaker (p95 >= 70 %, p5 < 10 %)", UNUSED, below=True, when=lambda s: (s.busy_p95 or 0) >= 0.7),
        # If neither the input nor other programs explain the slow steps.
        Rule("uneven", 3, 6, "one step in 20 takes {value} as long as usual, or longer",
             "SageMaker (outliers), gputui", UNUSED,
             when=lambda s: s.windows >= ENOUGH_WINDOWS and (s.input_wait or 0) < 0.05 and not s.crowded),
    )),
    Verdict("low_clocks", "Low clocks", stragglers.clock_remedies, (
        Rule("clock_share", 0.75, 0.60, "the GPU runs at {value} of its highest clock",
             "gputui", UNUSED, below=True, when=stragglers.clock_is_held),
        Rule("power_capped", 0.30, stragglers.POWER_EXPLAINS,
             "a lowered power limit holds the GPU's clock down {value} of the time",
             "gputui", UNUSED, when=lambda s: s.on_gpu and s.gpu_works and stragglers.limit_is_low(s)),
    ), endings=lambda s: [f" ({why})"] if (why := stragglers.clock_cause(s)) else []),
    Verdict("memory_limit", "Memory is at the limit", making.memory_limit, (
        Rule("memory_peak", 0.90, 0.97,
             "tensors took up to {value} of the memory that TensorFlow may take",
             "Kineto (90 %)", LIMIT),
    )),
    Verdict("bandwidth_bound", "Memory-bandwidth-bound", making.bandwidth, (
        # The multiprocessors wait for the GPU's own memory. What a kernel reaches there at most is about 80 %.
        Rule("dram_active", 0.60, 0.70, "the GPU's memory transfers data {value} of the time",
             "DCGM (DRAM activity: 80 % at most), gputui", LIMIT,
             when=lambda s: device_works(s) and (s.tensor_active or 0.0) < TENSOR_FULL),
    ), step="xla"),
    Verdict("compute_bound", "Compute-bound", making.computing, (
        Rule("tensor_active", 0.10, 0.05,
             "the tensor cores work {value} of the time, and 16 bits would use them",
             "Kineto (tensor cores idle), gputui", LIMIT, below=True,
             when=lambda s: s.on_gpu and device_works(s) and any(precision(s))),
        Rule("compute_share", COMPUTES, COMPUTES, "TensorFlow's graph takes {value} of the step",
             "TF guide (97 % of synthetic), gputui", LIMIT,
             when=lambda s: device_works(s) and any(computing(s))),
    )),
    Verdict("healthy", "Healthy"),
    Verdict("undecided", "No verdict"),
)  # fmt: skip
VERDICTS: Mapping[str, Verdict] = {verdict.word: verdict for verdict in _VERDICTS}
RULES = tuple(replace(rule, verdict=verdict.word) for verdict in _VERDICTS for rule in verdict.rules)


@dataclass(frozen=True)
class Symptom:
    """A figure's value that counts by a rule."""

    rule: Rule
    value: float

    @property
    def strong(self) -> bool:
        return self.rule.passes(self.value, self.rule.strong)

    @property
    def order(self) -> tuple[bool, bool, int, float]:
        lost = self.value if self.rule.rank == LOST_TIME else 0.0
        return (self.rule.rank == SUPPORTING, not self.strong, self.rule.rank, -lost)


def symptoms(measured: Measurements) -> list[Symptom]:
    values = [(rule, rule.value(measured)) for rule in RULES]
    return [Symptom(rule, value) for rule, value in values if value is not None and rule.passes(value, rule.notable)]
