"""Which runs go on, and which have ended since the last look: a look at the newest runs that costs a few milliseconds.

Imports no Textual. Is called from a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...engine import runs
from ...engine.files.values import number
from ...engine.runs import GOES_ON, Run
from ...engine.runs.run import RunState
from . import LOOKED_AT
from .run_list import changed, last_progress


@dataclass(frozen=True)
class Ended:
    """A run that was running at the last reading and has ended since."""

    title: str
    id: str
    state: RunState


@dataclass(frozen=True)
class Now:
    """The running runs. `title` is the title of the newest; `done` is the share of its steps that it has done, None if
    unknown. `ended` are the runs that have ended since the last reading.
    """

    running: tuple[Run, ...] = ()
    title: str = ""
    done: float | None = None
    ended: tuple[Ended, ...] = ()


@dataclass
class RunningRuns:
    """Reads which runs are running. A run that has ended is read again only if its status file has changed, as by a
    resume.
    """

    _over: dict[str, float] = field(default_factory=dict)  # the runs that do not go on: when their status was written
    _going_on: dict[str, Run] = field(default_factory=dict)

    def read(self) -> Now:
        newest_runs = runs.all_runs()[:LOOKED_AT]
        ids = {run.id for run in newest_runs}
        newest_runs += [run for name, run in self._going_on.items() if name not in ids]
        states = {run.id: (run, state) for run in newest_runs if (state := self._state(run)) is not None}
        running = {name: run for name, (run, state) in states.items() if state in GOES_ON}
        over = [states[name] for name in self._going_on if name in states and name not in running]
        ended = tuple(Ended(runs.title(run), run.id, state) for run, state in over)
        self._going_on = running
        newest = next(iter(running.values()), None)
        if newest is None:
            return Now(ended=ended)
        return Now(tuple(running.values()), runs.title(newest), _done(last_progress(newest)), ended)

    def _state(self, run: Run) -> RunState | None:
        """The state of the run; None if it has ended and not changed since, or if it was deleted."""
        written = changed(run, "status.json")
        if written and self._over.get(run.id) == written:
            return None
        if not run.path.is_dir():
            return None
        state = run.state
        if state not in GOES_ON:
            self._over[run.id] = written
        return state


def _done(progress: Mapping[str, Any]) -> float | None:
    step, steps = number(progress.get("step")), number(progress.get("steps"))
    return min(1.0, step / steps) if step is not None and steps else None
