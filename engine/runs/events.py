"""The events of a run: typed, one JSON object in each line of the run's event files, which parsing.py writes and reads.
A value that is not available is None and never 0. Fractions are 0 to 1. Names carry their unit or are counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from ..files.values import EMPTY
from ..files.values import finite as finite
from ..files.values import plain as plain
from ..finding import Finding, on_options
from ..gpu import Gpu, TrainingGpu

EVENTS_FILE = "events.jsonl"  # written by the trainer
TELEMETRY_FILE = "telemetry.jsonl"  # written by the engine
EVENT_FILES = (EVENTS_FILE, TELEMETRY_FILE)
T_DIGITS = 4  # decimals of `t` in a file: 0.1 ms

Outcome = Literal["ok", "oom", "error", "stopped", "timeout", "crashed"]
PhaseName = Literal[
    "starting", "importing", "configuring", "building", "compiling", "training", "evaluating", "saving", "script",
    "command", "ended",
]  # fmt: skip
ControlName = Literal["checkpoint", "evaluate", "rate", "end-epoch"]
Step = Literal["input", "device", "precision", "xla", "gpus"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}  # of Keras, by their packages
# Details of `compiling`; without one it is the first step.
LATER_COMPILING = ("evaluation", "smaller batch", "another learning rate")


def waits_for_others(phase: str, detail: str) -> bool:
    """The run waits for the other workers, or connects them."""
    return phase == "configuring" and bool(detail)


# ---- the base of all events -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events; `type` is the value in the JSON. One that was read from a file also has its time `t` (Unix
    seconds) and its `run`. A field that the file lacks reads as an empty list, mapping or text, or as None.
    """

    type: ClassVar[str]
    t: ClassVar[float]
    run: ClassVar[str]
    line: ClassVar[bytes] = b""  # that of the file, if its reader keeps the lines

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return _absent(type(self))[name] if name in _absent(type(self)) else object.__getattribute__(self, name)


