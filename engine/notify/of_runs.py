"""Sends the notice of a run that has ended, for its engine."""

from __future__ import annotations

from collections.abc import Callable

from ..files.reading import read_object
from ..files.values import mapping, whole
from ..runs import Run, events, run_cluster
from ..runs.launched_with import options_of
from . import sending, targets

WARNING = "notice"  # the kind of the warning


def send(run: Run, emit: Callable[[events.Event], None]) -> None:
    """Send the notice of a run whose result is written, and emit a warning for each failure. Raises no exception.

    Of the workers of a training on several machines only the chief sends one, and a run that returns to the queue sends
    none.
    """
    cluster = run_cluster.of_run(run)
    if (cluster is not None and not cluster.is_chief) or _returns_to_queue(run):
        return
    failures = sending.send_to(lambda: targets.of_options(options_of(run)), lambda: sending.of_run(run))
    for line in failures:
        emit(events.Warn(kind=WARNING, message=line))


def _returns_to_queue(run: Run) -> bool:
    """Return True if the queue starts the run again: it has given way, or its GPU was lost and it has tries left."""
    entry = read_object(run.queue_file).value
    result = run.result or {}
    outcome, kind = result.get("outcome"), mapping(result.get("error")).get("kind")
    if entry.get("yields") and outcome == "stopped":
        return True
    left = (whole(entry.get("most_tries")) or 1) - (whole(entry.get("tries")) or 0)
    return kind == "gpu_lost" and left > 0 and bool(entry)
