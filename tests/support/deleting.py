"""Deletes a run for good, as a screen does when it is left."""

from __future__ import annotations

from tests.doors.engine import Run, RunError, Trash


def deleted(run: Run) -> None:
    """Raises RunError where it is refused."""
    trash = Trash()
    _, refused = trash.put([run])
    trash.empty()
    if refused:
        raise RunError(refused[0])
