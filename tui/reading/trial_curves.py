"""The metric of each epoch of the trials of a sweep, read from their runs."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Collection, Iterable

from ...engine.files.reading import written_at
from ...engine.proof.folder import Proof, proofs_folder
from ...engine.runs import Run, runs_folder
from ...engine.runs.event_reading import events_of
from ...engine.runs.events import EVENTS_FILE, EpochEnd
from ...engine.trials.record import Record
from ...engine.trials.sweep_record import IN_FLIGHT, SweepTrial
from .run.series import Line

AGAIN_SECONDS = 3.0  # between two readings of a trial that trains


class TrialCurves:
    """Reads the curves of trials. `lines` has a line over epochs by run, and is another mapping if one has changed."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.lines: dict[str, Line] = {}
        self._read_at: dict[str, tuple[float, int]] = {}  # the time of the reading, and the size of the file

    def read(self, trials: Iterable[SweepTrial]) -> None:
        """Read the trials whose files have grown. One that trains is read at most once in AGAIN_SECONDS."""
        fresh = {trial.run: line for trial in trials if (line := self._line(trial)) is not None}
        if fresh:
            self.lines = self.lines | fresh

    def _line(self, trial: SweepTrial) -> Line | None:
        """The line of a trial, None if nothing new is to be read."""
        run, now = Run(runs_folder() / trial.run), time.monotonic()
        before, size_before = self._read_at.get(trial.run, (-math.inf, 0))
        if trial.state in IN_FLIGHT and now - before < AGAIN_SECONDS:
            return None
        try:
            size = run.file(EVENTS_FILE).stat().st_size
        except OSError:
            return None
        if size == size_before:
            return None
        self._read_at[trial.run] = now, size
        ends = {event.epoch: event.metrics.get(self.metric) for event in events_of(run.path, EpochEnd)}
        points = [(epoch, value) for epoch, value in sorted(ends.items()) if value is not None]
        values = [value for _, value in points]
        return Line(array("d", [epoch for epoch, _ in points]), array("d", values), last=values[-1] if values else None)


class SweepRecords:
    """Reads the records of sweeps. That of a sweep that has ended is read again only if its file has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Record]] = {}

    def read(self, sweeps: Collection[str]) -> dict[str, Record]:
        """Return the record of each of the sweeps with these ids. UNREAD for one that cannot be read."""
        for name in sweeps:
            proof, former = Proof(proofs_folder() / name), self._known.get(name)
            stamp = written_at(proof.path / "proof.json")
            if former is None or former[0] != stamp or former[1].state in ("running", "waiting"):
                self._known[name] = stamp, proof.record
        return {name: self._known[name][1] for name in sweeps}
