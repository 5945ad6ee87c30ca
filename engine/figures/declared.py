"""The figures of a run and of a proof's trial: of result.json, of progress events and of proof.json."""

from __future__ import annotations

from collections.abc import Sequence

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
           "for how long the power limit has lowered its clock since the driver was loaded", _NVML),
    Figure("slowed_by_heat_seconds", "slowed by heat", "seconds",
           "for how long heat has lowered its clock since the driver was loaded", _NVML),
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
           _PSUTIL, shown=(*_HISTORY, "host")),
    Figure("memory_used_bytes", "memory", "bytes", "memory that is not available to programs", _PSUTIL),
    Figure("memory_total_bytes", "memory in all", "bytes", "of the machine, or what the container may use", _PSUTIL),
    Figure("trainer_cpu", "trainer", "cores", "cores that the training uses", _PSUTIL, digits=1, shown=_HISTORY),
    Figure("trainer_bytes", "trainer", "bytes", "memory of the training", _PSUTIL, shown=_HISTORY),
    Figure("engine_bytes", "engine", "bytes", "memory of the process that watches the training", _PSUTIL),
)  # fmt: skip


_CLOCK = "the trainer's clock around steps, warm-up left out"
_COUNTED = "NVML's counter of energy (nvmlDeviceGetTotalEnergyConsumption)"
_ESTIMATED = "NVML's power, sampled, x time"
_SLOWED = "NVML's violation counters, or else the reasons in its readings"
LOSS = Figure(
    "metrics.loss", "training loss", "value",
    "mean over the steps of the last whole epoch; of a run that goes on, of the epoch so far", "Keras's metrics",
    short="loss", progress="loss", more_is_better=False,
    shown=("summary", "runs", "listing", "live"),
)  # fmt: skip
# In the order of the views' rows and columns.
RUN: tuple[Figure, ...] = (
    Figure("samples_per_second", "throughput", "samples/s", "samples trained in a second",
           "the samples of the measured steps, counted from their batches / the time of these steps", short="samples/s",
           more_is_better=True, progress="samples_per_second",
           shown=("compare", "summary", "runs", "listing", "live", "trial", "history")),
    Figure("gain", "gain", "change", "how much more samples a second than without the change",
           "the two trials of a pair; of a comparison, the median of the pairs", more_is_better=True,
           shown=("trial",)),
    Figure("step_ms.p50", "step time p50", "ms", "the median time of a training step", _CLOCK, short="step ms",
           more_is_better=False, progress="step_ms_p50",
           shown=("compare", "summary", "runs", "listing", "live", "history")),
    Figure("step_ms.p95", "step time p95", "ms", "95 of 100 training steps take no longer", _CLOCK,
           short="step p95 ms", more_is_better=False, progress="step_ms_p95", shown=("compare", "summary", "history")),
    Figure("step_ms", "step time", "ms", "the mean time of a training step", _CLOCK, short="step ms",
           more_is_better=False, shown=("trial",)),
    Figure("input_wait", "input wait", "share", "the part of the step time in which the training waits for its input",
           "the trainer's clock around the input's iterator", narrow="wait", more_is_better=False,
           progress="input_wait",
           shown=("compare", "summary", "runs", "listing", "live", "trial", "history")),
    Figure("python_share", "Python between steps", "share",
           "the part of the step time in which no graph runs: Python between two executions",
           "the step time without the executions and the input wait", short="Python", more_is_better=False,
           progress="python_share", shown=("compare", "trial", "history")),
    Figure("transfer", "copy to the GPU", "share",
           "the time of copying one batch to a GPU, compared with the step time; lost time if nothing is copied ahead",
           "copies of such a batch to the idle GPU / step time", short="copy", more_is_better=False,
           progress="transfer", shown=("compare", "summary")),
    Figure("exchange_ms", "exchange of gradients", "ms",
           "how long the workers of several machines take to exchange the gradients of one step, timed alone",
           "an all-reduce of the same size by the same strategy, between two executions", short="exchange",
           more_is_better=False, shown=("compare", "summary")),
    Figure("mfu", "MFU", "share",
           "model FLOPs utilization: the part of the GPUs' dense peak that the model's own arithmetic reaches",
           "FLOPs of a sample * samples/s / peak of the GPUs that train", more_is_better=True, progress="mfu",
           shown=("compare", "summary", "history")),
    Figure("gpu_busy_mean", "GPU busy", "share", "the part of the time in which the GPUs that train ran a kernel",
           "NVML's utilization, mean without evaluation and saving", narrow="busy", more_is_better=True,
           shown=("compare", "summary", "trial")),
    Figure("gpu_power_mean_w", "GPU power", "W", "the mean power that a GPU draws while it trains",
           "NVML's energy / time, or its power, without evaluation and saving", narrow="power", digits=0,
           shown=("compare", "summary", "trial")),
    Figure("peak_memory_bytes", "peak tensor memory", "bytes",
           "the most that TensorFlow's tensors have taken of one device; of a GPU after the first step",
           "tf.config.experimental.get_memory_info",
           short="peak tensors", narrow="memory", more_is_better=False, of_gpu=True,
           shown=("compare", "summary", "runs", "listing", "trial")),
    Figure("first_step_memory_bytes", "peak in the first step", "bytes",
           "the most that TensorFlow has taken of one GPU until the end of the first step, in which cuDNN takes memory "
           "to try its algorithms", "tf.config.experimental.get_memory_info",
           short="first step's peak", narrow="1st step", more_is_better=False, of_gpu=True,
           shown=("compare", "trial")),
    Figure("peak_process_bytes", "peak host memory", "bytes",
           "the most memory of the host that the training's process has had at one time, libraries included; that of "
           "other processes, such as workers of a user's own input, is not in it",
           "VmHWM of /proc/self/status; of a trainer that died, ru_maxrss", narrow="host", more_is_better=False,
           shown=("compare", "summary", "runs", "listing", "trial")),
    Figure("peak_address_space_bytes", "peak address space", "bytes",
           "the most address space that the training's process has reserved; only if it is limited (ulimit -v)",
           "VmPeak of /proc/self/status", narrow="space", more_is_better=False, shown=("trial",)),
    LOSS,
    Figure("window_loss", "loss of the last steps", "value", "mean over the steps since the progress before",
           "the running sum of Keras's loss", more_is_better=False, progress="window_loss", shown=("history",)),
    Figure("loss_at_samples", "loss", "value", "the running loss after as many samples as the other side has seen",
           "Keras's metrics", more_is_better=False, shown=("trial",)),
    Figure("sm_clock_mean_mhz", "SM clock", "MHz", "the mean clock of the multiprocessors while the GPUs train", "NVML",
           narrow="MHz", digits=0, shown=("compare", "trial")),
    Figure("slowed_by_power", "slowed by power", "share",
           "the part of the time in which the power limit lowers the clock; usual at full load", _SLOWED,
           narrow="power cap", shown=("compare", "trial")),
    Figure("slowed_by_heat", "slowed by heat", "share", "the part of the time in which heat lowers the clock",
           _SLOWED, narrow="heat", more_is_better=False, shown=("compare", "trial")),
    Figure("gpu_energy_wh", "GPU energy", "Wh",
           "the energy of the GPUs that train, over the whole run; of a resumed run since it was resumed", _COUNTED,
           narrow="energy", more_is_better=False, shown=("compare", "summary")),
    Figure("gpu_energy_estimated_wh", "GPU energy, estimated", "Wh", "the same of GPUs whose driver does not count it",
           _ESTIMATED, short="energy, estimated", more_is_better=False, shown=("compare", "summary")),
    Figure("sample_energy_j", "GPU energy per sample", "J",
           "the energy of the GPUs that train for one sample, without evaluation and saving", f"{_COUNTED} / samples",
           short="J per sample", narrow="J/sample", more_is_better=False, shown=("compare", "trial")),
    Figure("sample_energy_estimated_j", "GPU energy per sample, estimated", "J",
           "the same of GPUs whose driver does not count it", f"{_ESTIMATED} / samples",
           short="J per sample, estimated", narrow="~J/sample", more_is_better=False, shown=("compare", "trial")),
    Figure("loss_scale", "loss scale", "count", "the factor of mixed_float16 that keeps gradients from underflowing",
           "Keras's LossScaleOptimizer", progress="loss_scale", shown=("history",)),
    Figure("skipped_steps", "skipped steps", "count",
           "steps that changed no weight, as their gradients were not finite at this loss scale",
           "Keras's LossScaleOptimizer", short="skipped", more_is_better=False, progress="skipped_steps",
           shown=("compare", "summary", "history")),
    Figure("learning_rate", "learning rate", "value", "the optimizer's, for the next step", "Keras's optimizer",
           progress="learning_rate", shown=("history",)),
    Figure("first_step_seconds", "first step", "seconds", "the first step, with its tracing and compiling", _CLOCK,
           more_is_better=False, shown=("compare", "summary")),
    Figure("startup_seconds", "start-up", "seconds", "from the command to the end of the first step", "the run's clock",
           more_is_better=False, shown=("compare", "summary")),
    Figure("first_evaluation_seconds", "first evaluation", "seconds",
           "tracing and compiling of the evaluation, with its first steps", _CLOCK, short="first eval",
           more_is_better=False, shown=("compare", "summary")),
    Figure("first_checkpoint_seconds", "first checkpoint", "seconds", "writing the first checkpoint", _CLOCK,
           short="first save", more_is_better=False, shown=("compare",)),
    Figure("seconds", "whole time", "seconds", "from the command to the result", "the run's clock", narrow="time",
           shown=("compare", "summary", "listing", "trial")),
    Figure("goodput", "time in steps", "share",
           "the part of the whole time that was training steps, also called goodput",
           "time of all steps / whole time", narrow="goodput", more_is_better=True, shown=("compare", "summary")),
    Figure("epochs", "epochs", "count", "whole epochs", "counted", shown=("summary",)),
    Figure("steps", "steps", "count", "training steps, over all epochs", "counted", shown=("compare", "summary")),
    Figure("measured_steps", "measured steps", "count", "the steps from which the step time is computed", "counted",
           shown=("compare", "summary")),
    Figure("traces", "traces", "count", "how often TensorFlow has traced the training function; 1 or 2 is usual",
           "tf.function's count of traces", more_is_better=False, progress="traces", shown=("compare",)),
    Figure("eta_seconds", "time left", "seconds",
           "the time until the last step, with evaluations, checkpoints and all else before it",
           "steps left * (mean time of the last steps + time outside of steps / steps)",
           progress="eta_seconds", shown=("live",)),
)  # fmt: skip
# Fields of result.json that are not shown as figures: key -> reason.
NOT_SHOWN = {
    "outcome": "a word: every view shows it as the run's state",
    "trainer_returncode": "the process's status, which the error puts in words",
    "measured_seconds": "with measured_steps it gives the mean step time of a proof's trial; a person reads the median",
    "global_batch_size": "a setting: the options show it",
    "ended_by": "a word, which the last lines of a run put in a sentence",
    "best": "epochs, which the last lines of a run put in sentences",
    "error": "text: every view shows it as a message",
    "watch": "what rules have done, each a sentence in the last lines of a run",
    "memory_answers": "changes of options, which a warning names when they are made",
    "xla_answer": "a change of an option, which a warning names when it is made",
    "not_restored": "texts: a warning of the resumed run, and a note of a comparison, have them",
    "learning": "a sentence, which views show next to the verdict on the speed",
    "learning_remedy": "a sentence, which follows it",
    "code_changes": "changes of the user's code, which a warning names when the run is resumed",
}
_BY_KEY = {figure.key: figure for figure in RUN}
# Parts of the names of metrics, and whether the higher value is the better one.
HIGHER_IS_BETTER = {
    "loss": False, "error": False, "perplexity": False, "mse": False, "mae": False, "acc": True, "auc": True,
    "precision": True, "recall": True, "f1": True, "iou": True, "dice": True,
}  # fmt: skip


