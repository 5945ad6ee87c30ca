"""The limits on the time of a trainer: run.max_minutes, and run.hang_seconds for a trainer that hangs.

Whether it hangs is found out from outside: from its events, its heartbeat and its CPU time.

While it trains or evaluates, only completed steps count: TensorFlow polls a device that never answers, and NCCL spins,
so that a process which hangs there uses CPU time. Everywhere else the time that a piece of work takes is unknown, and a
process counts as active while it or its child processes use CPU time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

from ..job import job_end
from ..runs import Run, Tail
from ..runs.events import EVENTS_FILE, Event, Phase, PhaseName, Started, Warn
from ..system.heartbeat import TrainerHeartbeat
from ..system.run_clock import RunClock
from ..telemetry.host import Children
from ..units import clock as as_time
from ..units import seconds
from . import ending

IDLE_CORES = 0.02  # a process that uses less than this share of one core counts as idle
LOOK_SECONDS = 0.25
LONGEST_LOOK_SECONDS = 5.0  # a longer time between two looks was this process's own: it or the machine was suspended
STEPS: tuple[PhaseName, ...] = ("training", "evaluating")
# How long to wait, as multiples of times measured in this run or of run.hang_seconds. A device that hangs at the first
# step is found late: compiling for a new chip may take half an hour (TensorFlow's estimate for a chip without code).
OF_LONGEST_GAP = 20
OF_FIRST_STEP = 3  # another shape of a batch is compiled anew, and a shuffle buffer is filled again
WHILE_COMPILING = 24
WHILE_SAVING = 4  # a slow disk is waited for without any CPU time
SUSPENDED_SECONDS = 5.0
AUTO = ending.LIMIT_OF_JOB
UNKNOWN_HINT = "set run.max_minutes to a little less than the job's time limit"
CHILDREN_SECONDS = 5.0  # an idle trainer may wait for processes of its own, which are looked at this often


class Activity:
    """Looks at the trainer of a run a few times a second."""

    def __init__(
        self, run: Run, pid: int, heartbeat: TrainerHeartbeat, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run, self.heartbeat, self._clock = run, heartbeat, clock
        self.phase: PhaseName = "starting"
        self.suspended_seconds = 0.0  # since it was stopped by SIGSTOP or a debugger
        self._process, self._children = psutil.Process(pid), Children(pid)
        self._children_looked = clock()
        self._events = Tail(run.file(EVENTS_FILE))
        self._size, self._seen_beat = 0, (0, False)
        self._cpu_seconds = 0.0
        self._looked = clock()
        self._silent_seconds = self._idle_seconds = 0.0  # without progress; without progress and CPU time
        self._longest_gap = self._first_step = 0.0
        self._resumed = False

    def look(self) -> None:
        """Bring everything up to date; does nothing if the last look was just now."""
        now = self._clock()
        passed = now - self._looked
        if passed < LOOK_SECONDS:
            return
        self._looked = now
        suspended, cpu_seconds = self._state()
        busy = (cpu_seconds - self._cpu_seconds) / passed > IDLE_CORES or self._children_work(now)
        self._cpu_seconds = cpu_seconds
        self.suspended_seconds = self.suspended_seconds + passed if suspended else 0.0
        if self._has_progressed():
            self._silent_seconds = self._idle_seconds = 0.0
        elif not suspended:
            counted = min(passed, LONGEST_LOOK_SECONDS)
            self._silent_seconds += counted
            self._idle_seconds = 0.0 if busy else self._idle_seconds + counted

    def last_phase(self) -> PhaseName:
        """The phase in which the trainer has ended, which may have begun since the last look."""
        self._has_progressed()
        return self.phase

    def _children_work(self, now: float) -> bool:
        if self._idle_seconds < CHILDREN_SECONDS or now - self._children_looked < CHILDREN_SECONDS:
            return False
        self._children_looked = now
        return self._children.cores() > IDLE_CORES

    def hang(self, hang_seconds: float) -> str:
        """What the trainer has not done for too long; nothing where it is at work."""
        option = f"run.hang_seconds={hang_seconds:g}"
        if self.phase in STEPS and not self.heartbeat.in_user_code:
            gap, first = OF_LONGEST_GAP * self._longest_gap, OF_FIRST_STEP * self._first_step
            return self._no_step(option) if self._silent_seconds > max(hang_seconds, gap, first) else ""
        # A resumed run first goes through the data that it has trained on already, which may take hours.
        if self.phase == "compiling" and not self._resumed and self._silent_seconds > WHILE_COMPILING * hang_seconds:
            return self._no_step(option)
        allowed = hang_seconds * (WHILE_SAVING if self.phase == "saving" else 1)
        return f"no progress and no CPU time for {option}" if self._idle_seconds > allowed else ""

    def _no_step(self, option: str) -> str:
        return f"no step was completed for {seconds(self._silent_seconds)} ({option})"

    def _has_progressed(self) -> bool:
        """Whether there is a new event, devices have completed work, or user code has begun or ended."""
        size, beat = self._events_size(), (self.heartbeat.count, self.heartbeat.in_user_code)
        in_user_code = self._seen_beat[1]
        progressed = size != self._size or beat != self._seen_beat
        if progressed and not in_user_code:
            self._remember_gap()
        if size != self._size or self._events.damage.unreadable:
            self._read_phase()
        self._size, self._seen_beat = size, beat
        return progressed

    def _remember_gap(self) -> None:
        if self.phase in STEPS:
            self._longest_gap = max(self._longest_gap, self._silent_seconds)
        elif self.phase == "compiling":
            self._first_step = max(self._first_step, self._silent_seconds)

    def _events_size(self) -> int:
        """That of the last look where it cannot be found out, as a network disk may be away for a time."""
        try:
            return self.run.file(EVENTS_FILE).stat().st_size
        except OSError:
            return self._size

    def _state(self) -> tuple[bool, float]:
        """Whether it is suspended, and the CPU seconds that it has used."""
        try:
            with self._process.oneshot():
                times = self._process.cpu_times()
                suspended = self._process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except psutil.Error:
            return False, self._cpu_seconds
        return suspended, float(times.user + times.system)

    def _read_phase(self) -> None:
        for event in self._events.read():
            if isinstance(event, Started):
                self._resumed = event.resumed_at_step is not None
            elif isinstance(event, Phase):
                self.phase = event.phase


class TimeLimit:
    """Whether the limit of a run is over, counted from its launch."""

    def __init__(self, minutes: float | str | None, launched: RunClock, tell: Callable[[Event], None]) -> None:
        self._launched, self._tell = launched, tell
        self.is_of_job = minutes == "auto"
        self.option = AUTO if isinstance(minutes, str) else f"run.max_minutes={minutes or 0:g}"
        self._seconds = None if minutes is None or isinstance(minutes, str) else minutes * 60
        if self.is_of_job:  # in a thread: squeue may take seconds, and the trainer is watched meanwhile
            threading.Thread(target=self._ask, name="job's end", daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._seconds is not None and self._launched.elapsed() > self._seconds

    def _ask(self) -> None:
        left = job_end.asked(os.environ)
        usable = left.usable_seconds
        if left.problem:
            message = f"{AUTO}: the job's time limit is not known, and the run has none ({left.problem})"
            self._tell(Warn(kind="job_limit", message=message, hint=UNKNOWN_HINT, option="run.max_minutes"))
        elif usable is None:
            print(f"gputui: {AUTO}: there is no job with a time limit, and the run has none", flush=True)
        else:
            print(f"gputui: {AUTO}: the run ends itself in {as_time(usable)}", flush=True)
            self._seconds = self._launched.elapsed() + usable
