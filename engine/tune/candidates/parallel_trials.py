"""Trials side by side on the GPUs of one machine, each on a GPU of its own, while they only screen.

Trainings on different GPUs share the host: its cores, which make the input, its memory and its disks. Whether they
disturb each other is measured first, with the best settings on all GPUs at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ... import checks
from ...job.machine import Machine
from ...presets import Preset
from ...trials.bench import Judge
from ...trials.trial import Trial
from ...trials.trial_preset import with_changes
from .search_trials import Trials

LEAST_SHARE = 0.95  # of the speed of one training alone; below it, trainings at the same time disturb each other


@dataclass(frozen=True)
class Asked:
    """The arguments for one trial, as `Trials.measure` takes them."""

    preset: Preset
    side: str
    seconds: float
    repeat: int = 1
    judge: Judge | None = None


@dataclass(frozen=True)
class Place:
    """A GPU with its name for `device.visible`.

    `speed` is the speed of the best settings on this GPU, relative to that on the first GPU.
    """

    gpu: str | int
    speed: float = 1.0

    def judging(self, judge: Judge) -> Judge:
        """The judge for a trial on this GPU: it calls `judge` with the speeds that the first GPU would have reached."""
        return lambda speeds: judge([speed / self.speed for speed in speeds])


class SideBySide:
    """Measures several trials at once; `Trials.measure` later returns them without a second measurement."""

    def __init__(self, trials: Trials, machine: Machine) -> None:
        self._trials, self._machine = trials, machine

    def places(self, preset: Preset) -> list[Place]:
        """The GPUs on which trainings with these settings can run at once, one on each; empty if there are fewer than
        two.

        All have the same model, as a setting that is faster on another model may be slower here.
        """
        gpus = checks.visible_gpus(preset.options, self._machine)
        if not self.fits(preset) or any(gpu.mig for gpu in gpus):
            return []
        alike = [Place(gpu.uuid or gpu.index) for gpu in gpus if gpu.name == gpus[0].name]
        return alike if len(alike) > 1 else []

    def fits(self, preset: Preset) -> bool:
        """Whether the preset trains on one GPU without a strategy for several."""
        of_one = len(checks.training_gpus(preset.options, self._machine)) == 1
        return of_one and preset.options.strategy.kind == "single"

    def measure(self, asked: Sequence[Asked], places: Sequence[Place]) -> list[Trial]:
        """Measure all trials at once, each on its own place; raises Stopped, and OutOfTime if they would not end in
        time.
        """
        with ThreadPoolExecutor(len(asked)) as pool:
            jobs = [
                pool.submit(self._measured, settings, place) for settings, place in zip(asked, places, strict=False)
            ]
            return [job.result() for job in jobs]

    def _measured(self, request: Asked, place: Place) -> Trial:
        pinned = with_changes(request.preset, {"device.visible": [place.gpu]})
        judge = None if request.judge is None else place.judging(request.judge)
        trial = self._trials.measure(
            request.preset, request.side, request.repeat, seconds=request.seconds, judge=judge, trained=pinned
        )
        trial.gpu_speed = place.speed
        return trial


def undisturbed(places: Sequence[Place], speeds: Sequence[float | None], alone: float) -> list[Place]:
    """The places where a training at the same time as the others was about as fast as the training `alone`.

    `speeds` are the speeds at the places in samples per second; None for a failed trial. Each returned place has the
    relative speed of its GPU. A GPU that is slow or disturbed is left out.
    """
    shares = ((place, (speed or 0.0) / alone) for place, speed in zip(places, speeds, strict=True))
    return [replace(place, speed=share) for place, share in shares if share >= LEAST_SHARE]