def shown(view: View) -> tuple[Figure, ...]:
    """Return the figures of a run or trial that a view shows, in the order of its rows or columns."""
    return tuple(figure for figure in RUN if view in figure.shown)


def summed_up(devices: Sequence[str]) -> tuple[Figure, ...]:
    """The figures in the summary of a run on `devices` (TensorFlow's names), without those of GPUs on CPUs alone."""
    cpu_alone = bool(devices) and all("CPU:" in name for name in devices)
    return tuple(figure for figure in shown("summary") if not (cpu_alone and figure.of_gpu))


def of_run(key: str) -> Figure:
    """Return the figure of a run or trial with this key. Raises KeyError if it is not declared."""
    return _BY_KEY[key]


def metric(name: str) -> Figure:
    """Return the figure of a metric of the user's own model. `name` is the metric's name in Keras."""
    better = next((higher for word, higher in HIGHER_IS_BETTER.items() if word in name.lower()), True)
    return Figure(f"metrics.{name}", name.replace("_", " "), "value", LOSS.about, LOSS.source, more_is_better=better)


# ---- figures of a diagnosis and a profile ---------------------------------------------------------


_EVENTS, _XPROF = "the run's events", "XProf"
# Figures of a diagnosis that are not figures of a run, a GPU or the host.
_MEASURED = _by_key(
    Figure("throttled", "throttled", "share", "the part of the time in which heat or a fault slows the GPU down",
           "NVML's violation counters and the reasons in its readings"),
    Figure("clock_share", "clock", "share", "of the highest clock of the multiprocessors, mean while they work",
           "NVML"),
    Figure("power_capped", "at the power limit", "share", "the part of the time in which the power limit lowers the "
           "clock", "NVML's violation counters, or else the reasons in its readings"),
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
# The parts of a step's time, by the fields of Shares (profile/reports.py).
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
    """Return the figure with this name: of a run, a GPU, the host or a diagnosis. Raises KeyError if it is not
    declared.
    """
    return _ALL[name]


def is_declared(name: str) -> bool:
    return name in _ALL


def evidence(name: str, unit: str) -> Figure:
    """The figure of a piece of evidence, made from `name` and `unit` if it is not declared with this unit."""
    figure = _ALL.get(name)
    return figure if figure is not None and figure.unit == unit else Figure(name, name.replace("_", " "), unit, "", "")
