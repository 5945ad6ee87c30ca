"""The learning rate for another batch size, as the user has chosen: kept, in proportion to it, or to its root.

The formulas are those of plan.rate_factor. What train.learning_rate_scaling multiplies for more replicas is not
multiplied twice. A schedule whose length the preset gives in steps covers as many samples as before: its steps become
fewer as the batch grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import checks, plan
from ..presets import Preset
from ..runs.events import Started
from ..telemetry.machine import Machine
from ..trials.bench import with_changes
from ..trials.search_record import Limits
from . import training_length
from .candidates.space import value_of

RATE, WARMUP = "train.learning_rate", "train.warmup_steps"
SCHEDULE = ("train.hold_steps", "train.decay_steps", WARMUP)  # lengths in steps


def scaled(baseline: Preset, settings: Mapping[str, Any], limits: Limits, machine: Machine) -> dict[str, Any]:
    """The settings with the learning rate and its schedule for their global batch."""
    changed = with_changes(baseline, settings)
    grown = training_length.growth(baseline, changed, machine)
    if grown == 1 or limits.learning_rate == "keep":
        return dict(settings)
    by_itself = _by_option(changed, machine) / _by_option(baseline, machine)
    factor = plan.rate_factor(limits.learning_rate, grown) / by_itself
    rate = float(f"{value_of(baseline, RATE) * factor:.4g}")
    warmup = {} if limits.warmup_steps is None else {WARMUP: limits.warmup_steps}
    return {**settings, RATE: rate, **dict(_lengths(baseline, grown)), **warmup}


def _by_option(preset: Preset, machine: Machine) -> float:
    """What the training multiplies the rate by itself, for its replicas."""
    return plan.rate_factor(preset.options.train.learning_rate_scaling, checks.replicas(preset.options, machine))


def _lengths(baseline: Preset, grown: float) -> Iterator[tuple[str, int]]:
    for key in SCHEDULE:
        if steps := value_of(baseline, key):
            yield key, max(1, round(steps / grown))


def why_fixed(started: Started) -> str:
    """Why the learning rate cannot be scaled in this training, or nothing."""
    return started.inapplicable.get(RATE, "")
