"""Commands of the report, each in a process of its own with a time limit, and trainings by `gputui --preset`."""

from __future__ import annotations

import contextlib
import json
import math
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

from .text import ROOT, last_line

GPUTUI = str(Path(sys.executable).parent / "gputui")
MANY = 1_000_000  # steps: more than a training makes in its measured seconds
STOPPING_SECONDS = 30.0  # that an ended command has for its own end


class Failed(Exception):
    """A step could not be done; the text, one line, is its row in the report."""


class Skipped(Failed):
    """What cannot be measured here, with the reason."""


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

    def value(self, key: str) -> Any:
        """A figure of the result, such as `mfu` or `step_ms.p50`; or the mean of a reading while it made steps."""
        here: Any = self.summary
        for part in key.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        if here is None and key not in self.summary:
            known = [gpu[key] for gpu in self.readings(steps_only=True) if gpu.get(key) is not None]
            here = statistics.fmean(known) if known else None
        return here

    def end(self) -> str:
        """How it ended, with the error's message."""
        error = self.summary.get("error") or {}
        return f"{self.summary.get('outcome', 'no result')}: {error.get('message') or last_line(self.errors)}"

    def log(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "engine.log").read_text(errors="replace")
        return ""


@dataclass(frozen=True)
class Size:
    """How much is measured: each is an option of the command."""

    model: str = "resnet50"
    pixels: int = 224
    width: float = 1.0
    batch_size: int = 64
    large_batch_size: int = 128  # of the trainings that show what memory they take
    seconds: float = 12.0  # that each training measures, and 20 steps at least
    steps: int = 200  # of the trainings beside a plain fit
    rounds: int = 3  # of what is compared in turn
    proof_minutes: float = 6.0
    hang_seconds: float = 60.0
    limit_seconds: float = 600.0  # for each training
    tests: str = ""  # those of the tests with a GPU that pytest's -k chooses


QUICK = Size(seconds=4.0, steps=60, rounds=1, proof_minutes=2.0, hang_seconds=30.0, tests="variables_live or uuid")


@dataclass(frozen=True)
class Lab:
    """Where the report's runs are kept, how large they are, and when they must have ended."""

    folder: Path
    size: Size = field(default_factory=Size)
    quick: bool = False  # fewer kinds of trainings
    deadline: float = math.inf  # by the monotonic clock
    missing: dict[str, str] = field(default_factory=dict)  # why something is not measured here; empty if it was

    def call(
        self, command: Sequence[str], limit_seconds: float, environment: Mapping[str, str] = {}, home: str = "home"
    ) -> Done:
        """Run a command with a home of the report's own; raises Skipped if the report's time ends before it does."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Skipped("the time of the report was over")
        try:
            where = {"GPUTUI_HOME": str(self.folder / home)}
            return call(command, min(limit_seconds, left), where | dict(environment))
        except Failed:
            if left < limit_seconds:
                raise Skipped("the time of the report ended in it") from None
            raise

    def answer(self, *words: str, limit_seconds: float = 300.0) -> dict[str, Any]:
        """What a command of gputui prints with --json, however it ends."""
        done = self.call([GPUTUI, *words, "--json"], limit_seconds)
        with contextlib.suppress(ValueError):
            return dict(json.loads(done.out))
        raise Failed(last_line(done.errors) or f"exit code {done.code} and no result")

    def train(
        self,
        settings: Mapping[str, Any],
        home: str = "home",
        around: Sequence[str] = (),
        environment: Mapping[str, str] = {},
        preset: str = "quickstart",
        may_fail: bool = False,
    ) -> Training:
        """Train a preset with these settings; raises Failed if it does not end well. `around` runs the command."""
        began = time.time()
        command = [*around, GPUTUI, "--preset", preset, *given(settings), "--json"]
        try:
            done = self.call(command, self.size.limit_seconds, environment, home)
        except BaseException:
            self._stop_all(self.folder / home, began)
            raise
        lines = tuple(json.loads(line) for line in done.out.splitlines() if line.startswith("{"))
        if not lines:
            raise Failed(last_line(done.errors) or f"exit code {done.code} and no output")
        runs = self.folder / home / "runs"
        training = Training(lines, runs / str(lines[0].get("run")), done.seconds, done.errors)
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
            time.sleep(1)

    def image_model(self, **more: Any) -> dict[str, Any]:
        """Settings of the image model on data in memory, with every batch full."""
        size = self.size
        return {
            "workload.model": size.model,
            "workload.width": size.width,
            "workload.data": "synthetic",
            "workload.shape": f"[{size.pixels}, {size.pixels}, 3]",
            "workload.samples": 8 * size.batch_size,
            "workload.classes": 1000,
            "input.batch_size": size.batch_size,
            "input.cache": "memory",
            "input.shuffle": "off",
            "input.drop_remainder": True,
            "train.epochs": 1,
            "train.steps_per_epoch": MANY,
            "train.validation_split": 0,
            "train.seed": 1,
            "run.measure_seconds": size.seconds,
            "run.sample_seconds": 0.5,
        } | more

    def small_model(self, **more: Any) -> dict[str, Any]:
        """Settings of a network that is compiled at once."""
        small = {"workload.model": "cnn", "workload.shape": "[16, 16, 3]", "workload.classes": 10, "compile.xla": False}
        return self.image_model(**small | {"run.sample_seconds": 0.2} | more)


def given(settings: Mapping[str, Any]) -> list[str]:
    """The settings as words of a command."""
    texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return [word for key, value in texts.items() for word in ("--set", f"{key}={value}")]
