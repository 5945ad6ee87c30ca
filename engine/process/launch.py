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
from pathlib import Path

from .. import presets, runs
from ..files.writing import write_atomically
from ..presets import Preset, paths
from ..runs import Run, RunError, checkpoint_files
from ..runs.life import Life
from ..system import locks, stop_signals
from ..system.identity import Place
from ..system.locks import ENGINE_LOCK, Lock
from ..system.run_clock import VARIABLE, RunClock
from .known_failures import RESUMED
from .spawn import LOCK, WARM, addressed, put_result_aside

ANSWER_SECONDS = 10.0  # a warm engine answers within milliseconds unless it was stopped or killed
RESUMABLE = ("stopped", "crashed", "timeout", "oom", "error")


def settle(preset: Preset, folder: Path) -> Preset:
    """The preset as it is launched: paths made absolute from `folder`, and a seed drawn where none was given."""
    options = paths.absolute(preset.options, dict.fromkeys(paths.KEYS, str(folder)))
    if options.train.seed is None:
        train = options.train.model_copy(update={"seed": secrets.randbelow(2**31)})
        options = options.model_copy(update={"train": train})
    return Preset(preset.name, options, preset.description, preset.origins)


def start(
    preset: Preset, path: Path | None = None, paths_from: Path | None = None
) -> tuple[Run, subprocess.Popen[bytes]]:
    """Create the run folder and start its engine; the caller may forget the returned process.

    `path` is the run folder, where it is not to be a new one among the runs. The preset's relative paths are resolved
    from `paths_from`, by default the current folder.
    """
    clock = RunClock.launched()
    text = settle(preset, paths_from or Path.cwd()).to_yaml()
    run = runs.create(preset.name, text) if path is None else runs.create_at(path, text)
    return run, _spawn_or_remove(run, clock)


class Warm:
    """An engine and a trainer that have imported TensorFlow and wait for a run, so that it starts 5 seconds sooner.

    They touch no device and take about 0.6 GB of memory. They end by themselves with the process that started them.
    """

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs, stop_signals.held():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gputui.engine", WARM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, preset: Preset) -> tuple[Run, subprocess.Popen[bytes]]:
        """Start a run as `start` does; a warm engine that has died or does not answer is replaced by a new one."""
        clock = RunClock.launched()
        run = runs.create(preset.name, settle(preset, Path.cwd()).to_yaml())
        with _lock_of_new(run) as lock:
            if self._line.fileno() < 0 or not self._take(run, lock, clock):
                self.process = _spawn(run, lock, clock)
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
        self.process.kill()
        self.process.wait()
        return False


def resume(run: Run) -> subprocess.Popen[bytes]:
    """Start an engine that continues from the last checkpoint, in the same run folder.

    Raises RunError, or PresetError where the run's preset cannot be read; the run is then unchanged.
    """
    clock = RunClock.launched(not_before=run.last_date())
    with runs.reserved(run, "resume") as lock:
        state = run.state_of(Life())
        if state not in RESUMABLE:
            raise RunError(f"{run.id} cannot be resumed: it has completed")
        preset = presets.resolve(str(run.file("preset.yaml")))
        if not _has_whole_checkpoint(run):
            raise RunError(f"{run.id} has no checkpoint to resume from; set run.checkpoint for the next run")
        # With every option, as engine and trainer expect it, even if an older gputui wrote it; now the latest run.
        write_atomically(run.file("preset.yaml"), preset.to_yaml())
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
        return _spawn(run, lock, clock)


def _spawn_or_remove(run: Run, clock: RunClock) -> subprocess.Popen[bytes]:
    """Start the engine; a new run whose engine cannot be started is removed."""
    try:
        with _lock_of_new(run) as lock:
            return _spawn(run, lock, clock)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _lock_of_new(run: Run) -> Lock:
    try:
        return locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"another gputui is using the new run {run.id}") from None


def _has_whole_checkpoint(run: Run) -> bool:
    """Whether there is an intact checkpoint; raises RunError where there are checkpoints and all are damaged."""
    try:
        return checkpoint_files.whole_step(run.file("checkpoints")) is not None
    except checkpoint_files.Damage as damage:
        again = f"gputui --preset {run.file('preset.yaml')} starts it again from the beginning"
        raise RunError(f"{run.id} has no intact checkpoint to resume from ({damage})\n{again}") from None


def _spawn(run: Run, lock: Lock, clock: RunClock) -> subprocess.Popen[bytes]:
    """Start the engine, which holds the lock from its first moment on; the caller may then release it."""
    with run.file("engine.log").open("ab") as log, stop_signals.held():
        return subprocess.Popen(
            # -P: a file in the current folder must not replace one of gputui's modules.
            [sys.executable, "-P", "-m", "gputui.engine", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {LOCK: str(lock.fd), VARIABLE: clock.as_text()},
            pass_fds=[lock.fd],
            start_new_session=True,
        )
