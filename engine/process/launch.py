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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from .. import presets, runs
from ..files.writing import write_atomically
from ..options import plain
from ..presets import Preset, paths
from ..runs import Run, RunError, checkpoint_files, cluster, code_files
from ..runs.cluster import FILE, Cluster
from ..runs.launched_with import options_of
from ..runs.liveness import Liveness
from ..system import interpreter, locks, stop_signals
from ..system.identity import Place
from ..system.locks import ENGINE_LOCK, Lock
from ..system.run_clock import VARIABLE, RunClock
from ..telemetry import cluster as clusters
from . import joining, origin
from .known_failures import RESUMED
from .spawn import LOCK, WARM, addressed, put_result_aside

ANSWER_SECONDS = 10.0  # a warm engine answers within milliseconds unless it was stopped or killed
Engine = TypeVar("Engine")  # what stands for the process of an engine
RESUMABLE = ("stopped", "crashed", "timeout", "oom", "error")


def settle(preset: Preset, folder: Path) -> Preset:
    """The preset as it is launched: paths made absolute from `folder`; a seed drawn, and the Python that GPUTUI_PYTHON
    names, where none was given.
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
    """Create the run folder and start its engine; the caller may forget the returned process.

    `path` is the run folder, where it is not to be a new one among the runs. The preset's relative paths are resolved
    from `paths_from`, by default the current folder.
    """
    return start_with(spawn, preset, path, paths_from)


def start_with(
    spawn_engine: Callable[[Run, Lock, RunClock], Engine],
    preset: Preset,
    path: Path | None = None,
    paths_from: Path | None = None,
) -> tuple[Run, Engine]:
    """The same with an engine that is started in another way than by `spawn`.

    A new run whose engine cannot be started is removed.
    """
    clock = RunClock.launched()
    joins = _cluster_of(preset)
    settled = settle(preset, paths_from or Path.cwd())
    run = create(settled, origin.of(preset), joins) if path is None else create_at(path, settled)
    try:
        with _lock_of_new(run) as lock:
            return run, spawn_engine(run, lock, clock)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


class Warm:
    """An engine and a trainer that have imported TensorFlow and wait for a run, so that it starts 5 seconds sooner.

    They touch no device and take about 0.6 GB of memory. They end by themselves with the process that started them.
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
        """Start a run as `start` does; a warm engine that has died or does not answer is replaced by a new one, and so
        is one whose trainer waits in another interpreter.
        """
        clock = RunClock.launched()
        settled = settle(preset, Path.cwd())
        if interpreter.chosen(settled.options.run.python) != self.python:
            self.close()
            self._end()
        run = create(settled, origin.of(preset))
        with _lock_of_new(run) as lock:
            if self._line.fileno() < 0 or not self._take(run, lock, clock):
                self.process = spawn(run, lock, clock)
        return run, self.process

    def close(self) -> None:
        """End engine and trainer when no run is wanted."""
        self._line.close()

    def _take(self, run: Run, lock: Lock, clock: RunClock) -> bool:
        """Whether the engine has accepted the run; one that has not by now never will."""
        with contextlib.suppress(OSError), self._line as line:
            line.settimeout(ANSWER_SECONDS)
            socket.send_fds(line, [os.fsencode(addressed(clock, run.path))], [lock.fd])
            if line.recv(1):
                return True
        self._end()
        return False

    def _end(self) -> None:
        """Its trainer ends by itself."""
        self.process.kill()
        self.process.wait()


def _cluster_of(preset: Preset) -> Cluster | None:
    """The cluster in which a run of the preset is one worker's."""
    return clusters.read(os.environ) if preset.options.strategy.kind == "multi_worker" else None


