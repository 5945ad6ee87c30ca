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
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from .. import presets, runs
from ..files.places import runs_folder
from ..files.reading import read_object
from ..files.values import mapping, text
from ..files.writing import write_atomically
from ..interpreter import interpreter
from ..job import cluster as clusters
from ..leases import start_devices
from ..leases.lease import environment
from ..leases.start_devices import Devices
from ..options import OPTIONS, Options, is_private, options_json
from ..plan import MULTI_WORKER
from ..presets import Preset, PresetError, paths
from ..runs import Run, RunError, code_copy, run_cluster, titles
from ..runs.run_cluster import Cluster
from ..system import locks, stop_signals
from ..system.locks import ENGINE_LOCK, Lock
from ..system.run_clock import VARIABLE, RunClock
from .spawn import LOCK, WARM, addressed

ANSWER_SECONDS = 10.0  # a warm engine answers within milliseconds unless it was stopped or killed
Engine = TypeVar("Engine")  # a process, or another handle on an engine
# What a title may name: the folder goes with its entry, and private options may hold secrets.
_PLAIN = tuple(info.key for info in OPTIONS if info.key != paths.FOLDER and not is_private(info.key))


def settle(preset: Preset, folder: Path) -> Preset:
    """Return the preset as it is launched: with absolute paths, a seed and a Python.

    Relative paths are resolved from `folder`. A seed is drawn if the preset has none. If the preset has no Python, it
    gets the one that GPUTUI_PYTHON names, if any.
    """
    options = paths.absolute(preset.options, dict.fromkeys(paths.KEYS, str(folder)))
    if options.train.seed is None:
        options = replace(options, train=replace(options.train, seed=secrets.randbelow(2**31)))
    if options.run.python is None:
        options = replace(options, run=replace(options.run, python=interpreter.from_environment()))
    return replace(preset, options=options)


def start(preset: Preset, tell: Callable[[str], None] = lambda _text: None) -> tuple[Run, subprocess.Popen[bytes]]:
    """Lease the devices, create the run folder and start the run's engine. Return the run and the engine's process,
    which need not be waited for.

    `tell` is called with a line if the choice of GPUs takes time. Raises NotFree if too few GPUs are free, ClusterError
    if the cluster cannot be used, or OSError if the engine cannot be started; then no run folder is left.
    """
    clock, joins = RunClock.launched(), _cluster_of(preset)
    settled = settle(preset, Path.cwd())
    with leased(settled.options, settled.name, tell) as devices:
        run = create(settled, origin_of(preset), joins, devices.options)
        try:
            with _lock_of_new(run) as lock:
                return run, spawn(run, lock, clock, devices)
        except OSError:
            shutil.rmtree(run.path, ignore_errors=True)
            raise


@contextlib.contextmanager
def leased(
    options: Options,
    what: str,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    among: Collection[str] | None = None,
    all_visible: bool = False,
) -> Iterator[Devices]:
    """A context for a run or a proof: leases its devices, and releases them if an exception leaves the context.

    Raises NotFree if the devices cannot be leased. The parameters are those of `lease_devices`. A context without an
    exception must have handed the leases over to the engine.
    """
    devices = start_devices.lease_devices(options, what, tell, among=among, all_visible=all_visible)
    try:
        yield devices
    except BaseException:
        devices.release()
        raise


def start_with(
    spawn_engine: Callable[[Run, Lock, RunClock], Engine],
    preset: Preset,
    path: Path | None = None,
    paths_from: Path | None = None,
) -> tuple[Run, Engine]:
    """Create a run folder and start its engine with `spawn_engine`, without leases. Return the run and the result of
    that function.

    `path` is the run folder, by default a new one in the folder of runs. The preset's relative paths are resolved from
    `paths_from`, by default the current folder. If the engine cannot be started, the run folder is removed, and OSError
    is raised.
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
    """An engine and a trainer, in the interpreter `python`, that have imported TensorFlow and wait for a run.

    The run then starts 5 seconds sooner. They open no device, take about 0.6 GB of memory, and end by themselves when
    the process that started them ends.
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
        """Start a run in the waiting engine and trainer. Return the run and the engine's process.

        If the waiting engine has ended, does not answer within 10 s, or has its trainer in another interpreter, a new
        engine is started. Raises NotFree if too few GPUs are free, or OSError if the engine cannot be started; the
        run folder is then removed.
        """
        clock = RunClock.launched()
        settled = settle(preset, Path.cwd())
        if self._line.fileno() >= 0 and interpreter.chosen(settled.options.run.python) != self.python:
            self.close()
            self._end()
        with leased(settled.options, settled.name) as devices:
            run = create(settled, origin_of(preset), chosen=devices.options)
            try:
                with _lock_of_new(run) as lock:
                    if self._line.fileno() < 0 or not self._take(run, lock, clock, devices):
                        self.process = spawn(run, lock, clock, devices)
            except OSError:
                shutil.rmtree(run.path, ignore_errors=True)
                raise
        return run, self.process

    def close(self) -> None:
        """End the waiting engine and trainer. Called if no run will be started."""
        self._line.close()

    def _take(self, run: Run, lock: Lock, clock: RunClock, devices: Devices) -> bool:
        """Give the run to the waiting engine, and return True if it accepts it in time; else end the engine and return
        False.
        """
        with contextlib.suppress(OSError), self._line as line:
            line.settimeout(ANSWER_SECONDS)
            names = ",".join(lease.key for lease in devices.leases)
            descriptors = [lock.fd, *(lease.lock.fd for lease in devices.leases)]
            socket.send_fds(line, [os.fsencode(f"{addressed(clock, run.path)}\n{names}")], descriptors)
            if line.recv(1):
                devices.hand_over(self.process.pid, str(run.path))
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


