"""The request for a sweep, and what is refused before the first training."""

from __future__ import annotations

import itertools
import math
import os
import re
import secrets
from collections.abc import Sequence
from typing import Any

from .. import checks
from ..checks import option_rules
from ..figures import HIGHER_IS_BETTER
from ..finding import errors
from ..job import slurm as slurm
from ..options import gpu_choice
from ..options.training import figure_of
from ..presets import Preset, PresetError
from ..proof import request
from ..proof.request import ProofError, Request
from ..queue import adding, slurm_queue
from ..trials.sweep_record import SweepSettings
from ..tune.wide import storage
from . import decision, shared_study, swept_values
from .trainings import trial_preset

MOST_TRIALS = 10_000
MOST_CHECKED = 50  # combinations that are checked before the start; the others fail one by one
IN_SLURM = 8  # trials that are submitted at once if nothing else is asked for


def of_preset(preset: Preset, over: Sequence[str], metric: str, halve_from: int | None, **more: Any) -> Request:
    """Return the request for a sweep, also of a preset with unsaved changes. Raises PresetError and ProofError."""
    sweep = settings_of(preset, over, metric, halve_from, **more)
    made = request.of_opened("sweep", preset, sweep=sweep, limit_seconds=60 * sweep.minutes)
    # the first combination that cannot be trained on this machine is refused
    settings = (
        swept_values.grid(sweep.axes)
        if sweep.sampler == "grid"
        else swept_values.distinct(sweep.axes, made.seed, min(MOST_CHECKED, sweep.most_trials or 0))
    )
    here = adding.machine()
    for changes in itertools.islice(settings, MOST_CHECKED):
        try:
            options = trial_preset(made, changes, made.seed).options
        except PresetError as fault:
            raise ProofError(str(fault).replace("--set ", "--over ", 1)) from None
        if options.workload.entry is None and (own := next(filter(swept_values.is_argument, changes), "")):
            raise ProofError(f"--over {own}: this is a value of own code, and the preset has no workload.entry")
        if lack := option_rules.lacks_figure(options, figure_of(sweep.metric)):
            raise ProofError(f"--metric {sweep.metric}: {lack[0]}; name {' or '.join(lack[1])}")
        for conflict in errors(checks.check(options, here)):
            raise ProofError(f"{' '.join(swept_values.as_settings(changes))}: {conflict}")
    shared_study.check(made)
    return made


def settings_of(preset: Preset, over: Sequence[str], metric: str, halve_from: int | None, **more: Any) -> SweepSettings:
    """Return what a sweep is to do here; `halve_from` is the first rung, or 0. Raises PresetError, ProofError."""
    sampler, options, here = more.get("sampler", "grid"), preset.options, adding.machine()
    axes = [swept_values.axis(text, sampler == "grid") for text in over]
    if not axes:
        raise ProofError("say what to sweep, such as --over learning_rate=1e-3,3e-3")
    keys = [axis.key for axis in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), ""):
        raise ProofError(f"--over {twice} is given twice: write its values as one list")
    if sampler == "grid":
        if more.get("most_trials") is not None:
            raise ProofError("--trials is for --sampler random; a grid has all combinations")
        if (size := math.prod(len(axis.values) for axis in axes)) > MOST_TRIALS:
            raise ProofError(f"the grid has {size:,} settings; give fewer values, or --sampler random --trials N")
        if size < 2:
            raise ProofError(
                "one setting is no sweep: give at least two values, such as --over learning_rate=1e-3,3e-3"
            )
    elif not more.get("most_trials"):
        raise ProofError(f"--sampler {sampler} needs --trials N")
    if sampler == "tpe":
        storage.require("--sampler tpe needs")
    if 0 < more.get("proof_seeds", decision.LEAST_SEEDS) < decision.LEAST_SEEDS:
        raise ProofError(f"--proof-seeds: at least {decision.LEAST_SEEDS} are needed for a spread, or 0 for no proof")
    if sampler == "tpe" and halve_from:
        raise ProofError(
            "--halving goes with --sampler grid or random: TPE learns from complete trainings; give --halving 0"
        )
    if more.get("study") == "":
        raise ProofError("--study: give a file on a shared folder, or the URL of a database")
    if more.get("study_name") and not more.get("study"):
        raise ProofError("--name is the name of the sweep in a study: give --study as well")
    if more.get("study"):
        storage.require("a shared sweep needs")
        more |= {"study": storage.located(more["study"]), "member": secrets.token_hex(8)}
    figure, epochs = figure_of(metric), options.train.epochs
    higher = _higher(figure.name, figure.direction)
    if halve_from and epochs == 1:
        raise ProofError("--halving needs a training of at least 2 epochs, and train.epochs is 1")
    if halve_from and not 1 <= halve_from < epochs:
        raise ProofError(
            f"--halving {halve_from}: the first rung is an epoch from 1 to {epochs - 1}, as train.epochs={epochs}"
        )
    # how many trials train at once here or in Slurm, and how many more wait in the queue
    most = more.get("parallel")
    if slurm_queue.is_used() and not slurm.job_of(os.environ):
        at_once = {"parallel": most or IN_SLURM, "ahead": 0}
    else:
        choice = gpu_choice.parse("free:1" if adding.takes_one_gpu(options) else options.device.visible)
        room = max(1, len(here.gpus) // choice.count * options.run.per_gpu) if choice else 1
        at_once = {"parallel": most or room, "ahead": int(most is None or most >= room)}
    return SweepSettings(
        axes=axes,
        metric=figure.name,
        higher=higher,
        rungs=decision.rungs(halve_from, epochs, more.get("factor", SweepSettings.factor)) if halve_from else [],
        one_gpu_each=len(here.gpus) > 1,
        **more | at_once,
    )


def _higher(metric: str, direction: str) -> bool:
    """Return True if the higher value of the metric is better. Raises ProofError if unknown."""
    if not metric or re.search(r"\s", metric) or direction not in ("auto", "min", "max"):
        raise ProofError("--metric: give a figure of an epoch, such as val_loss, or val_cost:min with its direction")
    if direction != "auto":
        return direction == "max"
    for word, higher in HIGHER_IS_BETTER.items():
        if word in metric.lower():
            return higher
    raise ProofError(f"--metric {metric}: say which way is better, as {metric}:min or {metric}:max")
