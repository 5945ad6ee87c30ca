"""Reads what a run told when it began to train: its actual settings, its environment, the versions that train."""

from __future__ import annotations

from ..files.reading import open_regular
from ..runs import Run
from ..runs.events import Started
from ..runs.parsing import parse_block
from ..runs.reading import TRAINER_FILE

_BEGINNING_BYTES = 256 * 1024  # a handful of events come before it, whatever the length of the run


def started(run: Run) -> Started | None:
    """Its first started event; None where the run has not got that far, or cannot be read."""
    try:
        with open_regular(run.file(TRAINER_FILE)) as stream:
            block = stream.read(_BEGINNING_BYTES)
    except OSError:
        return None
    events = (event for event, _ in parse_block(block[: block.rfind(b"\n") + 1]))
    return next((event for event in events if isinstance(event, Started)), None)
