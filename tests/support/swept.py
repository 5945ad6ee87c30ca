"""Sweeps with simulated trainings: each trial ends with a metric that a function of its setting and seed gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.doors.engine import (
    ABSENT,
    DONE,
    RUNNING,
    STOPPED,
    Figures,
    Look,
    QueuedTrainings,
    Record,
    SharedStudy,
    Stop,
    Sweep,
    SweepLoop,
    SweepSettings,
    SweepTrial,
    folder,
    steady,
    sweep_record,
    swept_values,
)
from tests.doors.engine import proof_request_Request as Request
from tests.doors.engine import sweep_record_WAITING as WAITING

Metric = Callable[[Mapping[str, Any], int, int], float | None]  # of changes, seed and epoch (from 1)


class Killed(Exception):
    """Raised where a kill is simulated."""


class Simulated(QueuedTrainings):
    """Trainings that end at the next look.

    `trained` has each epoch that was trained, by run: a run that is started although it has ended trains its last epoch
    again. `failing` has errors by the last three digits of the run.
    """

    def __init__(self, metric: Metric, epochs: int = 1, failing: Mapping[str, str] | None = None) -> None:
        self.metric, self.epochs, self.failing = metric, epochs, dict(failing or {})
        self.trained: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}  # why options have no effect
        self.given_up: list[str] = []  # the runs that a person may resume on their own
        self.kill_at = -1  # the call at which the process is killed
        self.calls = 0
        self._flying: set[str] = set()
        self._stopped: set[str] = set()

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.kill_at:
            raise Killed

    def start(self, trial: SweepTrial) -> None:
        self._count()
        if trial.run not in self._flying:
            self._flying.add(trial.run)
            self._stopped.discard(trial.run)
            done = self.trained.setdefault(trial.run, [])
            until = trial.until or self.epochs
            done += range(len(done) + 1, until + 1) or [until]
        self._count()

    def look(self, trial: SweepTrial) -> Look:
        self._count()
        if trial.run not in self.trained:
            return Look(ABSENT)
        if trial.run in self._flying:
            self._flying.discard(trial.run)
            return Look(RUNNING)
        if trial.run in self._stopped:
            return Look(STOPPED)
        if error := self.failing.get(trial.run[-3:]):
            return Look("failed", error=error, cause={"killed": "crashed"}.get(error, error))
        done = self.trained[trial.run]
        figures = [{"val_loss": self.metric(trial.changes, trial.seed, epoch)} for epoch in done]
        return Look(DONE if len(done) == self.epochs else STOPPED, figures, 10.0 * len(done))

    def stop(self, trial: SweepTrial) -> bool:
        self._flying.discard(trial.run)
        self._stopped.add(trial.run)
        self.trained[trial.run].clear()  # it has no checkpoint
        return True

    def figures(self, trial: SweepTrial) -> Sequence[Figures]:
        done = self.trained.get(trial.run, ())
        return [{"val_loss": self.metric(trial.changes, trial.seed, epoch)} for epoch in done]

    def without_effect(self, trial: SweepTrial) -> Mapping[str, str] | None:
        return self.reasons

    def let_go(self, trial: SweepTrial) -> None:
        self.given_up.append(trial.run)

    def keep_going(self) -> None:
        self._count()

    def trained_twice(self, sweep: Sweep) -> list[str]:
        """The runs with an epoch that was trained twice, and those whose setting and seed another run of the part has
        as well.
        """
        again = [run for run, epochs in self.trained.items() if epochs != sorted(set(epochs))]
        made: dict[object, str] = {}
        for trial in sweep.trials:
            key = (trial.part, trial.seed, sweep_record.key_of(trial.changes))
            again += [trial.run] if made.setdefault(key, trial.run) != trial.run else []
        return again

    def code(self, trial: SweepTrial) -> Mapping[str, str]:
        return {}

    def pass_time(self, record: Record) -> None:
        """Do what happens while the sweep waits."""

    @property
    def flying(self) -> set[str]:
        """The runs that wait or train."""
        return self._flying


class Timed(Simulated):
    """Trainings of which the first `devices` train. An epoch takes `seconds`, in which the sweep waits `waits` times.

    A stopped training keeps its epochs. An epoch of the runs in `slow`, by their last three digits, takes so many times
    as long.
    """

    def __init__(
        self, metric: Metric, epochs: int = 1, seconds: float = 60.0, devices: int = 1, waits: int = 1
    ) -> None:
        super().__init__(metric, epochs)
        self.seconds, self.devices, self.waits = seconds, devices, waits
        self.slow: dict[str, int] = {}
        self._waits = 0
        self._queue: dict[str, int] = {}  # the epoch until which a run trains

    def start(self, trial: SweepTrial) -> None:
        self._stopped.discard(trial.run)
        self._queue.setdefault(trial.run, trial.until or self.epochs)
        self.trained.setdefault(trial.run, [])

    def pass_time(self, record: Record) -> None:
        self._waits += 1
        for run in list(self._queue)[: self.devices]:
            if self._waits % (self.waits * self.slow.get(run[-3:], 1)):
                continue
            self.trained[run].append(len(self.trained[run]) + 1)
            if len(self.trained[run]) >= self._queue[run]:
                del self._queue[run]
        record.started_mark -= self.seconds / self.waits

    def look(self, trial: SweepTrial) -> Look:
        if trial.run in self._queue:
            return Look(RUNNING if trial.run in list(self._queue)[: self.devices] else WAITING)
        if trial.run not in self.trained:
            return Look(ABSENT)
        done = self.trained[trial.run]
        figures = [{"val_loss": self.metric(trial.changes, trial.seed, epoch)} for epoch in done]
        state = DONE if len(done) == self.epochs else STOPPED
        return Look(state, figures, self.seconds * len(done), epoch_seconds=self.seconds if done else None)

    def stop(self, trial: SweepTrial) -> bool:
        self._queue.pop(trial.run, None)
        return True

    @property
    def flying(self) -> set[str]:
        return set(self._queue)


def request_of(over: Sequence[str], epochs: int = 1, **more: Any) -> Request:
    """The request for a sweep of a small preset, which is not checked against the machine."""
    settings = SweepSettings(axes=[swept_values.axis(text) for text in over], metric="val_loss", **more)
    preset = f"schema_version: 1\nworkload: {{model: mlp, data: digits}}\ntrain: {{epochs: {epochs}}}\n"
    return Request(kind="sweep", preset_name="small", preset=preset, folder="/", seed=1, sweep=settings)


def swept(
    request: Request, trainings: Simulated, path: Path, stop: Stop | None = None, study: SharedStudy | None = None
) -> Record:
    """Carry out the sweep in the folder `path` from where its record is, and return the record as readers get it."""
    before = folder.read_record(path) if (path / "proof.json").exists() else None
    record = folder.empty_record(path, request)
    if before is not None:
        record.sweep, record.started_mark = before.sweep, steady() - before.seconds
    SweepLoop(request, record, trainings, stop or Stop(), lambda: trainings.pass_time(record), study).run()
    record.put("ended")
    return read_back(path)


def read_back(path: Path) -> Record:
    """The record in the folder `path`."""
    assert json.loads((path / "proof.json").read_text())
    return folder.read_record(path)
