"""The newest event of a kind at the end of a run's events, such as its latest progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engine.files.reading import open_regular
from ...engine.runs import Run
from ...engine.runs.events import EVENTS_FILE, fields_of
from ...engine.runs.parsing import parse_line

TAIL_BYTES = 16384


def last_progress(run: Run) -> Mapping[str, Any]:
    return last_event(run, "progress")


def last_event(run: Run, kind: str) -> Mapping[str, Any]:
    """Return the fields of the last event of the type `kind`. Empty if there is none near the end of the file."""
    try:
        with open_regular(run.file(EVENTS_FILE)) as stream:
            stream.seek(max(0, stream.seek(0, 2) - TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    events = (parse_line(line) for line in reversed(lines) if f'"type":"{kind}"' in line)
    return next((fields_of(event) for event in events if event), {})
