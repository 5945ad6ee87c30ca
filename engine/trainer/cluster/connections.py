"""The connections over which the workers have met. They are kept until TensorFlow connects the workers, as they show
which worker dies.
"""

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

from ...runs.run_cluster import Cluster
from . import connection_watch

# The kernel asks whether the other machine is still there: one that has lost its power closes nothing.
_SILENT_SECONDS, _ASK_SECONDS, _ASKED = 5, 5, 3
_END_SECONDS = 10.0  # for the watching process, after the workers are connected
ByIndex = dict[int, socket.socket]


class Connections:
    """The connections to the other workers, by index of the worker. This worker has opened those in `called`, and the
    others have opened those in `answered`.
    """

    def __init__(self) -> None:
        self.called: ByIndex = {}
        self.answered: ByIndex = {}

    def both_ways(self, index: int) -> bool:
        """Return True if this worker has connected to the worker `index`, and that worker to this one."""
        return index in self.called and index in self.answered

    def drop_ended(self) -> set[int]:
        """Drop the connections of workers that have ended. Returns the indexes of the dropped workers that were
        connected both ways.

        No data is sent over these connections, so a connection that can be read has ended.
        """
        poll, by_number = select.poll(), dict[int, tuple[ByIndex, int]]()
        for group in (self.called, self.answered):
            for index, connection in group.items():
                poll.register(connection, select.POLLIN)
                by_number[connection.fileno()] = group, index
        ended = [by_number[number] for number, _ in poll.poll(0)]
        lost = {index for _, index in ended if self.both_ways(index)}
        for group, index in ended:
            drop(group, index)
        return lost

    def close(self) -> None:
        for group in (self.called, self.answered):
            for index in tuple(group):
                drop(group, index)

    @contextlib.contextmanager
    def watched(self, cluster: Cluster) -> Iterator[None]:
        """A context in which another process watches the connections, and kills this process if a worker ends. All
        connections are closed at the end.
        """
        control, ours = os.pipe()
        try:
            process = self._start_watch(cluster, control)
        finally:
            os.close(control)
        try:
            yield
            with contextlib.suppress(BrokenPipeError):  # another process has ended it
                os.write(ours, connection_watch.CONNECTED)
        finally:
            os.close(ours)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self.close()

    def _start_watch(self, cluster: Cluster, control: int) -> subprocess.Popen[bytes]:
        called = {connection.fileno(): cluster.named(index) for index, connection in self.called.items()}
        answered = [connection.fileno() for connection in self.answered.values()]
        task = {"trainer": os.getpid(), "control": control, "watched": called, "answered": answered}
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(connection_watch.__file__)), json.dumps(task)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(control, *called, *answered),
        )  # fmt: skip


def keep(group: ByIndex, index: int, connection: socket.socket) -> None:
    """Keep a connection to the worker `index` in `group`. An older connection to the same worker is dropped."""
    drop(group, index)
    group[index] = connection
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_SECONDS), ("TCP_KEEPINTVL", _ASK_SECONDS), ("TCP_KEEPCNT", _ASKED)):
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def drop(group: ByIndex, index: int) -> None:
    if (connection := group.pop(index, None)) is not None:
        connection.close()
