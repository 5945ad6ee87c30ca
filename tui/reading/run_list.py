"""The runs as rows of a table, read from disk and cached while their files do not change.

Reading hundreds of folders takes time and is done in a thread. Imports no Textual.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...engine import runs
from ...engine.figures import at, shown
from ...engine.files import located_yaml
from ...engine.files.located_yaml import YamlFault
from ...engine.files.reading import open_regular
from ...engine.files.values import EMPTY, harmless
from ...engine.runs import GOES_ON, Run
from ...engine.runs.events import fields_of
from ...engine.runs.parsing import parse_line
from ...engine.runs.run import RunState

TAIL_BYTES = 16384
STATE_LABELS = {"ok": "done", "error": "failed"}


@dataclass(frozen=True)
class Entry:
    """A run in the table; figures of a running one are its latest."""

    run: Run
    state: RunState
    description: str = ""
    figures: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)  # by the keys of FIGURES
    when: float = 0.0
    host: str = ""  # the other machine, where it runs on one
    damage: str = ""  # which of its files are damaged

    @property
    def goes_on(self) -> bool:
        return self.state in GOES_ON

    @property
    def state_word(self) -> str:
        word = STATE_LABELS.get(self.state, self.state)
        return f"{word} on {self.host}" if self.host else word

    def matches(self, words: str) -> bool:
        """Whether id, description or state contain all words."""
        text = f"{self.run.id} {self.description} {self.state_word}".casefold()
        return all(word in text for word in words.casefold().split())


FIGURES = shown("runs")


def _value(key: str, entry: Entry) -> float | None:
    return entry.figures.get(key)


# The sort keys in the order of the columns; None is sorted last in both directions.
COLUMNS: dict[str, Callable[[Entry], Any]] = {
    "run": lambda entry: entry.run.id,
    "state": lambda entry: entry.state_word,
    **{figure.narrow_head: partial(_value, figure.key) for figure in FIGURES},
    "when": lambda entry: entry.when,
    "description": lambda entry: entry.description.casefold() or None,
}


def ordered(entries: Iterable[Entry], column: str, descending: bool) -> list[Entry]:
    value = COLUMNS[column]
    entries = list(entries)
    known = [entry for entry in entries if value(entry) is not None]
    return [
        *sorted(known, key=value, reverse=descending),
        *(entry for entry in entries if value(entry) is None),
    ]


class RunList:
    """Reads all runs; a finished one is read again only when its files have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[float, ...], Entry]] = {}
        self.closed = 0  # folders that this user cannot read

    def read(self) -> list[Entry]:
        """The runs, the latest first."""
        found: dict[str, tuple[tuple[float, ...], Entry]] = {}
        survey = runs.survey()
        self.closed = len(survey.closed)
        for run in survey.runs:
            stamp = _stamp(run)
            known = self._known.get(run.id)
            if known is None or known[0] != stamp or known[1].goes_on:
                known = (stamp, _entry(run, known[1] if known else None))
            found[run.id] = known
        self._known = found
        return [entry for _, entry in found.values()]


def _stamp(run: Run) -> tuple[float, ...]:
    return tuple(_changed(run, name) for name in ("result.json", "status.json"))


def _changed(run: Run, name: str) -> float:
    try:
        return run.file(name).stat().st_mtime
    except OSError:
        return 0.0


def _entry(run: Run, known: Entry | None) -> Entry:
    result = run.result or {}
    latest = {} if result else _last_progress(run)
    now = run.life
    return Entry(
        run,
        run.state_of(now),
        known.description if known else description(run),
        {figure.key: at(result, figure.key) if result else at(latest, figure.progress) for figure in FIGURES},
        _changed(run, "preset.yaml"),
        now.host,
        "; ".join(run.damage),
    )


def _last_progress(run: Run) -> Mapping[str, Any]:
    """The last progress event, read from the end of the events."""
    try:
        with open_regular(run.file("events.jsonl")) as stream:
            stream.seek(max(0, stream.seek(0, 2) - TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    found = (parse_line(line) for line in reversed(lines) if '"type":"progress"' in line)
    return next((fields_of(event) for event in found if event), {})


def description(run: Run) -> str:
    """The preset's description, from the first lines of its file."""
    try:
        text = located_yaml.read_text(run.file("preset.yaml"))
        head = located_yaml.parse(text.partition("\nworkload:")[0])
    except (OSError, YamlFault):
        return ""
    said = head["description"].value if "description" in head else ""
    return harmless(said) if isinstance(said, str) else ""


def when_text(then: float, now: float | None = None) -> str:
    """The time of today, the day of this year, or the year: six characters."""
    moment, today = time.localtime(then), time.localtime(now)
    if moment[:3] == today[:3]:
        return time.strftime(" %H:%M", moment)
    return time.strftime("%b %d" if moment[0] == today[0] else "  %Y", moment)
