"""The file `sweep.json` of a run that is a trial of a sweep, which the trainer reads once when it starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..files import typed
from ..files.writing import write_atomically
from .run import Run

FILE = "sweep.json"


@dataclass(frozen=True)
class SweepPlace:
    """The id of the sweep, empty for a run that belongs to none; the epoch (from 1) at whose end the run stops with a
    checkpoint, None if it trains to its end; the trial's values of the swept options, by their keys.
    """

    sweep: str = ""
    pause_after: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def as_file(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read(run: Run) -> SweepPlace:
    return typed.read_usable(run.file(FILE), SweepPlace)


def set_pause(run: Run, pause_after: int | None) -> None:
    """Change the epoch in the file of a run that has not begun or has ended."""
    write_atomically(run.file(FILE), replace(read(run), pause_after=pause_after).as_file())
