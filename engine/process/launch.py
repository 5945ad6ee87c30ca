"""Starts an engine for a run folder, in a session of its own, so that it outlives the terminal.

After `start`, viewer and engine communicate only through the run folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from .. import presets, runs
from ..files.places import runs_folder
from ..files.reading import read_object
from ..files.values import mapping, text
from ..interpreter import interpreter
from ..job import cluster as clusters
from ..options import OPTIONS, options_json
from ..plan import MULTI_WORKER
from ..presets import Preset, PresetError, paths
from ..runs import Run, RunError, cluster, titles
from ..runs.cluster import Cluster
from ..system import locks, stop_signals
from ..system.locks import ENGINE_LOCK, Lock
from ..system.run_clock import VARIABLE, RunClock
from .spawn import LOCK, WARM, addressed

ANSWER_SECONDS = 10.0  # a warm engine answers within milliseconds unless it was stopped or killed
Engine = TypeVar("Engine")  # a process, or another handle on an engine
_PLAIN = tuple(info.key for info in OPTIONS if info.key != paths.FOLDER)  # the folder goes with its entry


def settle(preset: Preset, folder: Path) -> Preset:
    """Return the preset as it is launched: with absolute paths, a seed and a Python.

    Relative paths are resolved from `folder`. A seed is drawn if the preset has none. If the preset has no Python, it
    gets the one that GPUTUI_PYTHON names.
    """
    options = paths.absolute(preset.options, dict.fromkeys(paths.KEYS, str(folder)))
    if options.train.seed is None:
        options = replace(options, train=replace(options.train, seed=secrets.randbelow(2**31)))
    if options.run.python is None:
        options = replace(options, run=replace(options.run, python=interpreter.from_environment()))
    return replace(preset, options=options)


def start(
    preset: Preset, path: Path | None = None, paths_from: Path | None = None
) -> tuple[Run, subprocess.Popen[bytes]]:
    """Create the run folder and start the run's engine; return the run and the engine's process, which need not be
    waited for.

    `path` is the run folder; by default a new one is created in the folder of runs. The preset's relative paths are
    resolved from `paths_from`, by default the current folder.
    """
    return start_with(spawn, preset, path, paths_from)


def start_with(
    spawn_engine: Callable[[Run, Lock, RunClock], Engine],
    preset: Preset,
    path: Path | None = None,
    paths_from: Path | None = None,
) -> tuple[Run, Engine]:
    """Do the same as `start`, but start the engine with `spawn_engine`, and return what that function returns.

    If the engine of a new run cannot be started, the run folder is removed.
    """
    clock = RunClock.launched()
    joins = _cluster_of(preset)
    settled = settle(preset, paths_from or Path.cwd())
    run = create(settled, origin_of(preset), joins) if path is None else create_at(path, settled)
    try:
        with _lock_of_new(run) as lock:
            return run, spawn_engine(run, lock, clock)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


class Warm:
    """An engine and a trainer that wait for a run and have already imported TensorFlow, so that the run starts 5
    seconds sooner.

    They open no device, take about 0.6 GB of memory, and end by themselves when the process that started them ends.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self.python = python
        self._line, theirs = socket.socketpair()
        with theirs, stop_signals.held():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gputui.engine", WARM, python],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, preset: Preset) -> tuple[Run, subprocess.Popen[bytes]]:
        """Start a run in the waiting engine and trainer; return the run and the engine's process.

        If the waiting engine has ended, does not answer, or has its trainer in another interpreter, a new engine is
        started.
        """
        clock = RunClock.launched()
        settled = settle(preset, Path.cwd())
        if interpreter.chosen(settled.options.run.python) != self.python:
            self.close()
            self._end()
        run = create(settled, origin_of(preset))
        with _lock_of_new(run) as lock:
            if self._line.fileno() < 0 or not self._take(run, lock, clock):
                self.process = spawn(run, lock, clock)
        return run, self.process

    def close(self) -> None:
        """End the waiting engine and trainer, if no run will be started."""
        self._line.close()

    def _take(self, run: Run, lock: Lock, clock: RunClock) -> bool:
        """Give the run to the waiting engine, and return True if it accepts it in time; else end the engine and return
        False.
        """
        with contextlib.suppress(OSError), self._line as line:
            line.settimeout(ANSWER_SECONDS)
            socket.send_fds(line, [os.fsencode(addressed(clock, run.path))], [lock.fd])
            if line.recv(1):
                return True
        self._end()
        return False

    def _end(self) -> None:
        """Kill the engine; its trainer then ends by itself."""
        self.process.kill()
        self.process.wait()


