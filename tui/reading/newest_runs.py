"""The newest runs that have begun. Viewers look for running runs only among them, however many runs wait in the
queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from ...engine import runs
from ...engine.runs import Run
from ...engine.runs.run import WAITING

LOOKED_AT = 50  # how many runs are searched


def waits(run: Run) -> bool:
    """Return True if the run waits in the queue. If it is not queued, this costs only one call of `stat`."""
    return run.queue_file.exists() and run.state == WAITING


def newest_runs(waits: Callable[[Run], bool] = waits, of: Iterable[Run] | None = None) -> list[Run]:
    """Return the 50 newest runs that do not wait in the queue, the newest first, of all runs `of` or those on the
    disk."""
    return list(islice((run for run in (runs.all_runs() if of is None else of) if not waits(run)), LOOKED_AT))
