"""Starts an engine for a run folder, in a session of its own, so that it outlives the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from .. import presets, runs
from ..files import typed
from ..files.places import runs_folder
from ..files.writing import write_atomically
from ..interpreter import interpreter
from ..job import cluster as clusters
from ..leases.gpu_use import Devices, lease_devices
from ..options import OPTIONS, Options, is_private, options_json
from ..plan import MULTI_WORKER
from ..presets import Preset, PresetError, paths
from ..runs import Run, RunError, code_copy, run_cluster, titles
from ..runs.run_cluster import Cluster
from ..system import child_process, locks, stop_signals
from ..system.identity import Process
from ..system.locks import ENGINE_LOCK, Lock
from ..system.run_clock import VARIABLE, RunClock
from .spawn import FORK_SERVER, LOCK, WARM, addressed, python_of

ANSWER_SECONDS = 10.0  # a warm engine answers within milliseconds unless it was stopped or killed
# What a title may name: the folder goes with its entry, and private options may hold secrets.
_PLAIN = tuple(info.key for info in OPTIONS if info.key != paths.FOLDER and not is_private(info.key))


def settle(preset: Preset, folder: Path) -> Preset:
    """Return the preset with absolute paths (relative ones are from `folder`), a seed and a Python. A command has
    neither of these two.
    """
    options = paths.absolute(preset.options, dict.fromkeys(paths.KEYS, str(folder)))
    if options.workload.command:
        return replace(preset, options=options)
    if options.train.seed is None:
        options = options.with_values({"train.seed": secrets.randbelow(2**31)})
    if options.run.python is None:
        options = options.with_values({"run.python": interpreter.from_environment()})
    return replace(preset, options=options)


def start(preset: Preset, tell: Callable[[str], None] = lambda _text: None) -> tuple[Run, subprocess.Popen[bytes]]:
    """Lease the devices, create the run folder and start the engine. `tell` gets a line if the choice of GPUs takes
    time. Raises NotFree, ClusterError, or OSError if the engine cannot be started; then no run folder is left.
    """
    clock, joins = RunClock.launched(), cluster_of(preset)
    settled = settle(preset, Path.cwd())
    with lease_devices(settled.options, settled.name, tell) as devices:
        run = create(settled, origin_of(preset), joins, devices.options)
        with starting(run) as lock:
            return run, spawn(run, lock, clock, devices, joins)


class Warm:
    """An engine and a trainer in the interpreter `python` that have imported TensorFlow: a run starts 5 seconds sooner.
    They open no device, take about 0.6 GB of memory, and end by themselves with the process that started them.
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
        """Start a run as `start` does. A new engine is started if the waiting one has ended, does not answer within 10
        s, or has its trainer in another interpreter.
        """
        clock = RunClock.launched()
        settled = settle(preset, Path.cwd())
        fits = interpreter.chosen(settled.options.run.python) == self.python and not settled.options.workload.command
        if self._line.fileno() >= 0 and not fits:
            self.close()
            self._end()
        with lease_devices(settled.options, settled.name) as devices:
            run = create(settled, origin_of(preset), chosen=devices.options)
            with starting(run) as lock:
                if self._line.fileno() < 0 or not self._take(run, lock, clock, devices):
                    self.process = spawn(run, lock, clock, devices)
        return run, self.process

    def close(self) -> None:
        """End the waiting engine if no run will be started."""
        self._line.close()

    def _take(self, run: Run, lock: Lock, clock: RunClock, devices: Devices) -> bool:
        """True if the waiting engine accepts the run in time; else it is ended."""
        with contextlib.suppress(OSError), self._line as line:
            line.settimeout(ANSWER_SECONDS)
            names = ",".join(lease.key for lease in devices.leases)
            socket.send_fds(line, [os.fsencode(f"{addressed(clock, run.path)}\n{names}")], [lock.fd, *devices.fds])
            if line.recv(1):
                devices.hand_over(self.process.pid, str(run.path))
                return True
        self._end()
        return False

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()


