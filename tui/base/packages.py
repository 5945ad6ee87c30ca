"""Imports the packages that several threads use, in the main thread and before the first of them starts.

A package that imports its own modules must not be imported by two threads at once: Python 3.11 lets one of them fail
where the other came in by one of the modules (`_DeadlockError`, or a name that is missing).

Deferred imports: they would delay the first paint.
"""

from __future__ import annotations


def import_for_threads() -> None:
    """To be called in the main thread, after the first paint; costs nothing when it is called again."""
    from ...engine import checks, diagnosis, doctor, figures, runs  # noqa: F401
