"""What a run is called: its preset, and what was changed of it, such as `fast: batch_size=256 xla`.

The launcher records in `origin.json` which preset the run was started from, and the options that differ from it; the
title stays as it is when that preset is changed or deleted later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..files.reading import read_object
from ..files.values import harmless, mapping, text
from ..files.writing import write_atomically
from ..units import counted
from . import cluster
from .run import Run

FILE = "origin.json"
NO_EFFECT = "no_effect"  # of a change: why it did nothing, so that no title names it
_PYTHON = re.compile(r"(/[^/]+/[^/]+)/bin/python[\d.]*$")
LONGEST = 72  # of a title where the caller names no width
_LONGEST_VALUE = 32
_LEAST_OF_A_CHANGE = 9


@dataclass(frozen=True)
class Title:
    """The name of the preset, and each change in words."""

    preset: str
    changes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """With all changes."""
        return f"{self.preset}: {' '.join(self.changes)}" if self.changes else self.preset

    def within(self, width: int) -> str:
        """As many whole changes as fit in the width, and the number of the others: `fast: batch_size=256 +3 more`.

        Where not even the first fits, its beginning.
        """
        for shown in range(len(self.changes), 0, -1):
            rest = len(self.changes) - shown
            said = " ".join((*self.changes[:shown], *([f"+{rest} more"] if rest else [])))
            if len(self.preset) + 2 + len(said) <= width:
                return f"{self.preset}: {said}"
        more = f" +{len(self.changes) - 1} more" if len(self.changes) > 1 else ""
        room = width - len(self.preset) - 2 - len(more)
        if self.changes and room > _LEAST_OF_A_CHANGE:
            return f"{self.preset}: {self.changes[0][: room - 2]}..{more}"
        return f"{self.preset}: {counted(len(self.changes), 'changes')}" if self.changes else self.preset

    def __str__(self) -> str:
        return self.within(LONGEST)


def title(run: Run) -> str:
    """The title, with a long list of changes cut."""
    return str(title_of(run))


def title_of(run: Run) -> Title:
    """The whole title; of a run without a record of its origin, as an older gputui made it, the preset's name alone."""
    found = recorded(read_object(run.file(FILE)).value, name_of(run))
    return replace(found, changes=(*found.changes, *_place(run)))


def _place(run: Run) -> Iterator[str]:
    """Of a training on several machines, how many workers it has, and which of them has made this run."""
    if (found := cluster.of_run(run)) is not None:
        workers = len(found.workers)
        yield counted(workers, "workers") if found.is_chief else f"worker {found.index} of {workers}"


def recorded(origin: Mapping[str, Any], otherwise: str) -> Title:
    """The title by the record of an origin; `otherwise` is the name where that has none."""
    changes = mapping(origin.get("changes"))
    applied = {key: mapping(change) for key, change in changes.items() if not mapping(change).get(NO_EFFECT)}
    words = (_words(key, change.get("to")) for key, change in applied.items())
    return Title(text(origin.get("preset")) or otherwise, tuple(words))


def name_of(run: Run) -> str:
    """What the preset was called: the id without its time and number."""
    return re.sub(r"^\d{8}-\d{6}-|(-worker\d+)?(-\d{1,3})?$", "", run.id) or "run"


def _words(key: str, value: Any) -> str:
    """`xla` and `no xla` for a switch, `batch_size=256` for all else."""
    name = key.rpartition(".")[2]
    if value is True:
        return name
    if value is False or value is None:
        return f"no {name}"
    return f"{name}={_brief(value)}"


def _brief(value: Any) -> str:
    """The value in one word; of a path its last part, which of a Python is its environment, of what is long its
    beginning.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    said = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    said = _PYTHON.sub(r"\1", said)
    kind, _, place = said.rpartition("/")
    if kind and isinstance(value, str):  # not a slash within a mapping
        source = re.match(r"\w+:(?!//)", said)  # csv:/data/train.csv
        said = (source[0] if source else "") + place
    said = "_".join(harmless(said).split())
    return said if len(said) <= _LONGEST_VALUE else f"{said[: _LONGEST_VALUE - 2]}.."


def add_change(run: Run, key: str, before: Any, after: Any) -> None:
    """Put an option that was changed after the launch first in the run's title, where none is cut off; a run without a
    record stays as it is.
    """
    origin = dict(read_object(run.file(FILE)).value)
    if not origin:
        return
    changes = mapping(origin.get("changes"))
    change = {key: {"from": mapping(changes.get(key)).get("from", before), "to": after}}
    changes = change | {other: told for other, told in changes.items() if other != key}
    write_atomically(run.file(FILE), json.dumps(origin | {"changes": changes}, indent=1) + "\n")


def leave_out(run: Run, unapplied: Mapping[str, str]) -> None:
    """Leave changes that did nothing out of the run's title, each with the reason; all others are in it."""
    origin = dict(read_object(run.file(FILE)).value)
    changes = {key: dict(mapping(change)) for key, change in mapping(origin.get("changes")).items()}
    before = json.dumps(changes)
    for key, change in changes.items():
        change.pop(NO_EFFECT, None)
        if key in unapplied:
            change[NO_EFFECT] = unapplied[key]
    if json.dumps(changes) != before:
        write_atomically(run.file(FILE), json.dumps(origin | {"changes": changes}, indent=1) + "\n")


def record(preset: str, file: str, changes: Mapping[str, tuple[Any, Any]]) -> str:
    """The content of `origin.json`: each change is the value in the preset, and the value of the run."""
    told = {key: {"from": before, "to": after} for key, (before, after) in changes.items()}
    return json.dumps({"preset": preset, "file": file, "changes": told}, indent=1) + "\n"