def resume(run: Run, new_code: bool = False) -> subprocess.Popen[bytes]:
    """Start an engine that continues from the last checkpoint, in the same run folder.

    If the user's code has changed since, it goes on only with `new_code`. Raises RunError, or PresetError where the
    run's preset cannot be read, or ClusterError where it was a worker of another cluster; the run is then unchanged.
    """
    joins = joining.cluster_to_resume(run)
    clock = RunClock.launched(not_before=run.last_date())
    with runs.reserved(run, "resume") as lock:
        preset = preset_to_resume(run)
        if not new_code:
            code_files.check(run)
        # With every option, as engine and trainer expect it, even if an older gputui wrote it; now the latest run.
        write_atomically(run.file("preset.yaml"), preset.to_yaml())
        write_atomically(run.file(plain.FILE), plain.to_json(preset.options))
        if joins is not None:
            write_atomically(run.file(FILE), joins.as_file())
        place = Place.read(run.status)
        if (
            place is not None and not place.is_here
        ):  # the run has left that machine, whose last heartbeat may look recent
            write_atomically(run.file("status.json"), json.dumps({**run.status, "phase": "ended"}), durable=False)
        if not lock.works:  # this file shows that a run is starting
            put_result_aside(run.path)
            run.file("status.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError), run.file("engine.log").open("a") as log:  # the disk may be full
            log.write(f"{RESUMED}\n")
        if new_code:  # last: after a resume that fails, the code must be asked about again
            code_files.accept(run)
        return spawn(run, lock, clock)


def preset_to_resume(run: Run) -> Preset:
    """The preset of a run that is not alive and can be resumed; raises RunError or PresetError where it cannot."""
    if run.state_of(Liveness()) not in RESUMABLE:
        raise RunError(f"{run.id} cannot be resumed: it has completed")
    preset = presets.resolve(str(run.file("preset.yaml")))
    if not _has_whole_checkpoint(run):
        raise RunError(without_checkpoint(run))
    return preset


def without_checkpoint(run: Run) -> str:
    """Why a run without a checkpoint has none."""
    if options_of(run).get("run.checkpoint") in (None, "off"):
        return f"{run.id} has no checkpoint to resume from; set run.checkpoint for the next run"
    return f"{run.id} has no checkpoint to resume from: it ended before its first one"


def create(settled: Preset, record: str = "", joins: Cluster | None = None) -> Run:
    """A new run folder with all that a trainer reads, and the record of the preset's origin."""
    return runs.create(settled.name, settled.to_yaml(), record, {plain.FILE: plain.to_json(settled.options)}, joins)


def create_at(path: Path, settled: Preset) -> Run:
    """The same with a given folder."""
    return runs.create_at(path, settled.to_yaml(), more={plain.FILE: plain.to_json(settled.options)})


def _lock_of_new(run: Run) -> Lock:
    try:
        return locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"another gputui is using the new run {run.id}") from None


def _has_whole_checkpoint(run: Run) -> bool:
    """Whether there is an intact checkpoint; raises RunError where there are checkpoints and all are damaged.

    Of a training on several machines the chief has them: where its folder cannot be read from here, its trainer finds
    out.
    """
    if (joined := cluster.of_run(run)) is not None and not joined.is_chief:
        chief = cluster.chief_of(run)
        if chief is None:
            return options_of(run).get("run.checkpoint") not in (None, "off")
        run = chief
    try:
        return checkpoint_files.whole_step(run.file("checkpoints")) is not None
    except checkpoint_files.Damage as damage:
        again = f"gputui --preset {run.file('preset.yaml')} starts it again from the beginning"
        raise RunError(f"{run.id} has no intact checkpoint to resume from ({damage})\n{again}") from None


def spawn(run: Run, lock: Lock, clock: RunClock) -> subprocess.Popen[bytes]:
    """Start the engine, which holds the lock from its first moment on; the caller may then release it."""
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
    """The variable that tells the trainer of a training on several machines which of its workers it is."""
    found = cluster.of_run(run)
    return {cluster.VARIABLE: found.as_tf_config()} if found else {}