def _cluster_of(preset: Preset) -> Cluster | None:
    """Return the cluster in which a run of the preset is one worker; None if the preset does not train on several
    machines.
    """
    return clusters.read(os.environ) if preset.options.strategy.kind == MULTI_WORKER else None


def create(settled: Preset, record: str = "", joins: Cluster | None = None) -> Run:
    """Create a new run folder with all files that a trainer reads.

    `record` is the record of the preset's origin, and `joins` the run's cluster.
    """
    return runs.create(
        settled.name, settled.to_yaml(), record, {options_json.FILE: options_json.to_json(settled.options)}, joins
    )


def create_at(path: Path, settled: Preset) -> Run:
    """Create the run folder `path`, with the same files as `create` but without a record of the origin."""
    return runs.create_at(path, settled.to_yaml(), more={options_json.FILE: options_json.to_json(settled.options)})


def _lock_of_new(run: Run) -> Lock:
    try:
        return locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"another gputui is using the new run {run.id}") from None


def spawn(run: Run, lock: Lock, clock: RunClock) -> subprocess.Popen[bytes]:
    """Start the engine, and return its process.

    The engine holds the lock from its start, so that the caller may release it.
    """
    with run.file("engine.log").open("ab") as log, stop_signals.held():
        return subprocess.Popen(
            # -P: a file in the current folder must not replace one of gputui's modules.
            [sys.executable, "-P", "-m", "gputui.engine", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {LOCK: str(lock.fd), VARIABLE: clock.as_text()} | _as_worker(run),
            pass_fds=[lock.fd],
            start_new_session=True,
        )


def _as_worker(run: Run) -> dict[str, str]:
    """Return the environment variable with the cluster and this worker's index; empty for a run on one machine."""
    joined = cluster.of_run(run)
    return {cluster.VARIABLE: joined.as_tf_config()} if joined else {}


# ---- which preset a run is started from, and what was changed of it ---------------------------


def origin_of(preset: Preset) -> str:
    """Return the record of the preset's origin and of the changed options; empty if the preset comes from no file.

    For a run that is started with the options of another run, the origin is that of the other run, and the changes of
    both are recorded.
    """
    if preset.file is None:
        return ""
    now = _values(preset)
    run = _run_of(preset.file)
    earlier = read_object(run.file(titles.FILE)).value if run else {}
    before = _preset_values(preset.file, now)
    before |= {key: mapping(change).get("from") for key, change in mapping(earlier.get("changes")).items()}
    changes = {key: (before[key], now[key]) for key in _PLAIN if key in before and before[key] != now[key]}
    name = titles.title_of(run).preset if run else preset.name
    return titles.record(name, text(earlier.get("file")) or str(preset.file), changes)


def title_of(preset: Preset) -> str:
    """Return the title that a new run of the preset would have."""
    return str(titles.recorded(json.loads(origin_of(preset) or "{}"), preset.name))


def _preset_values(file: Path, default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in the preset file; if it cannot be read, return `default`, so that no value counts
    as changed.
    """
    try:
        return _values(presets.resolve(str(file)))
    except PresetError:
        return dict(default)


def _values(preset: Preset) -> dict[str, Any]:
    groups = asdict(preset.options)
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _run_of(file: Path) -> Run | None:
    """Return the run to whose folder the preset file belongs; None if it is not in a run folder."""
    folder = file.resolve().parent
    return Run(folder) if file.name == "preset.yaml" and folder.parent == runs_folder().resolve() else None