@cache
def _absent(kind: type[Event]) -> Mapping[str, Any]:
    return {name: _empty(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}


def _empty(hint: Any) -> Any:
    origin = get_origin(hint) or hint
    if origin is str or origin is Literal:
        return ""
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return EMPTY
    return () if isinstance(origin, type) and issubclass(origin, Sequence) else None


def fields_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event that was read from a file, as its line has them, with `t`, `type` and `run`."""
    return vars(event)


# ---- mappings within events --------------------------------------------------------------------


class StageTiming(TypedDict):
    name: str  # read, shuffle, load, batch, prepare, augment and others
    op: NotRequired[str | None]  # TensorFlow's name of the operation
    ms_per_batch: float | None  # its own work over all its calls, without the work of its inputs
    parallelism: NotRequired[float | None]  # calls that run at the same time; None: one after the other


class ClusterWorker(TypedDict):
    index: int  # 0: the chief
    address: str  # of the cluster
    host: NotRequired[str]
    run: NotRequired[str]  # the id of its run
    folder: NotRequired[str]  # of its run, on its machine
    replicas: NotRequired[int | None]
    gpus: NotRequired[Sequence[str] | None]  # its own, by UUID


class WorkerFigures(TypedDict):
    index: int  # 0: the chief
    address: str  # of the cluster
    samples_per_second: NotRequired[float | None]  # its share
    step_ms_p50: NotRequired[float | None]
    input_wait: NotRequired[float | None]  # as a share of its step time
    gpus_busy: NotRequired[Sequence[float | None] | None]  # of each of its GPUs
    missing: NotRequired[str | None]  # why there are no figures


@dataclass(frozen=True)
class Evidence:
    """A figure on which a diagnosis rests."""

    signal: str  # the figure
    value: float | None
    unit: str
    threshold: float | None  # from this value on it decides
    text: str  # the same in words
    source: str  # of the threshold


@dataclass(frozen=True)
class Remedy:
    """A change of options that may make a training faster, or advice to its user."""

    step: Step  # of TensorFlow's guide: the part of the training that it makes faster
    changes: Mapping[str, Any]  # key and new value; empty: advice
    reason: str
    expected_gain: float | None = None  # the greatest speed-up as a factor (1.05: 5 % faster); None: to be measured
    changes_learning: bool = False  # whether it changes what the model learns
    code: Sequence[str] = ()  # lines for the user's code that follow an advice


PlainEvidence = Annotated[Mapping[str, Any], Evidence, "signal", "value", "unit", "threshold", "text", "source"]
PlainRemedy = Annotated[Mapping[str, Any], Remedy, "changes", "reason"]


class ActualSettings(TypedDict, total=False):
    jit_compile: bool | None
    xla_reason: str | None  # why XLA compiles the step, or why not
    numa: str | None  # on which CPUs the trainer runs, or why on all
    environment: Mapping[str, str | None] | None  # the caller's variables that have no option
    steps_per_execution: int | None
    device_batches: int | None  # batches that are copied to each GPU ahead of their step
    memory_growth: bool | None
    learning_rate: float | None  # the highest
    parameters: int | None
    optimizer: str | None
    loss: str | None  # the name of Keras' loss that is all of the training's; with + regularization, if it has that
    classes: int | None  # that a crossentropy decides between
    tf32: bool
    variables_on: Mapping[str, int]  # by device
    weights_on_cpu: int
    devices: Sequence[str]
    compute_dtypes: Mapping[str, int]  # layers by the type in which they compute
    output_dtype: str | None
    strategy: str  # the class of TensorFlow
    replicas: int
    inject_prefetch: bool
    deterministic_order: bool | None
    private_threads: int | None
    inter_op_threads: int
    intra_op_threads: int
    xla_cache: str
    sharding: str


class KeptModel(TypedDict):
    epoch: int
    value: NotRequired[float | None]
    file: str  # in the run folder


# ---- the events -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The training is built, and its first step follows: the options, and the settings that are really in effect."""

    type: ClassVar[str] = "started"
    pid: int
    versions: Mapping[str, str]  # of gputui, Python, Keras and its backend
    devices: list[str]  # TensorFlow's names of the devices that train
    gpus: Sequence[str] = ()  # UUIDs of the GPUs that train, in TensorFlow's order; PCI bus ids without NVML
    gpu_devices: Sequence[TrainingGpu] = ()  # the same GPUs, each with facts from TensorFlow and the driver
    options: Mapping[str, Any]  # the preset's
    actual: ActualSettings  # read back from the built training
    replicas: int  # copies of the model that train
    global_batch_size: int | None  # samples of a full step, over all replicas; at most those of the data
    steps_per_epoch: int | None
    epochs: int
    steps: int  # over all epochs
    train_samples: int | None  # None: a user's own data of unknown size
    validation_samples: int | None
    resumed_at_step: int | None = None  # None: from the beginning
    flops_per_step: float | None = None  # counted if the peak of the GPUs is known
    peak_flops_per_second: float | None = None  # dense, of all GPUs that train
    cpus: int | None = None  # CPUs that the training may use
    cpu_bfloat16: bool | None = None  # whether they have instructions for bfloat16 products
    compute_capability: tuple[int, int] | None = None  # the lowest compute capability of the GPUs that train
    not_applied: Sequence[Mapping[str, str]] = ()  # set without effect on a user's own code: `option`, `why`
    inapplicable: Mapping[str, str] = field(default_factory=dict)  # without effect on own code: key, reason
    sample_bytes: int | None = None  # of one sample as the model gets it, without its label
    worker: int | None = None  # of a training on several machines: the index of this worker
    workers: Sequence[ClusterWorker] = ()  # all workers of a training on several machines

    def option(self, key: str) -> Any:
        """Return the value of an option, by `group.name`; None if the event lacks it."""
        group, _, name = key.partition(".")
        return values.get(name) if isinstance(values := self.options.get(group), Mapping) else None


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """One of PHASES has begun. The phase `compiling` is work that is done only once, such as the first step."""

    type: ClassVar[str] = "phase"
    phase: PhaseName
    detail: str = ""  # a part of the phase; empty if it is `compiling` the first step


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """The progress of the training at a moment; speeds are of the last few seconds. `step_ms_p50` and `step_ms_p95` are
    the median and the 95th percentile of the step time in ms.
    """

    type: ClassVar[str] = "progress"
    epoch: int  # counted from 1
    epochs: int
    step: int  # counted over all epochs
    steps: int
    samples_per_second: float | None  # of all replicas together, without work that is done only once
    step_ms_p50: float | None
    step_ms_p95: float | None
    input_wait: float | None  # the share of the step time spent waiting for the batch
    loss: float | None  # Keras' mean over the epoch so far
    metrics: Mapping[str, float | None]  # Keras' means over the epoch so far
    eta_seconds: float | None  # until the last step
    mfu: float | None = None  # the share of the GPUs' dense peak that the model's arithmetic reaches
    loss_scale: float | None = None  # of mixed_float16
    skipped_steps: int | None = None  # by the loss scaling of mixed_float16
    python_share: float | None = None  # the share of the step time in which Python ran and no graph
    traces: int | None = None  # traces of the training function; an increasing number means retracing
    transfer: float | None = None  # copying a batch to an idle GPU, as a share of the step time, overlapping or not
    window_loss: float | None = None  # mean over the steps since the previous event
    samples: int | None = None  # on which the training has trained since its start or resume, over all replicas
    learning_rate: float | None = None  # of the next step; None if the optimizer has not one


@dataclass(frozen=True, kw_only=True)
class InputStages(Event):
    """The time in ms that each stage of the input pipeline works for one global batch, from the source to the end."""

    type: ClassVar[str] = "input_stages"
    stages: Sequence[StageTiming]
    buffer_fill: float | None = None  # of the last buffer; 0: the training waits for it; None: there is none


@dataclass(frozen=True, kw_only=True)
class GpuReadings(Event):
    """A reading of every GPU."""

    type: ClassVar[str] = "gpu"
    gpus: Sequence[Gpu]
    missing: str | None = None  # why there are no readings
    interval_seconds: float | None = None  # between two readings; longer than run.sample_seconds if the driver is slow


@dataclass(frozen=True, kw_only=True)
class HostReading(Event):
    """A reading of the host's CPU, memory, disk and network. Shares are 0 to 1 of all cores."""

    type: ClassVar[str] = "host"
    cpu: float | None  # used by any program
    memory_used_bytes: int
    memory_total_bytes: int
    engine_bytes: int  # memory of the engine
    trainer_bytes: int | None  # memory of the trainer
    trainer_cpu: float | None  # of the trainer
    engine_cpu: float | None = None
    others_cpu: float | None = None  # the share of other programs in `cpu`: not engine, trainer or its child processes
    io_wait: float | None = None  # CPUs that wait for the disk
    trainer_read_bytes_per_second: float | None = None  # from the disk, not from the page cache
    network_rx_bytes_per_second: float | None = None  # if several machines train
    network_tx_bytes_per_second: float | None = None  # if several machines train


@dataclass(frozen=True, kw_only=True)
class Allocator(Event):
    """The memory in bytes that TensorFlow's allocator has given out.

    The peaks of GPUs are reset after the first step, in which cuDNN takes memory to try its algorithms.
    """

    type: ClassVar[str] = "allocator"
    devices: Mapping[str, Mapping[str, int]]  # by the device's name: `current_bytes` and `peak_bytes`
    first_step: bool = False  # the peaks until the end of the first step; later ones do not include it


@dataclass(frozen=True, kw_only=True)
class EpochEnd(Event):
    """An epoch has ended, with its evaluation."""

    type: ClassVar[str] = "epoch"
    epoch: int  # counted from 1
    step: int  # counted over all epochs
    metrics: Mapping[str, float | None]  # means over the epoch, those of the validation too
    seconds: float | None  # with the evaluation; None in a log without times


@dataclass(frozen=True, kw_only=True)
class Best(Event):
    """The best epoch so far, by the figure that the option `option` names.

    A later event of the same option replaces it.
    """

    type: ClassVar[str] = "best"
    option: str  # train.early_stop or run.keep_best
    figure: str
    epoch: int  # counted from 1
    step: int  # the last one of the epoch, counted over all epochs
    value: float | None
    files: Sequence[KeptModel] = ()  # the models that run.keep_best keeps, the best one first
    restores: bool = False  # whether the training gives the model the weights of this epoch at its end


@dataclass(frozen=True, kw_only=True)
class TestEnd(Event):
    """The test data have been evaluated, after the training."""

    type: ClassVar[str] = "test"
    epoch: int | None  # of whose end the weights are, counted from 1; None: your script evaluated as it does
    metrics: Mapping[str, float | None]  # with `test_` before their names
    samples: int | None
    seconds: float


BestEpoch = Annotated[Mapping[str, Any], Best, "option", "figure", "epoch"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Event):
    """What limits the speed by the figures so far (`verdict`), with confidence (0 to 1), evidence and remedies. A later
    diagnosis replaces it.
    """

    type: ClassVar[str] = "diagnosis"
    verdict: str  # one of VERDICTS
    sentence: str  # the verdict in words
    confidence: float
    steps: int  # measured steps on which it rests
    evidence: Sequence[PlainEvidence] = ()
    others: Sequence[str] = ()  # weaker verdicts
    remedies: Sequence[PlainRemedy] = ()  # in the order to try them
    learning: str = ""  # that it diverges, learns nothing or overfits, and by which figures; empty: not known
    learning_remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Warn(Event):
    """A warning for the user; `kind` is a word for programs, which is the same for all warnings with the same cause."""

    type: ClassVar[str] = "warning"
    kind: str
    message: str
    hint: str = ""  # what to do about it
    option: str = ""  # the key of the option that it concerns, or empty
    variables: Sequence[str] = ()  # the variables that a resumed run has not restored, by their paths

    @property
    def finding(self) -> Finding:
        return on_options("warning", self.option or (), self.message, self.hint)


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer(Event):
    """Memory has run out, and the training continues with an option changed, as `run.on_oom` says."""

    type: ClassVar[str] = "memory_answer"
    answer: Literal["accumulate", "halve"]
    number: int  # counts the answers of this launch, from 1
    option: str  # the key that is changed
    before: int  # its value
    after: int  # its new value
    ran_out_after_step: int | None  # None: in the first steps
    resumes_at_step: int | None  # the step of its checkpoint; None: it begins again
    message: str


@dataclass(frozen=True, kw_only=True)
class XlaAnswer(Event):
    """XLA could not compile the training, which continues without it: `compile.xla` was auto and is now false."""

    type: ClassVar[str] = "xla_answer"
    option: str  # the key that is changed
    before: str  # its value
    after: bool  # its new value
    resumes_at_step: int | None  # the step of its checkpoint; None: it begins again
    error: str  # XLA's message
    message: str


# An option of the run is changed, and another trainer continues with it.
OptionChanged = MemoryAnswer | XlaAnswer


@dataclass(frozen=True, kw_only=True)
class WatchAnswer(Event):
    """A rule of `run.watch` has acted, which it does once in a run; a warning says the same in words."""

    type: ClassVar[str] = "watch"
    rule: str  # its line
    action: Literal["notify", "warn", "stop", "give_way", "pause"]
    figure: str
    value: float | None  # of the figure, or its mean: a share, bytes, Wh, or as the training reports it
    step: int | None  # the newest step that was reported
    message: str


@dataclass(frozen=True, kw_only=True)
class Control(Event):
    """The training has done, or refused, what a person has asked of it while it goes on (gputui tell)."""

    type: ClassVar[str] = "control"
    id: str  # of the request, in controls.jsonl
    control: ControlName
    step: int  # after which it has effect, also in a resumed run
    message: str
    refused: bool = False
    factor: float | None = None  # of the learning rate
    learning_rate: float | None = None  # from then on
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # of the evaluation


@dataclass(frozen=True, kw_only=True)
class WorkerReadings(Event):
    """The newest figures of all workers of a training on several machines, read by the chief from their runs.

    In each step all workers wait for the slowest one.
    """

    type: ClassVar[str] = "workers"
    workers: Sequence[WorkerFigures]
    slowest: int | None = None  # the worker whose input wait is the longest, by a tenth of a step


@dataclass(frozen=True, kw_only=True)
class GradientExchange(Event):
    """How long the workers of a training on several machines take to exchange the gradients of a step.

    It is timed between two steps, while nothing else runs.
    """

    type: ClassVar[str] = "exchange"
    ms: float
    bytes: int  # of the gradients
    step: int  # timed after this step


@dataclass(frozen=True, kw_only=True)
class Fault(Event):
    """The error that ended the run: a `kind` for programs, a `message`, and a `hint` on what to do."""

    type: ClassVar[str] = "error"
    kind: str
    message: str
    hint: str = ""  # what to do about it

    @property
    def finding(self) -> Finding:
        return on_options("error", (), self.message, self.hint)


@dataclass(kw_only=True)
class TrialFigures:
    """The figures that the result of a run and the row of a proof's trial (trials/record.py) have in common."""

    outcome: str
    samples_per_second: float | None = None  # samples of the measured steps / their time
    global_batch_size: int | None = None  # samples of a full step, over all replicas
    input_wait: float | None = None  # the share of the step time spent waiting for the batch
    python_share: float | None = None  # the share of the step time in which no graph ran
    peak_memory_bytes: int | None = None  # of TensorFlow's allocator, on a GPU without the first step
    first_step_memory_bytes: int | None = None  # the same until the end of the first step; GPUs only
    peak_process_bytes: int | None = None  # of the trainer's process
    peak_address_space_bytes: int | None = None
    gpu_busy_mean: float | None = None
    gpu_power_mean_w: float | None = None
    sm_clock_mean_mhz: float | None = None  # while the GPUs work
    slowed_by_power: float | None = None  # the share of the time in which the power limit lowered the clock
    slowed_by_heat: float | None = None  # share of the time in which heat has lowered the clock
    sample_energy_j: float | None = None  # of all GPUs that train, per sample
    sample_energy_estimated_j: float | None = None  # the same without counters


@dataclass(kw_only=True)
class Summary(TrialFigures):
    """How a run ended, and its figures. Work that is done once is not part of the speed, and has its own fields."""

    outcome: Outcome  # how the run ended
    trainer_returncode: int | None = None  # negative: the signal that ended it
    step_ms: Mapping[str, float] | None = None  # over the measured steps, in windows of at least 50 ms
    measured_steps: int | None = 0  # without the warm-up; None: the trainer died with its clock
    measured_seconds: float | None = None  # duration of the measured steps; gives the mean speed with the batch size
    first_step_seconds: float | None = None  # including tracing and compiling
    startup_seconds: float | None = None  # from the command to the end of the first step
    first_evaluation_seconds: float | None = None  # tracing and compiling the evaluation, and its first steps
    first_checkpoint_seconds: float | None = None
    transfer: float | None = None  # copying a batch, as a share of the step time
    exchange_ms: float | None = None  # of the last `exchange` event
    traces: int | None = None  # traces of the training function
    gpu_energy_wh: float | None = None  # of all GPUs that train, over the whole run, by the driver's counters
    gpu_energy_estimated_wh: float | None = None  # the same without counters: power x time
    mfu: float | None = None  # the share of the GPUs' dense peak that the model's arithmetic reaches
    epochs: int = 0  # completed
    steps: int = 0  # over all epochs
    skipped_steps: int | None = None  # by the loss scaling of mixed_float16
    # Of the last epoch, or of its steps so far; and with `test_` before their names those of the test data.
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    test_epoch: int | None = None  # of whose end the weights are with which the test data were evaluated
    seconds: float | None = None  # the wall time of the run
    goodput: float | None = None  # the share of the wall time in training steps
    ended_by: str | None = None  # of a run that is ok: last_step, early_stop, callback, control or measured
    best: Sequence[BestEpoch] = ()  # the last event `best` of each option
    error: Mapping[str, str] | None = None  # `kind`, `message` and `hint`
    memory_answers: Sequence[Mapping[str, Any]] = ()  # each as its `memory_answer` event
    xla_answer: Mapping[str, Any] | None = None  # the `xla_answer` event, if XLA has failed
    watch: Sequence[Mapping[str, Any]] = ()  # what rules of run.watch have done, each as its `watch` event
    learning: str = ""  # as in the `diagnosis` event
    learning_remedy: str = ""
    code_changes: Sequence[Mapping[str, Any]] = ()  # edited code with which the run was resumed: `step` and `files`
    not_restored: Sequence[str] = ()  # variables (paths) and other state (texts) not restored: figures may differ


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The last event of a run. A run that was resumed has one for each launch."""

    type: ClassVar[str] = "finished"
    outcome: Outcome
    summary: Annotated[Mapping[str, Any], Summary]  # the content of `result.json`
