"""Starts runs whose trainers are forked from one process that has imported TensorFlow, which saves seconds for each
run. That process (trainer/fork_server.py) lives as long as the process that has started it. If it cannot fork, has died
or does not answer, the engine starts a trainer as usual.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .. import runs
from ..interpreter import interpreter
from ..options import options_json
from ..presets import Preset
from ..runs import Run
from ..system import child_process, stop_signals
from ..system.identity import Process
from ..system.locks import Lock
from ..system.run_clock import RunClock
from . import launch
from .spawn import FORK_SERVER, addressed, python_of

READY_SECONDS = 120.0  # to import TensorFlow from a slow disk
POLL_SECONDS = 0.1


class ForkServer:
    """Starts runs in a folder, one after the other. There is one forking process for each interpreter (run.python). As
    soon as `in_a_hurry`, a run is started as usual instead of waiting for the import of TensorFlow.
    """

    def __init__(self, folder: Path, in_a_hurry: Callable[[], bool] = lambda: False) -> None:
        self._folder, self._in_a_hurry = folder, in_a_hurry
        self._servers: dict[str, _Server] = {}

    def start(self, preset: Preset, path: Path, paths_from: Path) -> tuple[Run, Callable[[], bool]]:
        """A run in the new folder `path`, and whether its engine is alive. OSError: the folder is removed."""
        clock = RunClock.launched()
        launch.cluster_of(preset)  # raises ClusterError
        settled = launch.settle(preset, paths_from)
        run = runs.create_at(path, settled.to_yaml(), more={options_json.FILE: options_json.to_json(settled.options)})
        with launch.starting(run) as lock:
            return run, self._spawn(run, lock, clock)

    def close(self) -> None:
        """The runs that were forked continue."""
        for server in self._servers.values():
            server.close()

    def _spawn(self, run: Run, lock: Lock, clock: RunClock) -> Callable[[], bool]:
        python = python_of(str(run.path))
        if python not in self._servers:
            self._servers[python] = _Server(python, self._folder, self._in_a_hurry)
        if (forked := self._servers[python].fork(run, lock, clock)) is not None:
            return forked.alive
        process = launch.spawn(run, lock, clock)
        return lambda: process.poll() is None


class _Server:
    """The forking process for the interpreter `python`, started when it is first needed."""

    def __init__(self, python: str, folder: Path, in_a_hurry: Callable[[], bool]) -> None:
        self._python, self._folder, self._in_a_hurry = python, folder, in_a_hurry
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._useful = sys.platform == "linux" and os.environ.get("GPUTUI_WARM") != "0"
        self._has_forked = False

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def fork(self, run: Run, lock: Lock, clock: RunClock) -> Process | None:
        """The forked engine; None if that fails, on systems other than Linux, or if GPUTUI_WARM is 0."""
        if not self._useful:
            return None
        with contextlib.suppress(OSError):
            line = self._line_to_it()
            mine, theirs = socket.socketpair()
            with mine:
                with theirs:
                    request = os.fsencode(addressed(clock, run.path))
                    socket.send_fds(line, [request], [lock.fd, theirs.fileno()])
                if pid := self._answer(mine):
                    engine = Process.of(int(pid))
                    mine.sendall(b"\n")  # without this byte the engine ends itself
                    self._has_forked = True
                    return engine
        self.close()
        self._useful = self._has_forked  # one that has never forked cannot, on this machine
        return None

    def _line_to_it(self) -> socket.socket:
        """The connection to the process that forks, which is started if it is not running."""
        if self._line is not None and self._process is not None and self._process.poll() is None:
            return self._line
        self.close()
        self._line, theirs = socket.socketpair()
        with theirs, stop_signals.held():
            self._process = child_process.start(
                interpreter.command(self._python, "gputui.engine.trainer", str(self._folder), FORK_SERVER),
                env=interpreter.environment(self._python),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return self._line

    def _answer(self, line: socket.socket) -> bytes:
        """The forked engine's pid as digits; empty if none comes within 120 s or before `in_a_hurry`."""
        line.settimeout(POLL_SECONDS)
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until and not self._in_a_hurry():
            with contextlib.suppress(TimeoutError):
                return line.recv(32)
        return b""
