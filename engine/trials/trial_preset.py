"""The preset of a trial, with the options that every trial sets for itself. Its epoch never ends, so that
`train.decay_steps` of a schedule over the epoch is computed here, if the number of samples is known without opening the
data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import checks, plan, presets
from ..job.machine_gpus import Machine
from ..options import OPTIONS, Options
from ..options.run import BEST_MODELS
from ..options.training import BY_NO_STEPS, EARLY_STOPPING
from ..presets import Preset

STEPS = 1_000_000_000  # the most that train.steps_per_epoch takes: at 10 us a step it lasts for hours
# A trial with so little to measure is a probe, which shows what memory a training takes. With 30 steps in its epoch 6
# are warm-up, and it ends with the first of the others that takes long enough to be measured, or with the epoch.
PROBE_SECONDS, PROBE_STEPS = 0.01, 30
LIMIT_MINUTES = 15.0  # at most, for the start-up and the pass that fills the cache
# A trial trains for a given time or a given number of steps, and keeps no model.
NO_EARLY_END = {
    info.key: info.default
    for info in OPTIONS
    if (info.group, info.about.part) in (("train", EARLY_STOPPING), ("run", BEST_MODELS))
}
ONE_BATCH = {"input.one_batch": True}  # the same batch is repeated, so that the input costs nothing

# A trial saves nothing from which a training could continue, ends if it runs out of memory, and sends neither notices
# nor figures.
LEAVES_NOTHING = {
    "run.checkpoint": "off", "run.on_oom": "stop", "run.save_model": False, "run.follow": [], "run.watch": [],
    **NO_EARLY_END,
    "notify.command": None, "notify.url": None, "notify.format": None, "notify.when": "never",
}  # fmt: skip
# Every trial sets these options itself, so that changes of them cannot be measured.
OWN = frozenset({
    "train.epochs", "train.steps_per_epoch", "train.seed", "run.keep", "run.profile", "run.max_minutes",
    "run.stop_signal", "run.measure_seconds", *LEAVES_NOTHING,
})  # fmt: skip


def with_changes(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """Return the preset with changed options by `group.name`, which the fit of a script then does not decide. Raises
    PresetError if an option is refused.
    """
    values = preset.options.values() | dict(changes)
    if left := preset.options.workload.left_to_fit:
        values["workload.left_to_fit"] = [key for key in left if key not in changes]
    return presets.assemble(preset.name, values, preset.description)


def as_trial(
    preset: Preset,
    seed: int,
    measure_seconds: float | None,
    machine: Machine,
    profile: str = "off",
    most_seconds: float = math.inf,
    length: tuple[int, int | None] = (1, None),
) -> Preset:
    """Return the preset as a trial trains it, at most `most_seconds`: one endless epoch until `measure_seconds` are
    measured, or (None) for the loss, epochs and steps (None: a pass) of `length`, at each step with the learning rate
    of the real run, if its length is known. `profile` is the range of steps to profile, or `off`.
    """
    minutes = preset.options.run.max_minutes
    most_minutes = minutes if math.isinf(most_seconds) else most_seconds / 60
    if measure_seconds is not None:
        together = preset.options.compile.steps_per_execution
        steps = plan.whole_executions(STEPS, together) if measure_seconds > PROBE_SECONDS else PROBE_STEPS * together
        start_and_warmup = min(minutes, LIMIT_MINUTES) if isinstance(minutes, int | float) else LIMIT_MINUTES
        most_minutes = min(start_and_warmup + plan.MOST_TIMES * measure_seconds / 60, most_seconds / 60)
        length = 1, steps  # the end of an epoch would evaluate
    return with_changes(preset, LEAVES_NOTHING | {
        "train.epochs": length[0],
        "train.steps_per_epoch": length[1],
        "train.decay_steps": decay_steps(preset.options, machine),
        "train.seed": seed,
        "run.profile": profile,
        "run.max_minutes": most_minutes,
        "run.measure_seconds": measure_seconds,
    })  # fmt: skip


def decay_steps(options: Options, machine: Machine) -> int | None:
    """Return `train.decay_steps` of the real run. None: a constant rate, or an unknown number of samples."""
    train = options.train
    if train.decay_steps is not None or train.schedule in BY_NO_STEPS:
        return train.decay_steps
    steps = plan.training_steps(options, checks.replicas(options, machine))
    per_epoch = None if steps is None else max(1, steps // train.epochs)
    return None if per_epoch is None else plan.decay_steps(train, per_epoch * train.epochs, per_epoch)
