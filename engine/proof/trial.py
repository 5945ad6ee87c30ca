"""One trial: a training of a few measured seconds, with an engine and a trainer of its own in an ordinary run folder.

However a trial ends, it becomes a row of the proof; only a request to stop raises an exception. When trials run, and
what follows from them, is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import plan, presets, runs
from ..diagnosis import collector
from ..options import OPTIONS, Options, by_key
from ..presets import Preset
from ..process import launch
from ..runs import Run, RunError
from ..telemetry.machine import Machine
from ..text import share
from .record import FIGURES, Trial
from .schedule import decay_steps

POLL_SECONDS = 0.05
STEPS = 1_000_000_000  # the most that train.steps_per_epoch takes: at 10 us a step it lasts for hours
LIMIT_MINUTES = 15.0  # before anything is measured: start-up, the pass that fills the cache; a shorter limit stands
ORPHAN_SECONDS = 60.0  # how long a trainer without its engine may take to end

# The trial's own; to change one of them would change nothing that a trial measures.
OWN = frozenset({
    "train.epochs", "train.steps_per_epoch", "train.seed", "run.checkpoint", "run.keep", "run.save_model",
    "run.profile", "run.max_minutes", "run.measure_seconds",
})


class Stop:
    """How often a stop has been asked for: once ends the running trial gracefully, twice at once."""

    def __init__(self) -> None:
        self.count = 0

    def ask(self, *_: Any) -> None:
        """Also a signal handler."""
        self.count += 1


def with_changes(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """The preset with options changed, and checked anew; raises PresetError."""
    known = by_key(OPTIONS)
    values = {key: getattr(getattr(preset.options, info.group), info.name) for key, info in known.items()}
    return presets.assemble(preset.name, values | dict(changes), preset.description)


def as_trial(
    preset: Preset, seed: int, measure_seconds: float, machine: Machine, profile: str = "off"
) -> Preset:
    """The preset as a trial trains it: one endless epoch, nothing written, ended when enough has been measured."""
    together = preset.options.compile.steps_per_execution
    start_and_warmup = min(preset.options.run.max_minutes or LIMIT_MINUTES, LIMIT_MINUTES)
    limit = start_and_warmup + plan.MOST_TIMES * measure_seconds / 60
    return with_changes(preset, {
        "train.epochs": 1,  # its end would evaluate
        "train.steps_per_epoch": plan.whole_executions(STEPS, together),
        "train.decay_steps": decay_steps(preset.options, machine),
        "train.seed": seed,
        "run.checkpoint": "off",
        "run.save_model": False,
        "run.profile": profile,
        "run.max_minutes": limit,
        "run.measure_seconds": measure_seconds,
    })


class Bench:
    """Runs trials one after another, in folders that are numbered in the order of their start.

    `beside` says what else trains on the devices of such a training (sharing.py), or nothing.
    """

    def __init__(self, folder: Path, paths_from: Path, seed: int, seconds: float, machine: Machine, stop: Stop,
                 beside: Callable[[Options], str] = lambda options: "") -> None:
        self.folder, self.paths_from, self.machine, self.stop = folder, paths_from, machine, stop
        self.seed, self.measure_seconds, self.beside = seed, seconds, beside
        self._count = 0

    def run_of(self, trial: Trial) -> Run:
        return Run(self.folder / trial.run)

    def measure(
        self, preset: Preset, side: str, repeat: int, *, seconds: float | None = None, profile: str = "off"
    ) -> Trial:
        """One trial, waited for; `seconds` to measure if not those of all, `profile` the steps of a profile."""
        self._count += 1
        began = time.monotonic()
        path = self.folder / f"{self._count:02}-{side}"
        asked_before = self.stop.count
        neighbour = self.beside(preset.options)
        try:
            trial = as_trial(preset, self.seed, seconds or self.measure_seconds, self.machine, profile)
            run, engine = launch.start(trial, path, self.paths_from)
        except OSError as fault:  # no room, no process: the next trial may have it
            row = Trial(side=side, repeat=repeat, run=path.name, outcome="crashed", error=f"not started: {fault}")
        else:
            self._wait(run, engine)
            row = outcome(run, side, repeat, asked=self.stop.count > asked_before)
            row.disturbed = disturbed(run, neighbour or self.beside(preset.options))
        row.seconds = time.monotonic() - began
        return row

    def _wait(self, run: Run, engine: subprocess.Popen[bytes]) -> None:
        """Until engine and trainer are gone; passes on each request to stop."""
        told, orphan_since = 0, None
        while engine.poll() is None or run.alive("trainer"):
            if self.stop.count > told:
                with contextlib.suppress(RunError):  # it has not told its process id yet
                    runs.request_stop(run)
                    told += 1
            if engine.poll() is not None:
                orphan_since = orphan_since or time.monotonic()
                if time.monotonic() - orphan_since > ORPHAN_SECONDS:
                    _kill_trainer(run)
            time.sleep(POLL_SECONDS)


def outcome(run: Run, side: str, repeat: int, asked: bool = False) -> Trial:
    """The row of a run that has ended; `asked`: a stop was asked for meanwhile."""
    result = run.result or {}
    ended, why = str(result.get("outcome") or "crashed"), _first_line(result)
    if ended == "stopped" and not asked:
        ended, why = "crashed", "stopped from outside: its engine is gone"
    row = Trial(side=side, repeat=repeat, run=run.id, outcome=ended, error=None if ended == "ok" else why)
    for name in FIGURES:
        setattr(row, name, result.get(name))
    row.samples_per_second = row.step_ms = None  # as means over all measured steps
    steps, seconds, batch = (result.get(name) for name in ("measured_steps", "measured_seconds", "global_batch_size"))
    if steps and seconds and batch:
        row.samples_per_second, row.step_ms = steps * batch / seconds, 1000 * seconds / steps
    elif ended == "ok":
        row.outcome, row.error = "error", "it ended before anything was measured"
    return row


def disturbed(run: Run, neighbour: str = "") -> str:
    """Who else used the devices or cores of a trial; `neighbour` is what of gputui was seen beside it, in words."""
    known = collector.read(run)
    cores = f"other programs used {share(known.others_cpu or 0)} of the CPU's cores" if known.crowded else ""
    gpus = f"other programs on its GPU: {', '.join(known.gpu_neighbours)}" if known.gpu_neighbours else ""
    return ", ".join(filter(None, (neighbour, cores, gpus)))


def _first_line(result: Mapping[str, Any]) -> str:
    error = result.get("error") or {}
    if not result:
        return "it is gone without a result (engine and trainer)"
    lines = str(error.get("message") or result.get("outcome")).splitlines()
    return lines[0] if lines else str(result.get("outcome"))


def _kill_trainer(run: Run) -> None:
    process = run.process("trainer")
    if process is not None and process.alive():
        with contextlib.suppress(RunError):
            runs.signal_process(run, "trainer", process, signal.SIGKILL)
