"""The figures of a run and of a proof's trial: of result.json, of progress events and of proof.json."""

from __future__ import annotations

from collections.abc import Sequence

from .figure import Figure, View

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
    Figure("samples_per_second", "throughput", "samples/s", "samples that the training takes in a second",
           "global batch / median step time; of a proof's trial, / mean step time", short="samples/s",
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
           "the time of copying one batch to a GPU, compared with the step time: lost where nothing is copied ahead",
           "copies of such a batch to the idle GPU / step time", short="copy", more_is_better=False,
           progress="transfer", shown=("compare", "summary")),
    Figure("exchange_ms", "exchange of gradients", "ms",
           "how long the workers of several machines take to exchange the gradients of one step, timed alone",
           "an all-reduce of the same size by the same strategy, between two executions", short="exchange",
           more_is_better=False, shown=("compare", "summary")),
    Figure("mfu", "MFU", "share",
           "model FLOPs utilization: the part of the GPUs' dense peak that the model's own arithmetic reaches",
           "FLOPs of a step / (step time * peak of the GPUs that train)", more_is_better=True, progress="mfu",
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
           "the most address space that the training's process has reserved; only where it is limited (ulimit -v)",
           "VmPeak of /proc/self/status", narrow="space", more_is_better=False, shown=("trial",)),
    LOSS,
    Figure("window_loss", "loss of the last steps", "value", "mean over the steps since the progress before",
           "the running sum of Keras's loss", more_is_better=False, progress="window_loss", shown=("history",)),
    Figure("loss_at_samples", "loss", "value", "the running loss after as many samples as the other side has seen",
           "Keras's metrics", more_is_better=False, shown=("trial",)),
    Figure("sm_clock_mean_mhz", "SM clock", "MHz", "the mean clock of the multiprocessors while the GPUs train", "NVML",
           narrow="MHz", digits=0, shown=("compare", "trial")),
    Figure("slowed_by_power", "slowed by power", "share",
           "the part of the time in which the power limit holds the clock down; usual at full load", _SLOWED,
           narrow="power cap", shown=("compare", "trial")),
    Figure("slowed_by_heat", "slowed by heat", "share", "the part of the time in which heat holds the clock down",
           _SLOWED, narrow="heat", more_is_better=False, shown=("compare", "trial")),
    Figure("gpu_energy_wh", "GPU energy", "Wh",
           "what the GPUs that train have drawn over the whole run; of a resumed run since it was resumed", _COUNTED,
           narrow="energy", more_is_better=False, shown=("compare", "summary")),
    Figure("gpu_energy_estimated_wh", "GPU energy, estimated", "Wh", "the same of GPUs whose driver does not count it",
           _ESTIMATED, short="energy, estimated", more_is_better=False, shown=("compare", "summary")),
    Figure("sample_energy_j", "GPU energy per sample", "J",
           "what the GPUs that train draw for one sample, without evaluation and saving", f"{_COUNTED} / samples",
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
    Figure("measured_steps", "measured steps", "count", "the steps on which the step time rests", "counted",
           shown=("compare", "summary")),
    Figure("traces", "traces", "count", "how often TensorFlow has traced the training function; 1 or 2 is usual",
           "tf.function's count of traces", more_is_better=False, progress="traces", shown=("compare",)),
    Figure("eta_seconds", "time left", "seconds", "the time that the steps left will take", "steps left * step time",
           progress="eta_seconds", shown=("live",)),
)  # fmt: skip
# Fields of result.json that are not shown as figures: key -> reason.
NOT_SHOWN = {
    "outcome": "a word: every view shows it as the run's state",
    "trainer_returncode": "the process's status, which the error puts in words",
    "measured_seconds": "with measured_steps it gives the mean speed of a proof's trial; a person reads the step time",
    "global_batch_size": "a setting: the options show it",
    "error": "text: every view shows it as a message",
    "memory_answers": "changes of options, of which a warning tells when they are made",
    "xla_answer": "a change of an option, of which a warning tells when it is made",
    "code_changes": "changes of the user's code, of which a warning tells when the run is resumed",
}
_BY_KEY = {figure.key: figure for figure in RUN}
_LESS_IS_BETTER = ("loss", "error", "mae", "mse")


def shown(view: View) -> tuple[Figure, ...]:
    """Return the figures that a view shows, in the order of its rows or columns."""
    return tuple(figure for figure in RUN if view in figure.shown)


def summed_up(devices: Sequence[str]) -> tuple[Figure, ...]:
    """Return the figures in the summary of a run; `devices` are TensorFlow's names of the devices on which it has
    trained.
    """
    cpu_alone = bool(devices) and all("CPU:" in name for name in devices)
    return tuple(figure for figure in shown("summary") if not (cpu_alone and figure.of_gpu))


def of_run(key: str) -> Figure:
    """Return the figure with this key. Raises KeyError if it is not declared."""
    return _BY_KEY[key]


def metric(name: str) -> Figure:
    """Return the figure of a metric of the user's own model; `name` is its name in Keras."""
    better = not any(word in name for word in _LESS_IS_BETTER)
    return Figure(f"metrics.{name}", name.replace("_", " "), "value", LOSS.about, LOSS.source, more_is_better=better)
