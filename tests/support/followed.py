"""Runs to follow, written as a trainer and an engine write them, and targets that keep what they get."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.doors.engine import FOLDER, Following, Run, State, Target, file_of, read_place
from tests.doors.engine import place_Place as Place

BEGIN = 1_700_000_000.0


class Written:
    """A run folder to which events are appended as they would be during a training."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "preset.yaml").write_text("schema_version: 1\nrun:\n  checkpoint: epoch\n")
        os.utime(folder / "preset.yaml", (BEGIN, BEGIN))  # not a run that is just starting
        self.run, self.t = Run(folder), BEGIN
        self._late: list[Callable[[], None]] = []

    def train(self, steps: Sequence[int], is_late: bool = False) -> None:
        """Append a progress event for each of the steps, and readings of GPU and host before each.

        With `is_late`, the readings are appended by the next call, as if the engine had got no CPU time.
        """
        for append in self._late:
            append()
        self._late.clear()
        for step in steps:
            self.t += 0.3
            gpu = [{"index": 0, "busy": step % 100 / 100}]
            host = {"type": "host", "cpu": 0.5, "memory_used_bytes": 7, "t": self.t}
            readings = partial(self._append, "telemetry.jsonl", ({"type": "gpu", "gpus": gpu, "t": self.t}, host))
            if is_late:
                self._late.append(readings)
            else:
                readings()
            self.t += 0.2
            loss = {"loss": 1 / step, "metrics": {"accuracy": 1 - 1 / step}}
            self.events({"type": "progress", "epoch": 1, "step": step, "samples_per_second": 100.0, **loss})

    def resume(self, step: int) -> None:
        self.events({"type": "started", "resumed_at_step": step, "options": {}})

    def finish(self, outcome: str, steps: int) -> None:
        summary = {"outcome": outcome, "steps": steps, "step_ms": {"p50": 2.5}, "metrics": {"loss": 0.25}}
        self.t += 0.5
        self.events({"type": "finished", "outcome": outcome, "summary": summary})
        self.run.file("result.json").write_text(json.dumps(summary))

    def events(self, *events: Mapping[str, Any]) -> None:
        self._append("events.jsonl", events)

    def _append(self, name: str, events: Sequence[Mapping[str, Any]]) -> None:
        with self.run.file(name).open("a") as stream:
            stream.writelines(json.dumps({"t": self.t, "run": self.run.id} | dict(event)) + "\n" for event in events)


def follow(
    run: Run, target: Target, name: str = "tensorboard", say: Callable[[str], None] = lambda _line: None
) -> State:
    """Follow the run in this process, from the place that an earlier call has noted."""
    run.file(FOLDER).mkdir(exist_ok=True)
    place = read_place(file_of(run.path, name)) or Place.new()
    target.remote = place.remote
    return Following(run.path, name, target, place, say).follow()
