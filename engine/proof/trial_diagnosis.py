"""Diagnoses a trial as if it were the real run, and picks the remedy to try next.

The rules are those of every diagnosis (engine/diagnosis), with what a proof knows in addition: the real options, the
cost of the input, the profile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from .. import plan
from ..diagnosis import collector, diagnose
from ..diagnosis.measurements import Measurements
from ..presets import Preset
from ..runs import Run


def of_trial(
    run: Run, preset: Preset, input_cost: float | None = None, communication: float | None = None
) -> dict[str, Any]:
    """The diagnosis of a trial, whose own epoch has no end, with the preset's epoch and options."""
    known = collector.read(run)
    per_epoch = plan.steps_per_epoch(preset.options.train, _batches_per_pass(known, preset)) or None
    real = replace(known, options=flat(preset), steps_per_epoch=per_epoch)
    return asdict(diagnose(replace(real, ablation=input_cost, communication=communication)))


def _batches_per_pass(known: Measurements, preset: Preset) -> int:
    """0 where the samples are not known."""
    samples, batch, drop = known.train_samples, known.global_batch_size, preset.options.input.drop_remainder
    return max(1, plan.batches_per_pass(samples, batch, known.replicas, drop)) if samples and batch else 0


def renewed(found: Mapping[str, Any], earlier: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newer diagnosis; where it has no remedies the earlier ones stay, without their greatest possible gains."""
    if found["verdict"] != "undecided":
        return found
    left = [dict(remedy) | {"expected_gain": None} for remedy in earlier["remedies"]]
    return dict(found) | {"remedies": left}


def undecided(found: Mapping[str, Any], step_seconds: float) -> str:
    """Why there is no verdict, and what to do; empty where there is one."""
    if found["verdict"] != "undecided":
        return ""
    longer = f"; measure longer: --seconds {plan.seconds_to_ask(step_seconds)}"
    return f"{found['sentence']}{longer if found['steps'] < plan.LEAST_STEPS else ''}"


class Picking:
    """Remembers what was tried; a remedy without changes is advice, which only the user can follow."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def untried(self, diagnosis: Mapping[str, Any], preset: Preset) -> list[Mapping[str, Any]]:
        """The remaining remedies, in the order of the diagnosis."""
        now = flat(preset)
        return [
            remedy
            for remedy in diagnosis["remedies"]
            if _key(remedy) not in self._tried and any(now.get(k) != v for k, v in remedy["changes"].items())
        ]

    def tried(self, remedy: Mapping[str, Any]) -> None:
        self._tried.add(_key(remedy))


def flat(preset: Preset) -> dict[str, Any]:
    """`group.name` -> value, as in JSON."""
    groups = asdict(preset.options)
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _key(remedy: Mapping[str, Any]) -> str:
    return json.dumps(remedy["changes"], sort_keys=True, default=str)
