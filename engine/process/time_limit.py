"""The time limit of a run (run.max_minutes): in minutes, or with `auto` the Slurm job's, less time for a checkpoint."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ..runs.events import Event, Warn
from ..system.run_clock import RunClock
from ..telemetry import job_end
from ..text import clock as as_time
from . import ending

AUTO = ending.LIMIT_OF_JOB
UNKNOWN_HINT = "set run.max_minutes to a little less than the job's time limit"


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
