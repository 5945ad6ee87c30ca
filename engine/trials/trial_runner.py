"""One trial: a training of a few measured seconds, with engine and trainer of its own in an ordinary run folder. A
failed one is a row of the proof as well; only a full disk raises.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .. import runs
from ..diagnosis import collector
from ..diagnosis.measurements import HOT
from ..files import writing
from ..job.machine_gpus import Machine
from ..options import Options
from ..presets import Preset
from ..process.launch import ForkServer
from ..runs import Run, RunError, results
from ..runs.event_reading import Tail, last_of
from ..runs.events import EVENTS_FILE, Progress, Started
from ..units import share
from . import SEEDS
from .record import FIGURES, Trial, place
from .trial_preset import PROBE_SECONDS, as_trial

SLOWER = 0.8  # share of the best speed: a slower trial cannot change the decision, so that it is ended
LEAST_REPORTS = 3  # progress events since the end of the warm-up, one every quarter of a second

# Returns whether a trial is to be ended; the argument is its speeds since the warm-up, the latest last.
Judge = Callable[[Sequence[float]], bool]


def below(least: float) -> Judge:
    """Return a judge that ends a trial if the last LEAST_REPORTS speeds (samples/s) are below `least`."""
    return lambda speeds: len(speeds) >= LEAST_REPORTS and max(speeds[-LEAST_REPORTS:]) < least


class SpeedWatch:
    """Follows the progress of one run, and asks `judge` after each report of further steps whether to end the run."""

    def __init__(self, run: Run, judge: Judge) -> None:
        self._events, self._judge = Tail(run.file(EVENTS_FILE)), judge
        self._step = 0
        self._speeds: list[float] = []

    def is_slower(self) -> bool:
        for event in self._events.read():
            # no event before the end of the warm-up has a speed
            if isinstance(event, Progress) and event.samples_per_second and event.step > self._step:
                self._step = event.step
                self._speeds.append(event.samples_per_second)
                if self._judge(self._speeds):
                    return True
        return False


POLL_SECONDS = 0.05
ROOM_SECONDS = results.ENGINE_SECONDS  # for which a trial waits if the disk is full
ORPHAN_SECONDS = 60.0  # that a trainer may take to end after its engine


class Stop:
    """Counts requests to stop: one ends the trial gracefully, two at once. Those of no person count once."""

    def __init__(self) -> None:
        self.count = self._by_person = 0

    def ask(self, *_: Any) -> None:
        """Count a request that is not a person's; also a signal handler."""
        self.count = max(1, self.count)

    def ask_by_person(self, *_: Any) -> None:
        """Count a request of a person; also a signal handler."""
        self._by_person += 1
        self.count = max(self._by_person, self.count)


class Measures(Protocol):
    @property
    def stop(self) -> Stop: ...

    def measure(
        self, preset: Preset, side: str, repeat: int, *, seconds: float | None = None, judge: Judge | None = None
    ) -> Trial: ...


