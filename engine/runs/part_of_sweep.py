"""The file `sweep.json` of a run that is a trial of a sweep: which sweep, where the trial pauses, what it tries.

The trainer reads it once when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..files.reading import read_object
from ..files.values import mapping, text, whole
from ..files.writing import write_atomically
from .run import Run

FILE = "sweep.json"


def content(sweep: str, pause_after: int | None, changes: Mapping[str, Any], seed: int) -> str:
    """Return the text of the file for a trial of the sweep with the id `sweep`. `pause_after` is an epoch (from 1), and
    `changes` has the values by keys of options.
    """
    values = {"sweep": sweep, "pause_after": pause_after, "changes": dict(changes), "seed": seed}
    return json.dumps(values) + "\n"


def set_pause(run: Run, pause_after: int | None) -> None:
    """Change the epoch in the file of a run that has not begun or has ended."""
    values = {**read_object(run.file(FILE)).value, "pause_after": pause_after}
    write_atomically(run.file(FILE), json.dumps(values) + "\n")


def sweep_of(run: Run) -> str:
    """Return the id of the sweep to which the run belongs; empty if it belongs to none."""
    return text(read_object(run.file(FILE)).value.get("sweep")) or ""


def pause_after(run: Run) -> int | None:
    """Return the epoch (from 1) at whose end the run stops with a checkpoint; None if it trains to its end."""
    return whole(read_object(run.file(FILE)).value.get("pause_after"))


def changes(run: Run) -> dict[str, Any]:
    """Return the trial's values of the swept options, by keys of options. Empty if it belongs to no sweep."""
    return dict(mapping(read_object(run.file(FILE)).value.get("changes")))