# ---- trainers that are forked, which saves seconds for each run ------------------------------------

# The process that forks (trainer/fork_server.py) has imported TensorFlow, and lives as long as this process. If it
# cannot fork, has died or does not answer, the engine starts a trainer as usual.
READY_SECONDS = 120.0  # to import TensorFlow from a slow disk
POLL_SECONDS = 0.1


class ForkServer:
    """Starts runs in a folder, one after the other. There is one forking process for each interpreter (run.python). As
    soon as `in_a_hurry`, a run is started as usual instead of waiting for the import of TensorFlow.
    """

    def __init__(self, folder: Path, in_a_hurry: Callable[[], bool] = lambda: False) -> None:
        self._folder, self._in_a_hurry = folder, in_a_hurry
        # The forking process of each interpreter, and the line to it.
        self._servers: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}
        self._has_forked: set[str] = set()
        self._cannot: set[str] = set()  # one that has never forked cannot, on this machine

    def start(self, preset: Preset, path: Path, paths_from: Path) -> tuple[Run, Callable[[], bool]]:
        """A run in the new folder `path`, and whether its engine is alive. OSError: the folder is removed."""
        clock = RunClock.launched()
        cluster_of(preset)  # raises ClusterError
        settled = settle(preset, paths_from)
        run = runs.create_at(path, settled.to_yaml(), more={options_json.FILE: options_json.to_json(settled.options)})
        with starting(run) as lock:
            if (forked := self._fork(python_of(str(run.path)), run, lock, clock)) is not None:
                return run, forked.alive
            process = spawn(run, lock, clock, Devices(settled.options, ()))
            return run, lambda: process.poll() is None

    def close(self) -> None:
        """The runs that were forked continue."""
        for python in list(self._servers):
            self._end(python)

    def _end(self, python: str) -> None:
        process, line = self._servers.pop(python)
        line.close()
        process.kill()
        process.wait()

    def _fork(self, python: str, run: Run, lock: Lock, clock: RunClock) -> Process | None:
        """The forked engine; None if that fails, on systems other than Linux, or if GPUTUI_WARM is 0."""
        if python in self._cannot or sys.platform != "linux" or os.environ.get("GPUTUI_WARM") == "0":
            return None
        with contextlib.suppress(OSError):
            if python in self._servers and self._servers[python][0].poll() is not None:
                self._end(python)
            if python not in self._servers:
                line, theirs = socket.socketpair()
                with theirs, stop_signals.held():
                    process = child_process.start(
                        interpreter.command(python, "gputui.engine.trainer", str(self._folder), FORK_SERVER),
                        env=interpreter.environment(python),
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                self._servers[python] = process, line
            mine, theirs = socket.socketpair()
            with mine:
                with theirs:
                    request = os.fsencode(addressed(clock, run.path))
                    socket.send_fds(self._servers[python][1], [request], [lock.fd, theirs.fileno()])
                mine.settimeout(POLL_SECONDS)
                pid, until = b"", time.monotonic() + READY_SECONDS
                while not pid and time.monotonic() < until and not self._in_a_hurry():
                    with contextlib.suppress(TimeoutError):
                        if not (pid := mine.recv(32)):
                            break
                if pid:
                    engine = Process.of(int(pid))
                    mine.sendall(b"\n")  # without this byte the engine ends itself
                    self._has_forked.add(python)
                    return engine
        if python in self._servers:
            self._end(python)
        self._cannot |= {python} - self._has_forked
        return None


# ---- the folder of a run, and its engine -----------------------------------------------------------


def cluster_of(preset: Preset) -> Cluster | None:
    return clusters.read(os.environ) if preset.options.strategy.kind == MULTI_WORKER else None


def create(
    settled: Preset,
    record: str = "",
    joins: Cluster | None = None,
    chosen: Options | None = None,
    path: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> Run:
    """Create a run folder with all files that a trainer reads, and with a copy of the user's own code. `record` is of
    the preset's origin, `chosen` are the options with the chosen GPUs, and `more` the texts of further files.
    """
    files = {options_json.FILE: options_json.to_json(chosen or settled.options), **(more or {})}
    run = runs.create(settled.name, settled.to_yaml(), record, files, joins, path)
    try:
        code_copy.make(run, settled.options)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def create_queued(
    preset: Preset, folder: Path | None = None, path: Path | None = None, more: Mapping[str, str] | None = None
) -> Run:
    """The queue starts the run later, and the user's own code is trained from the copy in the folder."""
    settled = settle(preset, folder or Path.cwd())
    if settled.options.workload.entry is not None:
        options = settled.options
        settled = replace(settled, options=options.with_values({"run.code": "copy"}))
    return create(settled, origin_of(preset), path=path, more=more)


def _lock_of_new(run: Run) -> Lock:
    try:
        return locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"another gputui is using the new run {run.name}") from None


@contextlib.contextmanager
def starting(run: Run) -> Iterator[Lock]:
    """The lock of a new run, whose folder is removed if its engine cannot be started (OSError)."""
    try:
        with _lock_of_new(run) as lock:
            yield lock
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def spawn(
    run: Run, lock: Lock, clock: RunClock, devices: Devices, joins: Cluster | None = None
) -> subprocess.Popen[bytes]:
    """The engine holds the lock and the leases from its start: the caller may release the lock. Raises OSError."""
    as_worker = {run_cluster.VARIABLE: joins.as_tf_config()} if joins else {}
    process = child_process.start_session(
        run.file("engine.log"),
        "gputui.engine",
        str(run.path),
        env=os.environ | {LOCK: str(lock.fd), VARIABLE: clock.as_text()} | as_worker | devices.environment,
        pass_fds=[lock.fd, *devices.fds],
    )
    devices.hand_over(process.pid, str(run.path))
    return process


def begin(run: Run, preset: Preset, among: Collection[str] | None) -> subprocess.Popen[bytes]:
    """Start a queued run from its first step. NotFree if too few of `among` are free, RunError if it is alive."""
    clock = RunClock.launched(not_before=run.last_date())
    with _lock_of_new(run) as lock, lease_devices(preset.options, preset.name, among=among) as devices:
        if run.liveness.trainer:
            raise RunError(f"{run.name} cannot be started: its trainer has not ended yet")
        write_atomically(run.file(options_json.FILE), options_json.to_json(devices.options))
        return spawn(run, lock, clock, devices)


# ---- which preset a run is started from, and what was changed of it ---------------------------


def origin_of(preset: Preset) -> str:
    """The preset's origin and the changed options as JSON; empty if it comes from no file, unless it is a command. For
    the options of another run it is that run's origin, with the changes of both.
    """
    if preset.file is None:
        words = preset.options.workload.command
        return titles.record(preset.name, "", {titles.COMMAND: ([], words)}, preset.run_name) if words else ""
    now, before, file = preset.options.values(), preset.options.values(), preset.file.resolve()
    in_run = file.name == "preset.yaml" and file.parent.parent == runs_folder().resolve()
    run = Run(file.parent) if in_run else None
    earlier = typed.read_usable(run.file(titles.FILE), titles.Origin) if run else titles.Origin()
    with contextlib.suppress(PresetError):  # no value of a file that cannot be read counts as changed
        before = presets.resolve(str(preset.file)).options.values()
    before |= {key: change.get("from") for key, change in earlier.changes.items()}
    changes = {key: (before[key], now[key]) for key in _PLAIN if key in before and before[key] != now[key]}
    name = titles.preset_of(run) if run else preset.name
    return titles.record(name, earlier.file or str(preset.file), changes, preset.run_name)


def title_of(preset: Preset) -> str:
    """Return the title of a new run of the preset."""
    origin = typed.convert(json.loads(origin_of(preset) or "{}"), titles.Origin)
    return str(titles.recorded(origin, preset.name))
