"""The time limits of a trainer: run.max_minutes, and run.hang_seconds for a trainer that hangs. A hang is detected from
outside: by events, heartbeat and CPU time. While the trainer trains or evaluates, only finished steps count: TensorFlow
polls a device that never answers, and NCCL spins, so that a hanging process uses CPU time. In all other phases the
duration of the work is unknown, and the trainer counts as active while it or its child processes use CPU time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

from ..files.reading import bytes_of
from ..job import slurm
from ..runs import Run, Tail
from ..runs.events import EVENTS_FILE, Event, Phase, PhaseName, Started, Warn
from ..system.heartbeat import TrainerHeartbeat
from ..system.run_clock import RunClock
from ..telemetry.host import Children
from ..units import clock as as_time
from ..units import seconds
from . import ending

IDLE_CORES = 0.02  # a process that uses less than this share of one core counts as idle
INTERVAL_SECONDS = 0.25
LONGEST_INTERVAL_SECONDS = 5.0  # after a longer interval this process or the machine was suspended
STEPS: tuple[PhaseName, ...] = ("training", "evaluating")
# How long to wait, as multiples of times measured in this run or of run.hang_seconds. A device that hangs at the first
# step is found late: compiling for a new chip may take half an hour (TensorFlow's estimate for a chip without code).
OF_LONGEST_GAP = 20
OF_FIRST_STEP = 3  # another shape of batches is compiled, too, and a shuffle buffer is filled again
WHILE_COMPILING = 24
WHILE_SAVING = 4  # waiting for a slow disk uses no CPU time
SUSPENDED_SECONDS = 5.0
AUTO = ending.LIMIT_OF_JOB
UNKNOWN_HINT = "set run.max_minutes to a little less than the job's time limit"
CHILDREN_SECONDS = 5.0  # an idle trainer may wait for its child processes, which are checked this often


class Activity:
    """What the trainer of a run does (`phase`), whether it hangs (`hang`), and for how long it has been suspended.
    `update` is to be called several times a second. `clock` is monotonic.
    """

    def __init__(
        self, run: Run, pid: int, heartbeat: TrainerHeartbeat, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run, self.heartbeat, self._clock = run, heartbeat, clock
        self.phase: PhaseName = "starting"
        self.suspended_seconds = 0.0  # since it was stopped by SIGSTOP or a debugger
        self._process, self._children = psutil.Process(pid), Children(pid)
        self._children_checked = clock()
        self._events = Tail(run.file(EVENTS_FILE))
        self._size, self._seen_beat = 0, (0, False)
        self._cpu_seconds = 0.0
        self._updated = clock()
        self._silent_seconds = self._idle_seconds = 0.0  # without progress; without progress and CPU time
        self._longest_gap = self._first_step = 0.0
        self._resumed = False

    def update(self) -> None:
        """Read the trainer's events, heartbeat and CPU time, if the last update was 0.25 s ago."""
        now = self._clock()
        passed = now - self._updated
        if passed < INTERVAL_SECONDS:
            return
        self._updated = now
        suspended, cpu_seconds = self._state()
        busy = (cpu_seconds - self._cpu_seconds) / passed > IDLE_CORES
        if not busy and min(self._idle_seconds, now - self._children_checked) >= CHILDREN_SECONDS:
            self._children_checked = now
            busy = self._children.cores() > IDLE_CORES
        self._cpu_seconds = cpu_seconds
        self.suspended_seconds = self.suspended_seconds + passed if suspended else 0.0
        if self._has_progressed():
            self._silent_seconds = self._idle_seconds = 0.0
        elif not suspended:
            counted = min(passed, LONGEST_INTERVAL_SECONDS)
            self._silent_seconds += counted
            self._idle_seconds = 0.0 if busy else self._idle_seconds + counted

    def last_phase(self) -> PhaseName:
        """Return it even if it began after the last update. Call it after the trainer has ended."""
        self._has_progressed()
        return self.phase

    def hang(self, hang_seconds: float) -> str:
        """Which progress is missing; empty if the trainer does not hang. Slow steps, compiling and saving may take
        longer.
        """
        option = f"run.hang_seconds={hang_seconds:g}"
        if self.phase in STEPS and not self.heartbeat.in_user_code:
            gap, first = OF_LONGEST_GAP * self._longest_gap, OF_FIRST_STEP * self._first_step
            return self._no_step(option) if self._silent_seconds > max(hang_seconds, gap, first) else ""
        # A resumed run first skips the data on which it has trained already, which may take hours.
        if self.phase == "compiling" and not self._resumed and self._silent_seconds > WHILE_COMPILING * hang_seconds:
            return self._no_step(option)
        allowed = hang_seconds * (WHILE_SAVING if self.phase == "saving" else 1)
        return f"no progress and no CPU time for {option}" if self._idle_seconds > allowed else ""

    def _no_step(self, option: str) -> str:
        return f"no step was completed for {seconds(self._silent_seconds)} ({option})"

    def _has_progressed(self) -> bool:
        """Since the last call: an event, completed work of the devices, or a begin or end of user code."""
        size, beat = bytes_of(self.run.file(EVENTS_FILE)), (self.heartbeat.count, self.heartbeat.in_user_code)
        size = self._size if size is None else size  # as while a network disk is not available
        in_user_code = self._seen_beat[1]
        progressed = size != self._size or beat != self._seen_beat
        if progressed and not in_user_code:
            if self.phase in STEPS:
                self._longest_gap = max(self._longest_gap, self._silent_seconds)
            elif self.phase == "compiling":
                self._first_step = max(self._first_step, self._silent_seconds)
        if size != self._size or self._events.damage.unreadable:
            for event in self._events.read():
                if isinstance(event, Started):
                    self._resumed = event.resumed_at_step is not None
                elif isinstance(event, Phase):
                    self.phase = event.phase
        self._size, self._seen_beat = size, beat
        return progressed

    def _state(self) -> tuple[bool, float]:
        """Return True if the trainer is suspended, and the CPU seconds that it has used."""
        try:
            with self._process.oneshot():
                times = self._process.cpu_times()
                suspended = self._process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return False, self._cpu_seconds
        return suspended, float(times.user + times.system)


class TimeLimit:
    """run.max_minutes, counted from `launched`. With `auto` it is the time limit of the Slurm job, less the time for
    the last checkpoint. `emit` gets a warning if the job's limit is not known.
    """

    def __init__(self, minutes: float | str | None, launched: RunClock, emit: Callable[[Event], None]) -> None:
        self._launched, self._emit = launched, emit
        self.is_of_job = minutes == "auto"
        self.option = AUTO if isinstance(minutes, str) else f"run.max_minutes={minutes or 0:g}"
        self._seconds = None if minutes is None or isinstance(minutes, str) else minutes * 60
        if self.is_of_job:  # in a thread: squeue may take seconds, and the trainer is watched meanwhile
            threading.Thread(target=self._ask, name="job's end", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._seconds is not None and self._launched.elapsed() > self._seconds

    def _ask(self) -> None:
        left = slurm.time_left(os.environ)
        usable = left.usable_seconds
        if left.problem:
            message = f"{AUTO}: the job's time limit is not known, and the run has none ({left.problem})"
            self._emit(Warn(kind="job_limit", message=message, hint=UNKNOWN_HINT, option="run.max_minutes"))
        elif usable is None:
            print(f"gputui: {AUTO}: there is no job with a time limit, and the run has none", flush=True)
        else:
            print(f"gputui: {AUTO}: the run ends itself in {as_time(usable)}", flush=True)
            self._seconds = self._launched.elapsed() + usable
