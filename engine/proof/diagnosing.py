"""The verdict on a trial, as if it had been the real run; and what an earlier one still says where it tells nothing.

Separates what a proof knows beside a trial's own figures (the real options, what the input costs, the profile) from
the judging itself, which is in diagnosis.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from .. import measuring
from ..diagnosis import diagnose, measurements
from ..diagnosis.measurements import Signals
from ..presets import Preset
from ..runs import Run
from .picking import flat


def of_trial(
    run: Run, preset: Preset, input_cost: float | None = None, communication: float | None = None
) -> dict[str, Any]:
    """A trial's epoch has no end and its options are its own: here it has the preset's."""
    known = measurements.read(run)
    passes = preset.options.train.steps_per_epoch or _steps_per_pass(known)
    real = replace(known, options=flat(preset), steps_per_epoch=passes)
    return asdict(diagnose(replace(real, ablation=input_cost, communication=communication)))


def _steps_per_pass(known: Signals) -> int | None:
    if not known.train_samples or not known.global_batch_size:
        return None
    return max(1, round(known.train_samples / known.global_batch_size))


def renewed(found: Mapping[str, Any], earlier: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where nothing is told anew the earlier remedies are left; what they can bring at most is no longer known."""
    if found["verdict"] != "undecided":
        return found
    left = [dict(remedy) | {"expected_gain": None} for remedy in earlier["remedies"]]
    return dict(found) | {"remedies": left}


def undecided(found: Mapping[str, Any], step_seconds: float) -> str:
    """Why there is no verdict, and what to do; nothing where there is one."""
    if found["verdict"] != "undecided":
        return ""
    longer = f"; measure longer: --seconds {measuring.seconds_to_ask(step_seconds)}"
    return f"{found['sentence']}{longer if found['steps'] < measuring.LEAST_STEPS else ''}"
