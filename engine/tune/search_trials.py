"""The trials of a search: each is measured once, also by a resumed search, and none lasts beyond the search's end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from .. import checks, plan
from ..job.machine_gpus import Machine
from ..presets import Preset
from ..proof import duration
from ..runs import Run
from ..trials.comparing import Stopped
from ..trials.record import Trial
from ..trials.trial_preset import with_changes
from ..trials.trial_runner import Judge, Stop, TrialRunner

LEAST_SECONDS = 3.0  # no trial takes less time
SLOWEST = 6.0  # times the time of other trials: the most that a trial may take, without its measured time
LATE = 2.0  # times the expected time: the most that a training for the loss may take


class OutOfTime(Exception):
    """The search's minutes do not allow another trial."""


class Trials:
    """Measures the trials of a search, and each only once unless it may have failed by chance; `earlier` are those from
    before it was resumed. `guess` is the expected time of the first trial in seconds. `reserved_seconds` of
    `limit_seconds` are kept for the pairs that decide, which may take `grace_seconds` longer.
    """

    def __init__(
        self,
        bench: TrialRunner,
        earlier: Iterable[Trial],
        elapsed: Callable[[], float],
        limit_seconds: float,
        guess: float,
    ) -> None:
        self._bench, self._elapsed, self._limit, self._guess = bench, elapsed, limit_seconds, guess
        self._known = {trial.key: trial for trial in _that_count(tuple(earlier))}
        self._seconds = [trial.seconds for trial in self._known.values() if trial.good and ":" not in trial.key]
        self.reserved_seconds = self.grace_seconds = 0.0
        bench.most_seconds = self._most_seconds

    @property
    def stop(self) -> Stop:
        return self._bench.stop

    @property
    def machine(self) -> Machine:
        return self._bench.machine

    @property
    def folder(self) -> Path:
        return self._bench.folder

    def run_of(self, trial: Trial) -> Run:
        return self._bench.run_of(trial)

    @property
    def seconds_left(self) -> float:
        return self._limit + self.grace_seconds - self._elapsed()

    @property
    def trial_seconds(self) -> float:
        return duration.usual_seconds(self._seconds, self._guess)

    @property
    def most_seconds(self) -> float:
        return self._bench.most_seconds()

    def _most_seconds(self) -> float:
        left = max(LEAST_SECONDS, self.seconds_left - self.reserved_seconds)
        if not self._seconds:
            return left
        return min(left, SLOWEST * self.trial_seconds + plan.MOST_TIMES * self._bench.measure_seconds)

    def remembers(self, preset: Preset, side: str, repeat: int, *, seconds: float | None = None) -> bool:
        return _key(preset, side, repeat, seconds) in self._known

    def measure(
        self,
        preset: Preset,
        side: str,
        repeat: int,
        *,
        seconds: float | None = None,
        judge: Judge | None = None,
        trained: Preset | None = None,
    ) -> Trial:
        """Measure one trial, or return the known one. `seconds` is the measured time (None: that of all trials),
        `trained` the preset with a GPU of its own. Raises Stopped, and OutOfTime if the trial would not end in time.
        """
        return self._once(
            _key(preset, side, repeat, seconds),
            self.trial_seconds,
            lambda: self._bench.measure(trained or preset, side, repeat, seconds=seconds, judge=judge),
        )

    def learn(self, preset: Preset, side: str, repeat: int, length: tuple[int, int | None], seconds: float) -> Trial:
        """Train for the loss, for `length` (epochs, and steps or None for a pass), or return the known trial. `seconds`
        is the expected time. Raises Stopped and OutOfTime.
        """
        most = min(LATE * seconds, max(LEAST_SECONDS, self.seconds_left - self.reserved_seconds))
        epochs, steps = length
        return self._once(
            f"{_key(preset, side, repeat)}:{epochs}:{steps or ''}",
            seconds,
            lambda: self._bench.learn(preset, side, repeat, length, most),
            timed=False,
        )

    def length_known(self, preset: Preset) -> tuple[int, int | None] | None:
        """Return the epochs and steps (None: a pass over the data) with which this preset was trained for its loss
        before, which further trainings must have as well. None if it was not.
        """
        start = f"{_key(preset, 'a', 1)}:"
        for key in self._known:
            if key.startswith(start):
                _, epochs, steps = key.split(":")
                return int(epochs), int(steps) if steps else None
        return None

    def _once(self, key: str, seconds: float, carry_out: Callable[[], Trial], timed: bool = True) -> Trial:
        """`timed`: its time counts in the expected time of later trials. Raises Stopped and OutOfTime."""
        if key in self._known:
            return self._known[key]
        if self.stop.count:
            raise Stopped
        if self.seconds_left - self.reserved_seconds < max(LEAST_SECONDS, seconds):
            raise OutOfTime
        trial = carry_out()
        if trial.outcome == "stopped":
            raise Stopped
        trial.key = key
        if not _may_be_chance(trial):
            self._known[key] = trial
        if trial.good and timed:
            self._seconds.append(trial.seconds)
        return trial


