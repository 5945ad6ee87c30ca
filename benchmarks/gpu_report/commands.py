"""Commands of the report, each in a process of its own with a time limit, and trainings by `gputui --preset`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GPUTUI = str(Path(sys.executable).parent / "gputui")
STOPPING_SECONDS = 30.0  # that an ended command has for its own end


class Failed(Exception):
    """A step could not be done; the text, one line, is its row in the report."""


class Skipped(Failed):
    """A step that this machine has nothing for."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    errors: str
    seconds: float


def call(command: Sequence[str], limit_seconds: float, environment: Mapping[str, str] = {}) -> Done:
    """Run a command to its end; raises Failed where it takes longer, with all that it started ended."""
    began = time.monotonic()
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", cwd=ROOT,
        env=os.environ | dict(environment), start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise Failed(f"not done within {limit_seconds:.0f} s: {' '.join(command)[:120]}") from None
    except BaseException:
        _end(process)
        raise
    return Done(process.returncode, out, errors, time.monotonic() - began)


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOPPING_SECONDS)
            return


@dataclass(frozen=True)
class Training:
    """A finished run: its events in their order, and its folder."""

    events: tuple[Mapping[str, Any], ...]
    folder: Path
    seconds: float
    errors: str = ""
    summary: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", dict(self.only("finished").get("summary") or {}))

    def only(self, kind: str) -> Mapping[str, Any]:
        """The last event of a type, empty where there is none."""
        return next((event for event in reversed(self.events) if event.get("type") == kind), {})

    def readings(self, index: int | None = None, steps_only: bool = False) -> Iterator[Mapping[str, Any]]:
        """Readings of the GPUs that train, or of the one with this index; of the whole run, or while it makes steps."""
        mine, phase = set(self.only("started").get("gpus") or ()), ""
        for event in self.events:
            phase = str(event["phase"]) if event.get("type") == "phase" else phase
            if steps_only and phase != "training":
                continue
            for gpu in event.get("gpus") or () if event.get("type") == "gpu" else ():
                if gpu.get("index") == index if index is not None else gpu.get("uuid") in mine:
                    yield gpu

    def mean(self, key: str) -> float | None:
        known = [gpu[key] for gpu in self.readings(steps_only=True) if gpu.get(key) is not None]
        return statistics.fmean(known) if known else None

    def end(self) -> str:
        """How it ended, with the error's message."""
        error = self.summary.get("error") or {}
        return f"{self.summary.get('outcome', 'no result')}: {error.get('message') or _last_line(self.errors)}"

    def log(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "engine.log").read_text(errors="replace")
        return ""


@dataclass(frozen=True)
class Lab:
    """Where the report's runs are kept, and how large they are."""

    folder: Path
    model: str
    pixels: int
    width: float
    batch_size: int
    steps: int
    limit_seconds: float  # for each training

    def train(
        self,
        settings: Mapping[str, Any],
        home: str = "home",
        environment: Mapping[str, str] = {},
        around: Sequence[str] = (),
        preset: str = "quickstart",
        may_fail: bool = False,
    ) -> Training:
        """Train a preset with these settings; raises Failed where it does not end well. `around` runs the command."""
        given = [word for key, value in settings.items() for word in ("--set", f"{key}={_text(value)}")]
        where = self.folder / home
        began = time.time()
        try:
            done = call(
                [*around, GPUTUI, "--preset", preset, "--json", *given], self.limit_seconds,
                {"GPUTUI_HOME": str(where), **environment},
            )  # fmt: skip
        except Failed:
            self._stop_all(where, began)
            raise
        told = tuple(json.loads(line) for line in done.out.splitlines() if line.startswith("{"))
        if not told:
            raise Failed(_last_line(done.errors) or f"exit code {done.code} and no output")
        training = Training(told, where / "runs" / str(told[0].get("run")), done.seconds, done.errors)
        if done.code != 0 and not may_fail:
            raise Failed(training.end())
        return training

    def _stop_all(self, home: Path, since: float) -> None:
        """A run goes on by itself when its command is ended: stop it, and the second time at once."""
        fresh = [run.name for run in home.glob("runs/*") if run.stat().st_mtime >= since - 1]
        for _ in range(2):
            for run in fresh:
                with contextlib.suppress(Failed):
                    call([GPUTUI, "stop", run], STOPPING_SECONDS, {"GPUTUI_HOME": str(home)})
            time.sleep(2)

    def image_model(self, **more: Any) -> dict[str, Any]:
        """Settings of a network for images that wait in the host's memory, so that batches pass to the GPU."""
        return {
            "workload.model": self.model,
            "workload.width": self.width,
            "workload.data": "synthetic",
            "workload.shape": f"[{self.pixels}, {self.pixels}, 3]",
            "workload.samples": 8 * self.batch_size,
            "workload.classes": 1000,
            "input.batch_size": self.batch_size,
            "input.cache": "memory",
            "input.shuffle": "off",
            "input.drop_remainder": "true",
            "train.epochs": 1,
            "train.steps_per_epoch": self.steps,
            "train.validation_split": 0,
            "train.seed": 1,
            "run.sample_seconds": 0.5,
        } | more

    def small_model(self, **more: Any) -> dict[str, Any]:
        """Settings of a small network that trains for some seconds, so that the driver's readings see it."""
        return {
            "workload.data": "synthetic",
            "workload.shape": "[32, 32, 3]",
            "workload.samples": 16 * self.batch_size,
            "input.batch_size": 2 * self.batch_size,
            "compile.xla": False,
            "train.epochs": 1,
            "train.steps_per_epoch": 2 * self.steps,
            "run.sample_seconds": 0.2,
        } | more


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
