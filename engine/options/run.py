"""What a run keeps, when it is ended, and in which Python it trains: the group `run`."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ..follow_targets import FOLLOW_TARGETS, FollowTarget
from .catalogue import Group, Limits, off_if_false, option
from .training import OF_OWN_MODELS, OFF, FigureName, WatchedFigure, watched
from .watch_rules import WORDS, as_list, parsed

Steps = Annotated[int, Limits(ge=1, le=1_000_000_000)]
WATCHER = "needs a process that watches this one"
BEST_MODELS = "best models"  # a part of the group
STEP_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def _target_list(value: object) -> object:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(dict.fromkeys(value))
    return value


def _is_step_range(value: str) -> bool:
    match = STEP_RANGE.fullmatch(value)
    return value == "off" or (match is not None and 1 <= int(match[1]) <= int(match[2]))


@dataclass(frozen=True)
class Run(Group):
    """What a run keeps, when it is ended, and in which Python it trains."""

    checkpoint: Literal["off", "epoch"] | Steps = option(
        "off",
        "write a checkpoint: off, after each epoch, or every so many steps; resuming from it is exact",
        call="tf.train.Checkpoint",
        helps="gputui resume continues after a stop, a crash or a reboot",
        hurts="the training waits while a checkpoint is written",
        essential=9,
        other_names="ckpt checkpoints checkpointing save_freq save_steps modelcheckpoint",
    )
    keep: int = option(
        2,
        "how many checkpoints are kept: the newest ones",
        helps="if the newest one is damaged, gputui resume takes the one before it",
        hurts="each takes the disk space of the weights and of the optimizer's variables",
        ge=1,
        le=1000,
        not_exported="Keras' callbacks keep one checkpoint",
        other_names="keep_checkpoints save_total_limit max_to_keep",
    )
    on_oom: Literal["stop", "accumulate", "halve"] = option(
        "stop",
        "what follows if memory runs out: stop (the run ends), accumulate (it continues from its last checkpoint, "
        "with each batch in twice as many parts: train.micro_batches) or halve (it begins again with half the batch "
        "size)",
        helps="a run that is too large for the memory of this GPU can still complete, and says what was changed; "
        "accumulate keeps global batch, steps and learning rate",
        hurts="halve always begins again, accumulate only without run.checkpoint; halve keeps the learning rate, "
        "which is usually too high for a smaller batch; for accumulate see train.micro_batches",
        not_exported=WATCHER,
    )
    tries: int = option(
        1,
        "how often a queued run is started in all, if its GPU is lost or the machine restarts",
        helps="the queue starts it again without you, from its last checkpoint if it has one",
        hurts="without run.checkpoint it begins again",
        ge=1,
        le=100,
        not_exported="a script is in no queue",
    )
    give_way: bool = option(
        False,
        "let a queued run write a checkpoint and return to the queue if another user waits for its GPU, or if a "
        "process of another user appears on it",
        helps="a long run uses a shared GPU while nobody else needs it, and continues later to the same losses",
        hurts="each time the step, the checkpoint and a new start take a minute or more",
        not_exported="a script is in no queue",
    )
    per_gpu: int = option(
        1,
        "among how many queued runs a GPU is shared: runs of one queue with the same number train on it at once, each "
        "with its part of the memory and of the CPU cores",
        helps="if a run leaves its GPU idle, several at once train more samples per second; gputui scaling --copies "
        "measures how many",
        hurts="each run is slower, and has its part of the memory only, also while it is alone",
        ge=1,
        le=16,
        gpu_only=True,
        not_exported="a script is in no queue",
    )
    save_model: bool = option(
        False,
        "save the trained model as model.keras in the run folder",
        call="model.save",
        helps="keras.models.load_model reads it, for evaluation or for use elsewhere",
        hurts="disk space, and some time at the end of the run",
        other_names="save export_model saved_model",
    )
    keep_best: Literal["off"] | FigureName = option(
        OFF,
        "keep the model of the epoch with the best value of this figure, as best/epoch-NNNN.keras in the run folder: "
        "loss, val_loss, accuracy, val_accuracy, or any figure of your own code",
        call="keras.callbacks.ModelCheckpoint(monitor=, save_best_only=True)",
        helps="the best model is there even if the training overfits later, or does not reach its end",
        hurts="the training waits while a file is written",
        part=BEST_MODELS,
        examples=OF_OWN_MODELS,
        other_names="save_best save_best_only best_model",
    )
    keep_best_count: int = option(
        1,
        "how many models run.keep_best keeps: those of the best epochs",
        helps="averages and ensembles of several models",
        hurts="each takes the disk space of the weights",
        ge=1,
        le=1000,
        part=BEST_MODELS,
        not_exported="ModelCheckpoint keeps one file, that of the best epoch",
        other_names="save_top_k top_k",
    )
    profile: str = option(
        "off",
        "write TensorFlow's profile of these steps: off, or FIRST-LAST such as 50-60",
        call="tf.profiler.experimental",
        helps="gputui diagnose then names the operations that take the time of a step (needs xprof)",
        hurts="those steps are slower",
        other_names="profiler trace tracing xprof nsight",
        reads=off_if_false,
        checks=_is_step_range,
    )
    max_minutes: Literal["auto"] | Annotated[float, Limits(gt=0, le=1_000_000)] | None = option(
        None,
        "end the run gracefully after this time; auto: 2 minutes before the time limit of the Slurm job, or a tenth of "
        "the time that is left if that is less; outside of a job auto sets no limit",
        helps="a job with a time limit ends before it is killed, with a checkpoint if run.checkpoint is on",
        hurts="a run whose limit is too short ends with outcome timeout, in the middle of an epoch",
        unit="minutes",
        not_exported="auto is the time limit of the job that gputui runs in; give minutes",
        other_names="max_time time_limit limit walltime slurm",
    )
    stop_signal: Literal["none", "SIGUSR1", "SIGUSR2"] = option(
        "none",
        "a signal of the job's scheduler that ends the run gracefully, as SIGTERM does; it may be sent to the command, "
        "to the engine or to all processes of the job step",
        helps="sbatch --signal=B:USR1@120 gives the run two minutes for a checkpoint if run.checkpoint is on; if the "
        "run can be resumed, the command ends with exit code 75",
        hurts="no effect if no scheduler sends it",
        not_exported=WATCHER,
        other_names="sigusr1 sigusr2 usr1 signal preemption preempt",
        reads=lambda value: f"SIG{value}" if value in ("USR1", "USR2") else value,  # as Slurm names them
    )
    measure_seconds: Annotated[float, Limits(gt=0, le=1_000_000)] | None = option(
        None,
        "end the run, with outcome ok, as soon as this much time after the warm-up and at least 20 steps are measured",
        helps="two settings are compared over the same time; slow steps take longer, up to 12 times the seconds; with "
        "input.cache on, the pass that fills the cache belongs to the warm-up",
        unit="seconds",
        not_exported="ends a run that is measured; a script trains to its end",
    )
    hang_seconds: Literal["off"] | Annotated[float, Limits(ge=1, le=1_000_000)] = option(
        300.0,
        "end the run as hung if no step is completed for this long while it trains or evaluates, or if the process "
        "uses no CPU time for this long in any other phase",
        helps="a run that hangs on a device or on communication between GPUs does not occupy the GPUs forever",
        hurts="the limit is longer if steps take long (see docs/troubleshooting.md), and 24 times as long for the "
        "first step, which may be compiling",
        unit="seconds",
        not_exported=WATCHER,
        other_names="timeout hang watchdog stall",
    )
    sample_seconds: float = option(
        1.0,
        "time between two readings of the GPUs and the host",
        helps="a shorter time shows short pauses of the GPUs",
        hurts="a shorter time takes more of the CPU and the disk, and of a slow driver",
        unit="seconds",
        ge=0.1,
        le=3600.0,
        not_exported=WATCHER,
        other_names="sampling_interval poll interval",
    )
    pcie: bool = option(
        False,
        "read the PCIe traffic of GPUs before Hopper, too; later ones report it at each reading",
        call="nvmlDeviceGetPcieThroughput",
        helps="shows how much of the bus the copies of batches use",
        hurts="each reading of it keeps the driver busy for 40 ms",
        gpu_only=True,
        not_exported=WATCHER,
    )
    follow: Annotated[
        list[FollowTarget], Limits(f"a list of {', '.join(FOLLOW_TARGETS[:-1])} and {FOLLOW_TARGETS[-1]}")
    ] = option(
        [],
        "write the figures to these targets while the run goes on, each by a process of its own "
        "(docs/operations.md): tensorboard, prometheus (a text file for node_exporter), mlflow, wandb, trackio",
        helps="other tools show the run live; gputui follow does the same for a run that goes on or has ended",
        hurts="some memory, and CPU time that no other process uses; the training never waits for a target",
        not_exported=WATCHER,
        other_names="tracking logger loggers report_to callbacks_log tensorboard_dir mlflow_tracking",
        reads=_target_list,
    )
    code: Literal["live", "copy"] = option(
        "live",
        "the Python files of your own code that are trained: those in your folder (live), or the copy of them in the "
        "run folder, made when the run is started or queued (copy)",
        helps="with copy you can edit your files while the run starts, and resume it with the same code",
        hurts="with copy, errors name files of the run folder, and __file__ lies there (docs/own-code.md)",
        not_exported="a script imports the code from its present folder",
    )
    python: Annotated[str, Limits(min_length=1)] | None = option(
        None,
        "the Python that trains: its path, or the folder of a conda or virtual environment; relative to the preset's "
        "file; not given: GPUTUI_PYTHON, or else the Python in which gputui is installed",
        helps="a training can use the TensorFlow and the packages of another environment, in which gputui need not be "
        "installed",
        hurts="it must be Python 3.11 to 3.13 with TensorFlow and Keras",
        not_exported="you choose the Python that runs a script",
    )
    watch: Annotated[list[str], Limits(WORDS)] = option(
        [],
        "rules that act once when a figure crosses its bound: notify, warn, stop, give_way or pause, then if and the "
        "figure; docs/operations.md has all figures",
        helps="you are told of a training that goes wrong or wastes its GPU, or it ends itself, while you are away",
        hurts="a bound that is too strict ends a good training",
        not_exported=WATCHER,
        examples=("stop if loss > 10", "notify if gpu_busy < 30% for 5 min", "pause if energy > 5 kWh"),
        other_names="rules alerts alarm budget watchdog energy cost",
        reads=as_list,
        checks=lambda value: parsed(value) is not None,
    )

    @property
    def keeps_best_by(self) -> WatchedFigure | None:
        """The figure by which the best models are chosen; None if run.keep_best is off."""
        return watched(self.keep_best)

    @property
    def profile_steps(self) -> tuple[int, int] | None:
        """The first and the last step (counted from 1) that are profiled; None if run.profile is off."""
        match = STEP_RANGE.fullmatch(self.profile)
        return (int(match[1]), int(match[2])) if match else None


NOT_EXPORTED = "a script sends no notice"
SCHEMES = ("https://", "http://")
BEGINNINGS = (*SCHEMES, "$")  # of an address: or a variable that holds it


@dataclass(frozen=True)
class Notify(Group):
    """Where a notice is sent when a run or a measurement ends. What the preset does not give is taken from the
    settings file, which also decides for the queue; the notice is described in docs/operations.md.
    """

    private: ClassVar[bool] = True

    command: Annotated[str, Limits(min_length=1)] | None = option(
        None,
        "a command of the shell that gets the notice, in variables of its environment and as JSON on standard input",
        helps="sends mail, or calls any program of yours",
        hurts="after 10 s it is ended, with its children",
        not_exported=NOT_EXPORTED,
        other_names="mail email sendmail hook callback on_end",
    )
    url: Annotated[str, Limits("an address that begins with https://, http:// or $NAME")] | None = option(
        None,
        "an address to which the notice is sent by HTTP POST; $NAME in it is a variable of the environment",
        helps="ntfy, Slack and other services show the notice on your phone or in a channel",
        hurts="an address with a token is a secret: keep it in the settings file or in a variable, not in a preset "
        "that you share",
        not_exported=NOT_EXPORTED,
        other_names="webhook slack ntfy mattermost teams alert",
        checks=lambda value: value.startswith(BEGINNINGS),
    )
    format: Literal["text", "slack", "json"] | None = option(
        None,
        "the content that is sent to the address: plain text, JSON for Slack ({text: ...}), or all fields as JSON; "
        "not given: text",
        helps="text is right for ntfy, slack for Slack and Mattermost",
        not_exported=NOT_EXPORTED,
    )
    when: Literal["end", "failure", "never"] | None = option(
        None,
        "when a notice is sent: at each end, only after a failure, or never; not given: end",
        helps="failure: a sweep of many runs sends only what needs you",
        not_exported=NOT_EXPORTED,
    )
