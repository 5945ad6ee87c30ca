"""The connections over which the workers have met, kept until TensorFlow has connected them: they show who dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ...runs.cluster import Cluster
from . import connection_watch

# The kernel asks whether the other machine is still there: one that has lost its power closes nothing.
_SILENT_SECONDS, _ASK_SECONDS, _ASKED = 5, 5, 3
_END_SECONDS = 10.0  # for the lookout, after the workers are connected
ByIndex = dict[int, socket.socket]


class Lines:
    """Those by which this worker has `called` the others, and those by which they have called it, by index."""

    def __init__(self) -> None:
        self.called: ByIndex = {}
        self.answered: ByIndex = {}

    def both_ways(self, index: int) -> bool:
        """Whether this worker has reached the other, and the other this one."""
        return index in self.called and index in self.answered

    def drop_ended(self) -> set[int]:
        """Drop the lines of workers that have ended, and return who was there both ways; nothing is said on a line."""
        poll, places = select.poll(), dict[int, tuple[ByIndex, int]]()
        for lines in (self.called, self.answered):
            for index, line in lines.items():
                poll.register(line, select.POLLIN)
                places[line.fileno()] = lines, index
        ended = [places[number] for number, _ in poll.poll(0)]
        lost = {index for _, index in ended if self.both_ways(index)}
        for lines, index in ended:
            drop(lines, index)
        return lost

    def close(self) -> None:
        for lines in (self.called, self.answered):
            for index in tuple(lines):
                drop(lines, index)

    @contextlib.contextmanager
    def watched(self, cluster: Cluster) -> Iterator[None]:
        """Meanwhile another process watches them: it kills this one when a worker ends before all are connected."""
        control, ours = os.pipe()
        try:
            process = self._lookout(cluster, control)
        finally:
            os.close(control)
        try:
            yield
            with contextlib.suppress(BrokenPipeError):  # somebody has ended it
                os.write(ours, connection_watch.CONNECTED)
        finally:
            os.close(ours)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self.close()

    def _lookout(self, cluster: Cluster, control: int) -> subprocess.Popen[bytes]:
        called = {line.fileno(): cluster.named(index) for index, line in self.called.items()}
        answered = [line.fileno() for line in self.answered.values()]
        task = {"trainer": os.getpid(), "control": control, "watched": called, "answered": answered}
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(connection_watch.__file__)), json.dumps(task)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(control, *called, *answered),
        )  # fmt: skip


def keep(lines: ByIndex, index: int, line: socket.socket) -> None:
    """In place of an older one."""
    drop(lines, index)
    lines[index] = line
    _ask_when_silent(line)


def drop(lines: ByIndex, index: int) -> None:
    if (line := lines.pop(index, None)) is not None:
        line.close()


def _ask_when_silent(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_SECONDS), ("TCP_KEEPINTVL", _ASK_SECONDS), ("TCP_KEEPCNT", _ASKED)):
        if (option := getattr(socket, name, None)) is not None:  # which of them there are depends on the system
            line.setsockopt(socket.IPPROTO_TCP, option, value)
