"""The events of a run: typed, one JSON object for each line of events.jsonl and telemetry.jsonl.

A value that is not available is None and never 0; fractions are 0 to 1; names carry their unit or are counts. Readers
get the same types (parsing.py); event_writer.py writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from ..files.shapes import Fields
from ..files.values import finite as finite
from ..files.values import plain as plain
from .event_base import Event as Event
from .event_base import fields_of as fields_of
from .event_entries import Evidence, Gpu, Remedy, Stage, Worker, WorkerFigures

Outcome = Literal["ok", "oom", "error", "stopped", "timeout", "crashed"]
PhaseName = Literal[
    "starting", "importing", "configuring", "building", "compiling", "training", "evaluating", "saving", "ended"
]  # fmt: skip
Verdict = Literal[
    "input_bound", "transfer_bound", "python_overhead", "communication_bound", "stalls", "throttled", "retracing",
    "memory_growing", "memory_limit", "imbalance", "slow_worker", "underfilled", "compute_bound", "healthy",
    "undecided",
]  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
LATER_COMPILING = ("evaluation", "smaller batch")  # details of `compiling`; without one it is the first step


def waits_for_others(phase: str, detail: str) -> bool:
    """Whether the phase waits for the other workers of a training on several machines, or connects them."""
    return phase == "configuring" and bool(detail)


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """Versions, devices, the requested options (`options`) and the actual state of the built training (`actual`).

    `inapplicable` are options that have no effect on a user's own training, each with the reason; `not_applied` are
    those of them that were set, each with `option` and `why`. `flops_per_step` (trainer/measure/flops.py) is counted
    where the peak of the GPUs is known.

    Each of `workers` has `index` (the chief's is 0), `address` (of the cluster), `host`, `run` (its id), `folder` (of
    its run, on its machine), `replicas` and `gpus` (its own, by UUID).

    Each of `gpu_devices` has `device` (TensorFlow's name of the first logical device on it), `pci_bus_id`, `uuid`,
    `index` (NVML's), `name`, `compute_capability`, `memory_limit_bytes` (what TensorFlow may take on the whole GPU),
    `memory_total_bytes` and `mig`; what is not known is None. Without NVML `gpus` has places on the PCI bus.
    """

    type: ClassVar[str] = "started"
    pid: int
    versions: Mapping[str, str]
    devices: list[str]
    gpus: Sequence[str] = ()  # UUIDs of the GPUs that the training uses, in TensorFlow's order
    gpu_devices: Sequence[Mapping[str, Any]] = ()  # the same GPUs, each with what TensorFlow and the driver say of it
    options: Mapping[str, Any]
    actual: Mapping[str, Any]
    replicas: int
    global_batch_size: int | None
    steps_per_epoch: int | None
    epochs: int
    steps: int
    train_samples: int | None  # None: a user's own data of unknown size
    validation_samples: int | None
    resumed_at_step: int | None = None
    flops_per_step: float | None = None
    peak_flops_per_second: float | None = None
    cpus: int | None = None  # CPUs that the training may use
    cpu_bfloat16: bool | None = None  # whether they have instructions for bfloat16 products
    compute_capability: tuple[int, int] | None = None  # the lowest compute capability of the GPUs that train
    not_applied: Sequence[Mapping[str, str]] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    sample_bytes: int | None = None  # one sample as the model gets it, without its label
    worker: int | None = None  # of a training on several machines: which of its workers this is
    workers: Sequence[Worker] = ()


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """One of PHASES has begun.

    `compiling` is work that is done once: at the first step, later at the first evaluation and at the first smaller
    batch, which `detail` names.
    """

    type: ClassVar[str] = "phase"
    phase: PhaseName
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """The progress of the training: `step` of `steps` counts over all epochs; speeds are of the last few seconds.

    `mfu` is the share of the GPUs' dense peak that the model's arithmetic reaches. `python_share` is the share of the
    step time in which no graph ran, which is Python's between two executions. `transfer` is the time that the copy of a
    batch to an idle GPU takes, as a share of the step time, whether or not it overlaps with computing. `traces` is how
    often the training function was traced: once or twice is normal, an increasing number means retracing. `loss` and
    `metrics` are Keras' means over the epoch so far; `window_loss` is the mean loss of the steps since the last event.
    """

    type: ClassVar[str] = "progress"
    epoch: int
    epochs: int
    step: int
    steps: int
    samples_per_second: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    input_wait: float | None
    loss: float | None
    metrics: Mapping[str, float | None]
    eta_seconds: float | None
    mfu: float | None = None
    loss_scale: float | None = None
    skipped_steps: int | None = None
    python_share: float | None = None
    traces: int | None = None
    transfer: float | None = None
    window_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class InputStages(Event):
    """The time of the input pipeline's stages for one global batch, from the source to the end.

    Each stage has `name` (read, shuffle, load, batch, prepare, augment ...), `op` (TensorFlow's), `ms_per_batch` (its
    own time, without its inputs and not divided by its parallelism) and `parallelism` (how many calls run in parallel,
    None for a sequential stage). `buffer_fill` is how full the last buffer was: 0 means that the training waits for the
    pipeline, 1 that the pipeline is ahead; None without a buffer.
    """

    type: ClassVar[str] = "input_stages"
    stages: Sequence[Stage]
    buffer_fill: float | None = None


@dataclass(frozen=True, kw_only=True)
class GpuReadings(Event):
    """A reading of every GPU, each a dict of values (telemetry/device.py); `missing` says why there are no readings.

    `interval_seconds` is the time between two readings, longer than requested where the driver is slow.
    """

    type: ClassVar[str] = "gpu"
    gpus: Sequence[Gpu]
    missing: str | None = None
    interval_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class HostReading(Event):
    """The host: `cpu` and `io_wait` are shares of all cores, `trainer_cpu` and `engine_cpu` are in cores.

    `others_cpu` is the part of `cpu` that is used by neither the engine nor the trainer and its child processes.

    `trainer_read_bytes_per_second` was read from the disk, not from the page cache; the network is that of a training
    on several machines.
    """

    type: ClassVar[str] = "host"
    cpu: float | None
    memory_used_bytes: int
    memory_total_bytes: int
    engine_bytes: int
    trainer_bytes: int | None
    trainer_cpu: float | None
    engine_cpu: float | None = None
    others_cpu: float | None = None
    io_wait: float | None = None
    trainer_read_bytes_per_second: float | None = None
    network_rx_bytes_per_second: float | None = None
    network_tx_bytes_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class Allocator(Event):
    """Current and peak bytes of TensorFlow's allocator on each device."""

    type: ClassVar[str] = "allocator"
    devices: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class EpochEnd(Event):
    """An epoch (counted from 1) has ended, including its evaluation; `seconds` is its total time."""

    type: ClassVar[str] = "epoch"
    epoch: int
    step: int
    metrics: Mapping[str, float | None]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Event):
    """What holds the training back (engine/diagnosis), judged from `steps` measured steps.

    `confidence` is 0 to 1. Each piece of `evidence` has signal, value, unit, threshold, text, source; `others` are
    weaker verdicts; each of `remedies` has step, changes (key -> value; none: advice), reason, expected_gain (the
    greatest speed-up as a factor) and changes_learning.
    """

    type: ClassVar[str] = "diagnosis"
    verdict: Verdict
    sentence: str
    confidence: float
    steps: int
    evidence: Sequence[Evidence] = ()
    others: Sequence[str] = ()
    remedies: Sequence[Remedy] = ()


@dataclass(frozen=True, kw_only=True)
class Warn(Event):
    """A warning for the user; `option` is the key that it concerns, or empty."""

    type: ClassVar[str] = "warning"
    kind: str
    message: str
    hint: str = ""
    option: str = ""


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer(Event):
    """Memory has run out, and the training goes on by itself as `run.on_oom` says: with `option` changed.

    `number` counts the answers of this launch. It goes on from the checkpoint of `resumes_at_step`, or begins again
    where that is None.
    """

    type: ClassVar[str] = "memory_answer"
    answer: Literal["accumulate", "halve"]
    number: int
    option: str
    before: int
    after: int
    ran_out_after_step: int | None  # None: no step was told of
    resumes_at_step: int | None
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkerReadings(Event):
    """The newest figures of all workers of a training on several machines, as the chief's engine finds them.

    They are read in the workers' runs. Each has `index`, `address`, `samples_per_second` (its part), `step_ms_p50`,
    `input_wait` (share of its steps) and `gpus_busy` (of each of its GPUs); `missing` says why there are none, as where
    its folder cannot be read. All workers wait for the slowest in each step: `slowest` is the one that waits for its
    input longer than the others do, by a tenth of the step or more, None where there is none.
    """

    type: ClassVar[str] = "workers"
    workers: Sequence[WorkerFigures]
    slowest: int | None = None


@dataclass(frozen=True, kw_only=True)
class GradientExchange(Event):
    """How long the workers of a training on several machines take to exchange the gradients of a step, `bytes` each.

    It is timed before the step after `step`, with nothing else to do, and not as a part of a step.
    """

    type: ClassVar[str] = "exchange"
    ms: float
    bytes: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Fault(Event):
    """The error that ended the run."""

    type: ClassVar[str] = "error"
    kind: str
    message: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The content of `result.json`.

    samples_per_second is global batch / step_ms.p50; step_ms is taken over `measured_steps` steps, in windows of at
    least 50 ms, without the warm-up. Those steps took measured_seconds, so that the mean speed is measured_steps *
    global_batch_size / measured_seconds. goodput is the share of the wall time that was training steps. One-time work
    is listed separately: startup_seconds ends with the first step (first_step_seconds, including its tracing and
    compiling); first_evaluation_seconds is the tracing and compiling of the evaluation with its first steps;
    first_checkpoint_seconds is the first checkpoint. exchange_ms is the last `exchange` event's. memory_answers are the
    changes that run.on_oom has made, each as its memory_answer event.
    """

    outcome: Outcome
    trainer_returncode: int | None = None
    samples_per_second: float | None = None
    step_ms: Mapping[str, float] | None = None
    measured_steps: int | None = 0  # None: the trainer died with its clock
    measured_seconds: float | None = None
    global_batch_size: int | None = None
    first_step_seconds: float | None = None
    startup_seconds: float | None = None
    first_evaluation_seconds: float | None = None
    first_checkpoint_seconds: float | None = None
    input_wait: float | None = None
    python_share: float | None = None
    transfer: float | None = None
    exchange_ms: float | None = None
    traces: int | None = None
    peak_memory_bytes: int | None = None
    peak_process_bytes: int | None = None
    peak_address_space_bytes: int | None = None
    gpu_busy_mean: float | None = None
    gpu_power_mean_w: float | None = None
    mfu: float | None = None
    epochs: int = 0
    steps: int = 0
    skipped_steps: int | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    seconds: float | None = None
    goodput: float | None = None
    error: Mapping[str, str] | None = None
    memory_answers: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The last event of a run."""

    type: ClassVar[str] = "finished"
    outcome: Outcome
    summary: Annotated[Mapping[str, Any], Fields(Summary)]
