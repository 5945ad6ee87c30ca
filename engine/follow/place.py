"""The place that a follower has reached, in `follow/TARGET.json` of the run folder, from which it goes on after a kill.

The end of a batch is noted before the batch is written: a follower that was killed meanwhile writes the same batch once
more, and each target recognizes what it has already.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ..files.declared_types import form_of
from ..files.reading import read_object
from ..files.values import plain
from ..files.writing import write_atomically
from ..follow_targets import FOLDER
from .points import PointMaker

State = Literal["starting", "following", "waiting", "done", "given_up"]


class FollowError(Exception):
    """A run cannot be followed, or not by this target. The text says what the user can do."""


@dataclass
class Place:
    """The place of one follower.

    `key` identifies the run at the target. `offsets` are the bytes of each event file that are written; up to `sending`
    they may be. `number`, `step`, `readings` and `goes_back_to` are the state of the PointMaker there. `remote` is the
    target's own, such as the id of the remote run. `problem` is the reason why the follower waits or has given up.
    `since` is the time of the last change of the state, in Unix seconds.
    """

    key: str = field(default_factory=lambda: os.urandom(8).hex())
    offsets: dict[str, int] = field(default_factory=dict)
    sending: dict[str, int] | None = None
    number: int = 0
    step: int = 0
    readings: dict[str, float] = field(default_factory=dict)
    goes_back_to: int | None = None
    remote: dict[str, Any] = field(default_factory=dict)
    state: State = "starting"
    problem: str = ""
    since: float = 0.0
    where: str = ""  # at the target: a path or an address

    @property
    def maker(self) -> PointMaker:
        return PointMaker(self.number, self.step, dict(self.readings), self.goes_back_to)

    def advance(self, offsets: dict[str, int], maker: PointMaker) -> None:
        """Note that everything up to `offsets` is written."""
        self.offsets, self.sending = offsets, None
        self.number, self.step = maker.number, maker.step
        self.readings, self.goes_back_to = maker.readings, maker.goes_back_to

    def rewind(self) -> None:
        """Go back to the first event of the run."""
        self.advance({}, PointMaker())

    def change(self, state: State, problem: str = "") -> None:
        """Note a state and the reason for it. `since` is the time of the last change of the state."""
        if state != self.state:
            self.since = time.time()
        self.state, self.problem = state, problem

    def save(self, path: Path) -> None:
        """Write the place to the file `path`. Raises OSError."""
        write_atomically(path, json.dumps(plain(asdict(self))), durable=False)


def file_of(folder: Path, target: str, ending: str = "json") -> Path:
    """Return the path of a follower's file in the run folder: its place (json), its log or its lock."""
    return folder / FOLDER / f"{target}.{ending}"


def read_place(path: Path) -> Place | None:
    """Return the place in a file. None if there is no such file.

    Raises FollowError if it is damaged, and OSError if it cannot be read.
    """
    content = read_object(path, form_of(Place))
    if content.unreadable:
        raise OSError(content.damage)
    names = {each.name for each in fields(Place)}
    if content.damage or (content.value and not names <= content.value.keys()):
        raise FollowError(f"{path} is damaged: remove it, and everything is written once more as another remote run")
    return Place(**{name: content.value[name] for name in names}) if content.value else None
