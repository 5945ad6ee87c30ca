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
    """A step could not be carried out. The text is the reason, in one line for the report."""


class Skipped(Failed):
    """A step that cannot be measured on this machine or in the time that is left. The text is the reason."""


@dataclass(frozen=True)
class Done:
    """A command that has ended: its exit code, its output, its error output and its duration."""

    code: int
    out: str
    errors: str
    seconds: float


def call(command: Sequence[str], limit_seconds: float, environment: Mapping[str, str] = {}) -> Done:
    """Run a command until it ends. Raises Failed if it takes more than `limit_seconds`, and then ends its processes.

    `environment` has further environment variables for it.
    """
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
    """A finished run: its events in their order, its folder, the duration of the command, and the error output.
    `summary` is that of its last event, empty without one.
    """

    events: tuple[Mapping[str, Any], ...]
    folder: Path
    seconds: float
    errors: str = ""
    summary: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", dict(self.only("finished").get("summary") or {}))

    def only(self, kind: str) -> Mapping[str, Any]:
        """Return the last event of the type `kind`; empty if there is none."""
        return next((event for event in reversed(self.events) if event.get("type") == kind), {})

    def readings(self, index: int | None = None, steps_only: bool = False) -> Iterator[Mapping[str, Any]]:
        """Yield the readings of the GPUs that train or, with `index`, of the GPU with this number.

        With `steps_only`, only readings during training are yielded, without start, evaluation and saving.
        """
        mine, phase = set(self.only("started").get("gpus") or ()), ""
        for event in self.events:
            phase = str(event["phase"]) if event.get("type") == "phase" else phase
            if steps_only and phase != "training":
                continue
            for gpu in event.get("gpus") or () if event.get("type") == "gpu" else ():
                if gpu.get("index") == index if index is not None else gpu.get("uuid") in mine:
                    yield gpu

    def value(self, key: str) -> Any:
        """Return a figure of the result, such as `mfu` or `step_ms.p50`. If the result has no such figure, return the
        mean of this reading of the GPUs during training; None if it is not known.
        """
        here: Any = self.summary
        for part in key.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        if here is None and key not in self.summary:
            known = [gpu[key] for gpu in self.readings(steps_only=True) if gpu.get(key) is not None]
            here = statistics.fmean(known) if known else None
        return here

    def end(self) -> str:
        """Return the outcome of the run with the error's message."""
        error = self.summary.get("error") or {}
        return f"{self.summary.get('outcome', 'no result')}: {error.get('message') or last_line(self.errors)}"

    def log(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "engine.log").read_text(errors="replace")
        return ""


@dataclass(frozen=True)
class Size:
    """The amount of work of the report. Each field is an option of the command."""

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
    """The settings of the report: the folder of its runs, their size, and the time at which the report must end."""

    folder: Path
    size: Size = field(default_factory=Size)
    quick: bool = False  # fewer kinds of trainings
    deadline: float = math.inf  # by the monotonic clock
    missing: dict[str, str] = field(default_factory=dict)  # why something is not measured here; empty if it was

    def call(
        self, command: Sequence[str], limit_seconds: float, environment: Mapping[str, str] = {}, home: str = "home"
    ) -> Done:
        """Run a command with the home `home` of the report. Raises Skipped if the report's time ends before the command
        does, and Failed if it takes more than `limit_seconds`.
        """
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
        """Return the JSON object that a command of gputui prints with --json, whatever its exit code. Raises Failed
        without one.
        """
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
        """Train a preset with these settings. Raises Failed if it does not end well, unless `may_fail` is set.

        `around` are words of a command that runs the training.
        """
        began = time.time()
        command = [*around, GPUTUI, "--preset", preset, *given(settings), "--json"]
        try:
            done = self.call(command, self.size.limit_seconds, environment, home)
        except BaseException:
            self._stop_all(self.folder / home, began)
            raise
        lines = tuple(json.loads(line) for line in done.out.splitlines() if line.startswith("{"))
        if not lines and not may_fail:
            raise Failed(last_line(done.errors) or f"exit code {done.code} and no output")
        runs = self.folder / home / "runs"
        training = Training(lines, runs / str(lines[0].get("run") if lines else ""), done.seconds, done.errors)
        if done.code != 0 and not may_fail:
            raise Failed(training.end())
        return training

    def _stop_all(self, home: Path, since: float) -> None:
        """Stop the runs of a home that have begun since the Unix time `since`, and end them at once a second later.

        A run continues if its command is ended.
        """
        fresh = [run.name for run in home.glob("runs/*") if run.stat().st_mtime >= since - 1]
        for _ in range(2):
            for run in fresh:
                with contextlib.suppress(Failed):
                    call([GPUTUI, "stop", run], STOPPING_SECONDS, {"GPUTUI_HOME": str(home)})
            time.sleep(1)

    def image_model(self, **more: Any) -> dict[str, Any]:
        """Return the settings of the image model with data in memory. `more` are further settings, which override
        these.
        """
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
            "run.sample_seconds": min(0.5, size.seconds),
        } | more

    def small_model(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a small network that is compiled quickly. `more` are further settings, which override
        these.
        """
        small = {"workload.model": "cnn", "workload.shape": "[16, 16, 3]", "workload.classes": 10, "compile.xla": False}
        return self.image_model(**small | {"run.sample_seconds": 0.2} | more)


def given(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings as words of the command line: `--set KEY=VALUE` for each."""
    texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return [word for key, value in texts.items() for word in ("--set", f"{key}={value}")]
