"""The title of a run: its preset and the changed options, such as `fast: batch_size=256 xla`.

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
NO_EFFECT = "no_effect"  # of a change: the reason why it has no effect; no title names it then
_PYTHON = re.compile(r"(/[^/]+/[^/]+)/bin/python[\d.]*$")
LONGEST = 72  # width of a title if the caller names none
_LONGEST_VALUE = 32
_LEAST_OF_A_CHANGE = 9


@dataclass(frozen=True)
class Title:
    """The name of the preset, and one text for each changed option."""

    preset: str
    changes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The title with all changes, of any length."""
        return f"{self.preset}: {' '.join(self.changes)}" if self.changes else self.preset

    def within(self, width: int) -> str:
        """Return the title with as many changes as fit into `width`, and the number of the other changes: `fast:
        batch_size=256 +3 more`.

        If even the first change does not fit, it is cut; if there is no room for that either, only the number of
        changes is given.
        """
        for shown in range(len(self.changes), 0, -1):
            rest = len(self.changes) - shown
            changes = " ".join((*self.changes[:shown], *([f"+{rest} more"] if rest else [])))
            if len(self.preset) + 2 + len(changes) <= width:
                return f"{self.preset}: {changes}"
        more = f" +{len(self.changes) - 1} more" if len(self.changes) > 1 else ""
        room = width - len(self.preset) - 2 - len(more)
        if self.changes and room > _LEAST_OF_A_CHANGE:
            return f"{self.preset}: {self.changes[0][: room - 2]}..{more}"
        return f"{self.preset}: {counted(len(self.changes), 'changes')}" if self.changes else self.preset

    def __str__(self) -> str:
        return self.within(LONGEST)


def title(run: Run) -> str:
    """Return the title of a run as text of at most about 72 characters."""
    return str(title_of(run))


def title_of(run: Run) -> Title:
    """Return the complete title of a run.

    Without a record of its origin (a run of an older gputui) it has only the preset's name.
    """
    title = recorded(read_object(run.file(FILE)).value, name_of(run))
    return replace(title, changes=(*title.changes, *_place(run)))


def _place(run: Run) -> Iterator[str]:
    """Yield `worker 1 of 4` for a worker of a run on several machines, or the number of workers for the chief; nothing
    for other runs.
    """
    if (joined := cluster.of_run(run)) is not None:
        workers = len(joined.workers)
        yield counted(workers, "workers") if joined.is_chief else f"worker {joined.index} of {workers}"


def recorded(origin: Mapping[str, Any], default: str) -> Title:
    """Return the title from the record of an origin; `default` is the name of the preset if the record has none."""
    changes = mapping(origin.get("changes"))
    applied = {key: mapping(change) for key, change in changes.items() if not mapping(change).get(NO_EFFECT)}
    words = (_words(key, change.get("to")) for key, change in applied.items())
    return Title(text(origin.get("preset")) or default, tuple(words))


def name_of(run: Run) -> str:
    """Return the name of the preset according to the run's id, which has a time before it and may have a number after
    it.
    """
    return re.sub(r"^\d{8}-\d{6}-|(-worker\d+)?(-\d{1,3})?$", "", run.id) or "run"


def _words(key: str, value: Any) -> str:
    """Return a change as text: `xla` or `no xla` for a switch, else such as `batch_size=256`."""
    name = key.rpartition(".")[2]
    if value is True:
        return name
    if value is False or value is None:
        return f"no {name}"
    return f"{name}={_brief(value)}"


def _brief(value: Any) -> str:
    """Return the value as one short word: of a path its last part, of an interpreter its environment, of a long text
    its beginning.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    word = _PYTHON.sub(r"\1", word)
    kind, _, place = word.rpartition("/")
    if kind and isinstance(value, str):  # not a slash within a mapping
        source = re.match(r"\w+:(?!//)", word)  # csv:/data/train.csv
        word = (source[0] if source else "") + place
    word = "_".join(harmless(word).split())
    return word if len(word) <= _LONGEST_VALUE else f"{word[: _LONGEST_VALUE - 2]}.."


def add_change(run: Run, key: str, before: Any, after: Any) -> None:
    """Put an option that was changed after the launch first among the changes in the run's title.

    A run without a record of its origin is left as it is.
    """
    origin = dict(read_object(run.file(FILE)).value)
    if not origin:
        return
    changes = mapping(origin.get("changes"))
    change = {key: {"from": mapping(changes.get(key)).get("from", before), "to": after}}
    changes = change | {other: details for other, details in changes.items() if other != key}
    write_atomically(run.file(FILE), json.dumps(origin | {"changes": changes}, indent=1) + "\n")


def leave_out(run: Run, unapplied: Mapping[str, str]) -> None:
    """Leave the changed options in `unapplied`, which has the reasons by key, out of the run's title; all other changes
    are in it.
    """
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
    """Return the content of `origin.json`; each of the `changes` has the value in the preset and the value in
    the run.
    """
    entries = {key: {"from": before, "to": after} for key, (before, after) in changes.items()}
    return json.dumps({"preset": preset, "file": file, "changes": entries}, indent=1) + "\n"
