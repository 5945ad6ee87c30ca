"""Trials side by side on the GPUs of one machine, each on a GPU of its own, while they only screen.

Trainings on different GPUs share the host: its cores, which make the input, its memory and its disks. Whether they
disturb each other is measured first, with the best settings on all GPUs at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ... import checks
from ...presets import Preset
from ...proof.row import Trial
from ...proof.trial import with_changes
from ...proof.watching import Judge
from ...telemetry.machine import Machine
from .trials import Trials

LEAST_SHARE = 0.95  # of the speed alone: below this, trainings side by side disturb each other


@dataclass(frozen=True)
class Asked:
    """A trial to measure, as `Trials.measure` takes it."""

    preset: Preset
    side: str
    seconds: float
    repeat: int = 1
    judge: Judge | None = None


class SideBySide:
    """Measures several trials at once; later, `Trials.measure` has them without measuring them again."""

    def __init__(self, trials: Trials, machine: Machine) -> None:
        self._trials, self._machine = trials, machine

    def places(self, preset: Preset) -> list[str | int]:
        """The GPUs that trainings with these settings may share out, one to each; fewer than two: none."""
        gpus = checks.visible_gpus(preset.options, self._machine)
        names = [gpu.uuid or gpu.index for gpu in gpus if not gpu.mig]
        return names if self.fits(preset) and len(names) == len(gpus) > 1 else []

    def fits(self, preset: Preset) -> bool:
        """Whether it trains on one GPU, without saying on which."""
        of_one = len(checks.training_gpus(preset.options, self._machine)) == 1
        return of_one and preset.options.strategy.kind == "single"

    def measure(self, asked: Sequence[Asked], places: Sequence[str | int]) -> list[Trial]:
        """All of them at once; raises Stopped, and OutOfTime where they would not end in time."""
        with ThreadPoolExecutor(len(asked)) as pool:
            jobs = [pool.submit(self._measured, one, place) for one, place in zip(asked, places, strict=False)]
            return [job.result() for job in jobs]

    def _measured(self, one: Asked, place: Any) -> Trial:
        pinned = with_changes(one.preset, {"device.visible": [place]})
        return self._trials.measure(
            one.preset, one.side, one.repeat, seconds=one.seconds, judge=one.judge, trained=pinned
        )


def are_undisturbed(speeds: Sequence[float | None], alone: float) -> bool:
    """Whether trainings with these speeds at the same time are about as fast as one alone."""
    known = [speed for speed in speeds if speed]
    return len(known) == len(speeds) and sum(known) / len(known) >= LEAST_SHARE * alone
