"""The target `tensorboard`: one file of TensorBoard's events in the folder `tensorboard` of the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..runs import Run
from ..runs.events import Outcome
from . import tfevents
from .target import AboutRun, Offsets, Point, PointMaker, about_run, read_batch

FOLDER = "tensorboard"  # in a run folder


class TensorBoard:
    """Appends to a file. `remote` has its name, its length after the last batch, and the figures that are described.
    What a killed follower has written after that length is written over in the same way.
    """

    def __init__(self, remote: dict[str, Any], folder: Path | None = None) -> None:
        self.remote, self.where = remote, ""
        self._folder = folder
        self._about: AboutRun | None = None

    def open(self, about: AboutRun, _key: str) -> int | None:
        """Begin the file again if it is shorter than noted, as after a crash of the machine."""
        self._about = about
        self.where = str(self._folder or about.folder / FOLDER)
        if not self.remote:
            return 0
        if not self.path.exists() or self.path.stat().st_size < self.remote["bytes"]:
            self.remote.clear()
            return 0
        return None

    def write(self, points: Sequence[Point]) -> None:
        assert self._about is not None
        Path(self.where).mkdir(parents=True, exist_ok=True)
        if not self.remote:
            name = f"events.out.tfevents.{int(points[0].t)}.gputui.{self._about.id}"  # which TensorBoard recognizes
            self.remote.update(file=name, bytes=0, described=[])
        described = set(self.remote["described"])
        with self.path.open("r+b" if self.remote["bytes"] else "wb") as stream:
            stream.seek(self.remote["bytes"])
            _append(stream, self._about, points, described)
            stream.truncate()
            stream.flush()
            self.remote.update(bytes=stream.tell(), described=sorted(described))

    @property
    def path(self) -> Path:
        """There is one as soon as a point is written."""
        return Path(self.where, os.path.basename(self.remote["file"]))

    def end(self, _about: AboutRun, _outcome: Outcome) -> None:
        """The file needs no end."""


def write_all(run: Run, folder: Path) -> Path | None:
    """Write one file in `folder`. Without figures return None, and make no folder. Raises OSError."""
    target, maker = TensorBoard({}, folder), PointMaker()
    target.open(about_run(run), "")
    offsets: Offsets = {}
    while (batch := read_batch(run.path, offsets)).ends != offsets:
        if points := list(maker.points(batch.events)):
            target.write(points)
        offsets = batch.ends
    return target.path if target.remote else None


def _table(about: AboutRun) -> str:
    head = [f"**{about.title}** {' '.join(f'#{tag}' for tag in about.tags)}", "", about.note, ""]
    rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in about.options.items()]
    return "\n".join([*head, "| option | value |", "| --- | --- |", *rows])


def _append(stream: BinaryIO, about: AboutRun, points: Sequence[Point], described: set[str]) -> None:
    if not stream.tell():
        stream.write(tfevents.header(points[0].t) + tfevents.text(points[0].t, "options", _table(about)))
    for point in points:
        if point.goes_back_to is not None:
            stream.write(tfevents.goes_back_to(point.t, point.goes_back_to))
        stream.write(tfevents.scalars(point.t, point.step, point.figures, described))
