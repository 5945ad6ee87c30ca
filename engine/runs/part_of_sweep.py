"""The file `sweep.json` of a run that is a trial of a sweep: which sweep, and after which epoch the trial pauses.

The trainer reads it once when it starts.
"""

from __future__ import annotations

import json

from ..files.reading import read_object
from ..files.values import text, whole
from ..files.writing import write_atomically
from .run import Run

FILE = "sweep.json"


def content(sweep: str, pause_after: int | None) -> str:
    """Return the text of the file for a trial of the sweep with the id `sweep`. `pause_after` is an epoch (from 1)."""
    return json.dumps({"sweep": sweep, "pause_after": pause_after}) + "\n"


def set_pause(run: Run, sweep: str, pause_after: int | None) -> None:
    """Write the file of a run that has not begun or has ended."""
    write_atomically(run.file(FILE), content(sweep, pause_after))


def sweep_of(run: Run) -> str:
    """Return the id of the sweep to which the run belongs; empty if it belongs to none."""
    return text(read_object(run.file(FILE)).value.get("sweep")) or ""


def pause_after(run: Run) -> int | None:
    """Return the epoch (from 1) at whose end the run stops with a checkpoint; None if it trains to its end."""
    return whole(read_object(run.file(FILE)).value.get("pause_after"))
