"""Queued runs without TensorFlow: run folders that wait, and trainings that hold the lock of an engine and end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Entry, Gpu, Lock, Proof, Run, Runner, entries, events, locks, runner, runs
from tests.doors.engine import queue_devices_CPU as CPU
from tests.doors.engine import queue_devices_Device as Device

Said = Callable[..., str]  # the fixture `said` of tests/queue
GPUS = (Device(Gpu(0, "GPU-a")), Device(Gpu(1, "GPU-b")))


def waiting(name: str = "fast", visible: Any = "free:1", **of_run: Any) -> Run:
    """A run folder as the queue gets it."""
    options = {"device": {"visible": visible}, "run": of_run}
    return runs.create(name, "schema: 1\n", more={"options.json": json.dumps(options)})


def add(*made: Run, after: Run | Proof | None = None) -> None:
    for run in made:
        entries.add_entry(entries.entry_of(run, after.id if after else None))


@dataclass
class Child:
    """The process that starts a run: it has ended as soon as it is asked."""

    returncode: int = 0
    stdout: Any = None

    def poll(self) -> int:
        return self.returncode


@dataclass
class Trainings:
    """Trainings by the ids of their runs; `begun` has the runs in the order of their starts, with their devices."""

    seen: Sequence[Device] = GPUS
    begun: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    refused: Mapping[str, int] = field(default_factory=dict)  # exit codes of starts that fail, by the runs' ids
    _alive: dict[str, Lock] = field(default_factory=dict)

    def launch(self, entry: Entry, among: Sequence[str]) -> Child:
        if code := self.refused.get(entry.run):
            return Child(code)
        wanted = 2 if ":2" in entry.needs else 1
        chosen = tuple(among[:wanted])
        assert entry.run not in self._alive, "it runs twice"
        others = [other for other in self._running if other.devices == chosen and CPU not in chosen]
        assert {other.per_gpu for other in others} <= {entry.per_gpu}, "two that do not share on one device"
        assert not others or len(others) < entry.per_gpu, "too many on one device"
        self._alive[entry.run] = locks.take(entry.job.path / entry.job.lock_file)
        with entries.locked():
            entries.write(replace(entry, state="running", devices=chosen))
        self.begun.append((entry.run, chosen))
        return Child()

    @property
    def _running(self) -> list[Entry]:
        return [entry for name in self._alive if (entry := entries.read(name))]

    @property
    def taken(self) -> set[str]:
        return {device for entry in self._running for device in entry.devices}

    def look(self) -> list[Device]:
        """The devices of `seen`, those that runs share now with what NVML and the leases would say of them."""
        looked = []
        for device in self.seen:
            on = [entry for entry in self._running if device.name in entry.devices and entry.per_gpu > 1]
            places = f"{len(on)} of {on[0].per_gpu} runs" if on else ""
            looked.append(replace(device, per_gpu=on[0].per_gpu, places=places) if on else device)
        return looked

    @property
    def alive(self) -> list[str]:
        return list(self._alive)

    def end(self, name: str, outcome: events.Outcome | None = "ok", kind: str = "") -> None:
        """End a training with a result, or without one as if its machine had restarted."""
        run = Run(runs.runs_folder() / name)
        if outcome is not None:
            error = {"error": {"kind": kind, "message": f"{kind} in {name}", "hint": ""}} if kind else {}
            run.file("result.json").write_text(json.dumps(asdict(events.Summary(outcome=outcome)) | error))
        self._alive.pop(name).release()

    def runner(self, boot_id: str = "") -> Runner:
        return Runner(self.look, self.launch, boot_id)


def no_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the test itself is the runner."""
    monkeypatch.setattr(entries, "ensure_runner", lambda: None)
    monkeypatch.setattr(runner, "WALK_SECONDS", 0.0)


def states() -> dict[str, str]:
    return {entry.run: entry.state for entry in entries.all_entries()}


def entry_file(run: Run) -> Path:
    return entries.file_of(run.id)
