"""Checks what a run keeps if it ends early: by its job's time limit, by a signal, or because somebody stops it.

A warning before a long training says how long it will take, and that nothing of it would be kept. The time is estimated
from the newest run on this machine of the same preset with the same options, except those on which the time of an epoch
does not depend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import runs
from ..figures import at
from ..job import slurm
from ..job.machine_gpus import Machine
from ..options import OPTIONS, Options
from ..presets import Preset
from ..runs import Run
from ..runs.launched_with import options_of
from ..runs.titles import title_of
from ..system.identity import Place
from ..units import clock, counted, estimate
from .option_finding import Finding

LONG_SECONDS = 600.0
MANY_EPOCHS = 100  # much for a training whose time is not known
LOOKED_AT = 20  # runs, the newest first
CHECKPOINT = "run.checkpoint"
# Groups of options, and single ones, on which the time of an epoch does not depend.
_WITHOUT_EFFECT = (
    "run.", "train.epochs", "train.seed", "train.learning_rate", "train.warmup_steps", "train.schedule",
    "train.early_stop", "train.plateau",
)  # fmt: skip


def unkept(preset: Preset) -> Iterator[Finding]:
    """Yield a warning if the run has no checkpoints and much training would be lost if it ended early.

    Much is an expected time of 10 minutes or more; if the time is not known, 100 epochs or more.
    """
    options = preset.options
    if options.run.checkpoint != "off":
        return
    epochs, seconds = options.train.epochs, expected_seconds(preset)
    limit = options.run.max_minutes
    if seconds is not None and isinstance(limit, int | float):
        seconds = min(seconds, limit * 60)
    if seconds < LONG_SECONDS if seconds is not None else epochs < MANY_EPOCHS:
        return
    about = f", about {estimate(seconds)}" if seconds is not None else ""
    message = f"{counted(epochs, 'epochs')}{about}, no checkpoint: a run that ends early cannot be resumed"
    yield Finding("warning", (CHECKPOINT,), message, f"{CHECKPOINT}=epoch writes one after each epoch")


def expected_seconds(preset: Preset) -> float | None:
    """Return how long the preset will train, in seconds, according to an earlier run with the same options on this
    machine.

    Options on which the time of an epoch does not depend may differ. None if none of the 20 newest runs is such a run
    and has completed an epoch.
    """
    mine, here = _what_matters(_values(preset.options)), Place.here().host
    for run in runs.all_runs()[:LOOKED_AT]:
        if title_of(run).preset != preset.name or run.status.get("host", here) != here:
            continue
        if (measured := _times(run)) is not None and _what_matters(options_of(run)) == mine:
            start, epoch = measured
            return start + epoch * preset.options.train.epochs
    return None


def _times(run: Run) -> tuple[float, float] | None:
    """Return two durations of a run in seconds: from its launch to the end of its first step, and the mean of its
    epochs.

    None if the result has no duration or no completed epoch.
    """
    result = run.whole_result  # over all launches, as the epochs are counted
    whole, start, epochs = (at(result, key) for key in ("seconds", "startup_seconds", "epochs"))
    if not whole or not epochs:
        return None
    start = start or 0.0
    return start, max(0.0, whole - start) / epochs


def _values(options: Options) -> dict[str, Any]:
    return {info.key: getattr(getattr(options, info.group), info.name) for info in OPTIONS}


def _what_matters(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith(_WITHOUT_EFFECT)}


# ---- the job's time limit and its signal ---------------------------------------------------------


def time_limit(options: Options, machine: Machine) -> Iterator[Finding]:
    """Yield a note about the effect of run.max_minutes=auto on this machine; nothing for another value.

    In a Slurm job, also yield a warning if the run has no checkpoints.
    """
    key, job = "run.max_minutes", machine.job_id
    if options.run.max_minutes != "auto":
        return
    ends, usable = machine.job_ends, machine.job_ends.usable_seconds if machine.job_ends else None
    if not job:
        message, change = "outside of a Slurm job auto is no limit", "for a limit here give minutes"
    elif ends is None or usable is None:
        message, change = f"squeue is asked for the end of the Slurm job {job}", f"the run ends itself {slurm.MARGIN}"
    else:
        message = f"the Slurm job {job} ends in {clock(max(0.0, ends.seconds or 0.0))}"
        change = f"the run ends itself after {clock(usable)}"
    yield Finding("note", (key,), message, change)
    if job and options.run.checkpoint == "off":
        yield _nothing_kept(key)


def stop_signal(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Yield a warning if run.stop_signal is set and the run has no checkpoints."""
    if options.run.stop_signal != "none" and options.run.checkpoint == "off":
        yield _nothing_kept("run.stop_signal")


def _nothing_kept(key: str) -> Finding:
    message = "without checkpoints a run that is ended with its job cannot be resumed"
    return Finding("warning", (key, "run.checkpoint"), message, "set run.checkpoint=epoch, or every so many steps")