def _that_count(earlier: Sequence[Trial]) -> Iterator[Trial]:
    # a trial that may have failed by chance counts if its repetition was successful
    for trial, following in zip_longest(earlier, earlier[1:]):
        next_turn = following is not None and (following.side, following.repeat) == (trial.side, trial.repeat + 1)
        repeated = next_turn and following is not None and following.good and trial.side not in ("a", "b")
        if trial.key and (repeated or not _may_be_chance(trial)):
            yield trial


def _may_be_chance(trial: Trial) -> bool:
    # the trial has crashed, or a trial of a pair took too long
    of_pair = trial.side in ("a", "b") and ":" not in trial.key
    return trial.outcome == "crashed" or (of_pair and trial.outcome == "timeout")


def _key(preset: Preset, side: str, repeat: int, length: float | None = None) -> str:
    return hashlib.sha256(f"{preset.to_yaml()} {side} {repeat} {length}".encode()).hexdigest()[:16]


# ---- side by side ---------------------------------------------------------------------------------


LEAST_SHARE = 0.95  # of the speed of one training alone; below it, trainings at the same time disturb each other


@dataclass(frozen=True)
class TrialRequest:
    preset: Preset
    side: str
    seconds: float
    repeat: int = 1
    judge: Judge | None = None


@dataclass(frozen=True)
class Place:
    """A GPU with its name for `device.visible`, and the speed of the best settings on it relative to the first GPU."""

    gpu: str | int
    speed: float = 1.0

    def judging(self, judge: Judge) -> Judge:
        """Return `judge` for a trial on this GPU: it gets the speeds that the first GPU would have reached."""
        return lambda speeds: judge([speed / self.speed for speed in speeds])


class SideBySide:
    """Measures several trials at once, on GPUs of `machine`. `Trials.measure` then knows them."""

    def __init__(self, trials: Trials, machine: Machine) -> None:
        self._trials, self._machine = trials, machine

    def places(self, preset: Preset) -> list[Place]:
        """Return the GPUs of one model on which trainings with these settings can run at once, one on each. Empty if
        there are fewer than two. A setting that is faster on another model may be slower here.
        """
        gpus = checks.visible_gpus(preset.options, self._machine)
        if not self.fits(preset) or any(gpu.in_mig_mode for gpu in gpus):
            return []
        alike = [Place(gpu.uuid or gpu.index) for gpu in gpus if gpu.name == gpus[0].name]
        return alike if len(alike) > 1 else []

    def fits(self, preset: Preset) -> bool:
        """Return True if the preset trains on one GPU without a strategy for several."""
        of_one = len(checks.training_gpus(preset.options, self._machine)) == 1
        return of_one and preset.options.strategy.kind == "single"

    def measure(self, asked: Sequence[TrialRequest], places: Sequence[Place]) -> list[Trial]:
        """Measure trials at once, each on its own place. Raises Stopped, and OutOfTime if they would not end."""
        with ThreadPoolExecutor(len(asked)) as pool:
            jobs = [
                pool.submit(self._measured, settings, place) for settings, place in zip(asked, places, strict=False)
            ]
            return [job.result() for job in jobs]

    def _measured(self, request: TrialRequest, place: Place) -> Trial:
        pinned = with_changes(request.preset, {"device.visible": [place.gpu]})
        judge = None if request.judge is None else place.judging(request.judge)
        trial = self._trials.measure(
            request.preset, request.side, request.repeat, seconds=request.seconds, judge=judge, trained=pinned
        )
        trial.gpu_speed = place.speed
        return trial


def undisturbed(places: Sequence[Place], speeds: Sequence[float | None], alone: float) -> list[Place]:
    """Return the places, with relative speeds, where a training beside others was LEAST_SHARE as fast as `alone`."""
    shares = ((place, (speed or 0.0) / alone) for place, speed in zip(places, speeds, strict=True))
    return [replace(place, speed=share) for place, share in shares if share >= LEAST_SHARE]