def create(
    settled: Preset,
    record: str = "",
    joins: Cluster | None = None,
    chosen: Options | None = None,
    path: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> Run:
    """Create a new run folder with all files that a trainer reads, and with a copy of the user's own code.

    `record` is the record of the preset's origin, and `joins` the run's cluster. `chosen` are the options with the
    chosen GPUs, which the trainer gets instead of those of the preset. `path` is the folder, by default one with a new
    name. `more` has the texts of further files.
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
    """Create the run folder of a preset that the queue starts later. The user's own code is trained from the copy in
    it.

    Relative paths are resolved from `folder`, by default the current one. `path` and `more` are those of `create`.
    """
    settled = settle(preset, folder or Path.cwd())
    if settled.options.workload.entry is not None:
        options = settled.options
        settled = replace(settled, options=replace(options, run=replace(options.run, code="copy")))
    return create(settled, origin_of(preset), path=path, more=more)


def create_at(path: Path, settled: Preset) -> Run:
    """Create the run folder `path`, with the preset and its options. Unlike `create`, it gets no origin and no copy of
    code.
    """
    return runs.create_at(path, settled.to_yaml(), more={options_json.FILE: options_json.to_json(settled.options)})


def _lock_of_new(run: Run) -> Lock:
    try:
        return locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"another gputui is using the new run {run.name}") from None


def spawn(run: Run, lock: Lock, clock: RunClock, devices: Devices | None = None) -> subprocess.Popen[bytes]:
    """Start the engine of a run, and return its process. Raises OSError.

    The engine holds the lock and the leases of `devices` from its start, so that the caller may release the lock.
    """
    leases = devices.leases if devices else ()
    with run.file("engine.log").open("ab") as log, stop_signals.held():
        process = subprocess.Popen(
            # -P: a file in the current folder must not replace one of gputui's modules.
            [sys.executable, "-P", "-m", "gputui.engine", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | {LOCK: str(lock.fd), VARIABLE: clock.as_text()} | _as_worker(run) | environment(leases),
            pass_fds=[lock.fd, *(lease.lock.fd for lease in leases)],
            start_new_session=True,
        )
    if devices is not None:
        devices.hand_over(process.pid, str(run.path))
    return process


def begin(run: Run, preset: Preset, among: Collection[str] | None) -> subprocess.Popen[bytes]:
    """Lease the devices of a queued run, whose folder exists, and start its engine. Return the engine's process.

    The run starts from its first step, not from a checkpoint. `among` is that of `lease_devices`. Raises NotFree if too
    few of these devices are free, or RunError if the run is alive.
    """
    clock = RunClock.launched(not_before=run.last_date())
    with _lock_of_new(run) as lock, leased(preset.options, preset.name, among=among) as devices:
        if run.liveness.trainer:
            raise RunError(f"{run.name} cannot be started: its trainer has not ended yet")
        write_atomically(run.file(options_json.FILE), options_json.to_json(devices.options))
        return spawn(run, lock, clock, devices)


def _as_worker(run: Run) -> dict[str, str]:
    """Return the environment variable that passes the cluster and this worker's index to the engine; empty for a run on
    one machine.
    """
    joined = run_cluster.of_run(run)
    return {run_cluster.VARIABLE: joined.as_tf_config()} if joined else {}


# ---- which preset a run is started from, and what was changed of it ---------------------------


def origin_of(preset: Preset) -> str:
    """Return the record of the preset's origin and of the changed options as JSON; empty if the preset comes from no
    file.

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
