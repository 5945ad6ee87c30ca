"""The interface of a target, and what it gets to know about the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..options import OPTIONS, is_private
from ..runs import Run, titles
from ..runs.events import Outcome
from ..runs.launched_with import options_of
from .points import Point


@dataclass(frozen=True)
class AboutRun:
    """What a target shows about a run. `options` are those that differ from their defaults, by `group.name`."""

    folder: Path
    id: str
    title: str
    preset: str
    options: Mapping[str, Any]
    tags: Sequence[str]
    note: str


def about_run(run: Run) -> AboutRun:
    """Return the present state of a run's title, options, tags and note, from its folder."""
    values, title, notes = options_of(run), titles.title_of(run), titles.read_notes(run)
    defaults = {info.key: info.default for info in OPTIONS}
    shared = {key: value for key, value in values.items() if not is_private(key)}
    changed = {key: value for key, value in shared.items() if key not in defaults or value != defaults[key]}
    return AboutRun(run.path, run.id, title.whole, title.preset, changed, notes.tags, notes.note)


_LOGIN = re.compile(r"//[^/?#\s]*@")  # in an address; a password may have an @


def without_login(text: str) -> str:
    """Return the text with its addresses, but without the user names and passwords in them."""
    return _LOGIN.sub("//", text)


class Target(Protocol):
    """Writes the points of one run to one place.

    `remote` is a part of the follower's place: what the target needs to find its remote run again. All methods may
    raise any exception; the follower then waits, calls `open` again, and writes the same points once more.
    """

    remote: dict[str, Any]
    where: str  # the path or address at which the user finds the figures

    def open(self, about: AboutRun, key: str) -> int | None:
        """Create the remote run, or find the one that an earlier follower with the same `key` has created.

        Returns the number of the first point that it does not have; None if it cannot say, and trusts the place.
        """

    def write(self, points: Sequence[Point]) -> None:
        """Write the points, and return when the target has them. The same points may be given again."""

    def end(self, about: AboutRun, outcome: Outcome) -> None:
        """Note how the run has ended, after its last point. It may be called again, also after further points."""