class TrialRunner:
    """Measure one trial; `judge` may end it as `slower`. Raises OSError if the disk refuses its folder."""

    def __init__(
        self,
        folder: Path,
        paths_from: Path,
        seed: int,
        seconds: float,
        machine: Machine,
        stop: Stop,
        beside: Callable[[Options], str] = lambda _options: "",
    ) -> None:
        self.folder, self.paths_from, self.machine, self.stop = folder, paths_from, machine, stop
        self.seed, self.measure_seconds, self.beside = seed, seconds, beside
        self.most_seconds: Callable[[], float] = lambda: math.inf  # of the next trial
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()  # of a resumed proof
        self._last = max((place(name)[0] for name in names), default=0)
        self._starting = threading.Lock()
        self._fork_server = ForkServer(folder, in_a_hurry=lambda: stop.count > 0)

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._fork_server.close()

    def run_of(self, trial: Trial) -> Run:
        return Run(self.folder / trial.run)

    def measure(
        self,
        preset: Preset,
        side: str,
        repeat: int,
        *,
        seconds: float | None = None,
        profile: str = "off",
        judge: Judge | None = None,
    ) -> Trial:
        """Measure one trial to its end. `seconds` is the measured time (None: that of all trials). `judge` may end it
        with the outcome `slower`. Raises OSError if the disk refuses the trial's folder.
        """
        measured_seconds = seconds or self.measure_seconds
        return self._carried_out(
            lambda: as_trial(preset, self.seed, measured_seconds, self.machine, profile, self.most_seconds()),
            side, repeat, judge, timed=measured_seconds > PROBE_SECONDS,
        )  # fmt: skip

    def learn(
        self, preset: Preset, side: str, repeat: int, length: tuple[int, int | None], most_seconds: float
    ) -> Trial:
        """Train for the loss, `length` epochs and steps (None: a pass). Raises OSError for a full disk."""
        seed = (self.seed + repeat - 1) % SEEDS
        trial = self._carried_out(
            lambda: as_trial(preset, seed, None, self.machine, most_seconds=most_seconds, length=length),
            side, repeat, timed=False,
        )  # fmt: skip
        trial.disturbed = ""  # other programs change the speed and not the loss
        return trial

    def _carried_out(
        self, prepare: Callable[[], Preset], side: str, repeat: int, judge: Judge | None = None, timed: bool = True
    ) -> Trial:
        """`timed`: success without a speed is an `error`. Raises OSError only if the disk refuses the folder."""
        began = time.monotonic()
        with self._starting:
            self._last += 1
            path = self.folder / f"{self._last:02}-{side}"
        asked_before = self.stop.count
        trial = prepare()
        neighbour = self.beside(trial.options)
        try:
            run, engine_runs = self._started(trial, path)
        except OSError as fault:
            if writing.refusal(fault) is not None and not self.stop.count:
                raise
            # For instance no process could be started; the next trial may be able to.
            row = Trial(side=side, repeat=repeat, run=path.name, outcome="crashed", error=f"not started: {fault}")
        else:
            slower = self._wait(run, engine_runs, judge)
            row = outcome(run, side, repeat, asked=self.stop.count > asked_before, slower=slower, timed=timed)
            row.disturbed = disturbed(run, neighbour or self.beside(trial.options))
        row.seconds = time.monotonic() - began
        return row

    def _started(self, trial: Preset, path: Path) -> tuple[Run, Callable[[], bool]]:
        """Tried again for ROOM_SECONDS, as a full disk says nothing about the trial. Raises OSError."""
        for _ in results.tries(ROOM_SECONDS, lambda: self.stop.count > 0):
            try:
                with self._starting:
                    return self._fork_server.start(trial, path, self.paths_from)
            except OSError as fault:
                refused = fault
                if writing.refusal(fault) is None:
                    break
        raise refused

    def _wait(self, run: Run, engine_runs: Callable[[], bool], judge: Judge | None) -> bool:
        """Passes on each request to stop; True if the judge has ended the trial."""
        passed_on, orphan_since, slower = 0, None, False
        watch = SpeedWatch(run, judge) if judge else None
        while engine_runs() or run.alive("trainer"):
            # a request fails if the run has just ended, or its process id is not known yet
            with contextlib.suppress(RunError):
                if watch is not None and not slower and not passed_on and watch.is_slower():
                    runs.request_stop(run)
                    slower = True
                if self.stop.count > passed_on:
                    runs.request_stop(run)
                    passed_on += 1
            if not engine_runs():
                orphan_since = orphan_since or time.monotonic()
                if time.monotonic() - orphan_since > ORPHAN_SECONDS:
                    kill_trainer(run)
            time.sleep(POLL_SECONDS)
        return slower


def outcome(run: Run, side: str, repeat: int, asked: bool = False, slower: bool = False, timed: bool = True) -> Trial:
    """Return the row of a run that has ended by itself, by request, or as `slower`; if `timed` it needs a speed."""
    result = run.result or {}
    ended, why = str(result.get("outcome") or "crashed"), "it is gone without a result (engine and trainer)"
    if result:
        message = str((result.get("error") or {}).get("message") or ended)
        why = next(iter(message.splitlines()), ended)
    if ended == "stopped" and slower and not asked:
        ended, why = "slower", "ended before its time, as it was clearly slower"
    elif ended == "stopped" and not asked:
        ended, why = "crashed", "stopped from outside: its engine is gone"
    row = Trial(side=side, repeat=repeat, run=run.id, outcome=ended, error=None if ended == "ok" else why)
    started = last_of(run.path, Started)
    if started is not None:
        row.replicas, row.global_batch_size = started.replicas, started.global_batch_size
    for name in FIGURES:
        setattr(row, name, result.get(name))
    steps, seconds = (result.get(name) for name in ("measured_steps", "measured_seconds"))
    if steps and seconds and row.samples_per_second:
        row.step_ms = 1000 * seconds / steps
    else:
        row.samples_per_second = row.step_ms = None
    if row.samples_per_second is None and ended == "ok" and timed:
        row.outcome, row.error = "error", "it ended before anything was measured"
    return row


def disturbed(run: Run, neighbour: str = "") -> str:
    """Return the disturbances of a trial in words: other programs, heat, and a `neighbour` of gputui."""
    readings = collector.read(run)
    cores = f"other programs used {share(readings.others_cpu or 0)} of the CPU's cores" if readings.crowded else ""
    gpus = f"other programs on its GPU: {', '.join(readings.gpu_neighbours)}" if readings.gpu_neighbours else ""
    hot = f"its GPU was slowed down ({', '.join(readings.throttle)})" if (readings.throttled or 0.0) >= HOT else ""
    return ", ".join(filter(None, (neighbour, cores, gpus, hot)))


def kill_trainer(run: Run) -> None:
    process = run.process("trainer")
    if process is not None and process.alive():
        with contextlib.suppress(RunError):
            runs.signal_process(run, "trainer", process, (signal.SIGKILL,))
