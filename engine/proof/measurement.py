"""What all measurements share: a trial is measured once, also by a resumed process, again if it may have failed by
chance, and none after a stop or beyond the time. What is measured, and in which order, says the `measure` of a
strategy: proof_loop.py, scaling/rounds.py, tune/search.py, tune/rate_test.py, sweep/sweep_loop.py.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from itertools import zip_longest

from .. import plan
from ..job.machine_gpus import Machine
from ..presets import Preset
from ..runs.event_reading import RunEvents, read_events
from ..runs.events import EVENTS_FILE, Started
from ..trials import proof_sentences
from ..trials.comparing import CHANCES, FINAL, BaselineFailed, Stopped
from ..trials.record import Record, Trial
from ..trials.trial_runner import Judge, TrialRunner
from . import duration
from .request import Request, conflict

LEAST_SECONDS = 3.0  # no trial takes less time
SLOWEST = 6.0  # times the time of other trials: the most that a trial may take, without its measured time
LATE = 2.0  # times the expected time: the most that a training for the loss may take
SETTLED = ("ok", *FINAL)  # outcomes after which a trial is not repeated

Length = tuple[int, int | None]  # epochs, and steps of an epoch (None: a pass over the data)


class OutOfTime(Exception):
    """The minutes of the measurement do not allow another trial."""


class Measurement:
    """The trials of one request by `bench`, on `machine`, with its record; `earlier` are those to resume with. Of the
    `limit_seconds`, `reserved_seconds` are kept for the pairs that decide, which may take `grace_seconds` longer.
    """

    def __init__(
        self, request: Request, record: Record, bench: TrialRunner, machine: Machine, earlier: Iterable[Trial] = ()
    ) -> None:
        self.request, self.record, self.bench, self.machine = request, record, bench, machine
        self.stop, self.run_of = bench.stop, bench.run_of
        self.earlier = tuple(earlier)
        self.known: dict[str, Trial] = {}
        for trial, following in zip_longest(self.earlier, self.earlier[1:]):
            # a trial that may have failed by chance counts if its repetition (in scaling of one round) was successful
            turn = trial.side, trial.repeat + (request.kind != "scaling")
            repeated = following is not None and (following.side, following.repeat) == turn and following.good
            if trial.key and ((repeated and trial.side not in ("a", "b")) or not _may_be_chance(trial)):
                self.known[trial.key] = trial
        self._seconds = [trial.seconds for trial in self.known.values() if trial.good and ":" not in trial.key]
        self.limit_seconds = math.inf if request.limit_seconds is None else request.limit_seconds
        self.reserved_seconds = self.grace_seconds = 0.0

    @cached_property
    def preset(self) -> Preset:
        return self.request.baseline()

    @cached_property
    def guess(self) -> float:
        """The expected seconds of a trial before any was measured."""
        return duration.of_request(self.request)

    def end_after(self, minutes: float) -> None:
        """From now on no trial may last beyond these minutes of the measurement."""
        self.limit_seconds = 60 * minutes
        self.bench.most_seconds = self.most_seconds

    # ---- the time ---------------------------------------------------------------------------------

    @property
    def seconds_left(self) -> float:
        return self.limit_seconds + self.grace_seconds - self.record.elapsed

    @property
    def trial_seconds(self) -> float:
        return duration.usual_seconds(self._seconds, self.guess)

    def most_seconds(self) -> float:
        """Return the most seconds that the next trial may take."""
        left = max(LEAST_SECONDS, self.seconds_left - self.reserved_seconds)
        if not self._seconds:
            return left
        return min(left, SLOWEST * self.trial_seconds + plan.MOST_TIMES * self.bench.measure_seconds)

    def expected_seconds(self, trials: int) -> float:
        """Return the expected seconds of so many further trials, by those in the record."""
        return duration.remaining_seconds(self.record, trials, self.guess)

    def has_time_for(self, trials: int) -> bool:
        return self.record.elapsed + self.expected_seconds(trials) <= self.limit_seconds

    def out_of_time(self, what: str) -> str:
        return f"{proof_sentences.OUT_OF_TIME} of {self.limit_seconds / 60:g} min {what}"

    # ---- the trials -------------------------------------------------------------------------------

    def measure(
        self,
        preset: Preset,
        side: str,
        repeat: int,
        *,
        seconds: float | None = None,
        judge: Judge | None = None,
        trained: Preset | None = None,
        doing: str = "",
    ) -> Trial:
        """Measure one trial, or return the known one. `seconds` is the measured time (None: that of all trials),
        `trained` the preset with a GPU of its own. Raises Stopped, and OutOfTime if the trial would not end in time.
        """
        return self.once(
            _key(preset, side, repeat, seconds),
            lambda: self.bench.measure(trained or preset, side, repeat, seconds=seconds, judge=judge),
            self.trial_seconds,
            doing,
        )

    def learn(
        self,
        preset: Preset,
        side: str,
        repeat: int,
        length: Length,
        rows: list[Trial],
        seconds: float | None = None,
        doing: str = "",
    ) -> Trial:
        """Train for the loss, once more if chance may have ended it, or take the known trials, and add them to `rows`.
        `seconds` is the expected time (None: unknown). Return the last one. Raises Stopped and OutOfTime.
        """
        epochs, steps = length
        key = f"{_key(preset, side, repeat)}:{epochs}:{steps or ''}"
        late = math.inf if seconds is None else LATE * seconds

        def attempt(_number: int) -> Trial:
            most = min(late, max(LEAST_SECONDS, self.seconds_left - self.reserved_seconds))
            trial = self.once(key, lambda: self.bench.learn(preset, side, repeat, length, most), seconds, doing)
            rows.append(trial)
            self.record.write()
            return trial

        return retried(attempt, (*SETTLED, "timeout"))

    def once(self, key: str, carry_out: Callable[[], Trial], seconds: float | None = None, doing: str = "") -> Trial:
        """Return the known trial of the key, or a new one of `seconds` (None: any), before which the record says
        `doing`. Raises Stopped and OutOfTime.
        """
        if key in self.known:
            return self.known[key]
        if self.stop.count:
            raise Stopped
        if seconds is not None and self.seconds_left - self.reserved_seconds < max(LEAST_SECONDS, seconds):
            raise OutOfTime
        if doing:
            self.record.write(doing)
        trial = carry_out()
        if trial.outcome == "stopped":
            raise Stopped
        trial.key = key
        if trial.good and not self.record.versions:
            self.record.versions = dict(self.started(trial).versions)
        if not _may_be_chance(trial):
            self.known[key] = trial
        if trial.good and ":" not in key:
            self._seconds.append(trial.seconds)
        return trial

    def remembers(self, preset: Preset, side: str, repeat: int, *, seconds: float | None = None) -> bool:
        return _key(preset, side, repeat, seconds) in self.known

    def length_known(self, preset: Preset) -> Length | None:
        """Return the length of earlier trainings of this preset for its loss, which others must share as well."""
        start = f"{_key(preset, 'a', 1)}:"
        for key in self.known:
            if key.startswith(start):
                _, epochs, steps = key.split(":")
                return int(epochs), int(steps) if steps else None
        return None

    def events_of(self, trial: Trial) -> RunEvents:
        return read_events(self.run_of(trial).path, [EVENTS_FILE])

    def started(self, trial: Trial) -> Started:
        """Return the event that says how the trial was built. Raises BaselineFailed without it."""
        started = self.events_of(trial).last(Started)
        if started is None:
            raise BaselineFailed(f"{trial.run} has no record of its start")
        return started

    def conflict(self, preset: Preset) -> str:
        """Return why a trial of the preset cannot be launched on this machine. Empty if it can."""
        return conflict(preset, self.request, self.machine)


def retried(carry_out: Callable[[int], Trial], settled: Collection[str] = SETTLED) -> Trial:
    """Carry out a trial, and once more if chance may have ended it. The argument is the attempt, from 1."""
    for attempt in range(1, CHANCES + 1):
        trial = carry_out(attempt)
        if trial.outcome in settled:
            break
    return trial


def _may_be_chance(trial: Trial) -> bool:
    # the trial has crashed, or a trial of a pair took too long
    of_pair = trial.side in ("a", "b") and ":" not in trial.key
    return trial.outcome == "crashed" or (of_pair and trial.outcome == "timeout")


def _key(preset: Preset, side: str, repeat: int, seconds: float | None = None) -> str:
    return hashlib.sha256(f"{preset.to_yaml()} {side} {repeat} {seconds}".encode()).hexdigest()[:16]
