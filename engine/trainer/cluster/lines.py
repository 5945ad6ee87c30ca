"""The connections over which the workers have met, kept until TensorFlow has connected them: they show who dies."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ...runs.cluster import Cluster
from . import lookout

# The kernel asks whether the other machine is still there: one that has lost its power closes nothing.
_SILENT_SECONDS, _ASK_SECONDS, _ASKED = 5, 5, 3
_END_SECONDS = 10.0  # for the lookout, after the workers are connected


class Lines:
    """Those by which this worker has `called` the others, by index, and those by which they have called it."""

    def __init__(self) -> None:
        self.called: dict[int, socket.socket] = {}
        self.answered: list[socket.socket] = []

    def close(self) -> None:
        for line in (*self.called.values(), *self.answered):
            line.close()
        self.called, self.answered = {}, []

    @contextlib.contextmanager
    def watched(self, cluster: Cluster) -> Iterator[None]:
        """Meanwhile another process watches them: it kills this one when a worker ends before all are connected."""
        for line in self.called.values():
            _ask_when_silent(line)
        control, ours = os.pipe()
        try:
            process = self._lookout(cluster, control)
        finally:
            os.close(control)
        try:
            yield
            with contextlib.suppress(BrokenPipeError):  # somebody has ended it
                os.write(ours, lookout.CONNECTED)
        finally:
            os.close(ours)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self.close()

    def _lookout(self, cluster: Cluster, control: int) -> subprocess.Popen[bytes]:
        called = {line.fileno(): cluster.named(index) for index, line in self.called.items()}
        answered = [line.fileno() for line in self.answered]
        task = {"trainer": os.getpid(), "control": control, "watched": called, "answered": answered}
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(lookout.__file__)), json.dumps(task)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(control, *called, *answered),
        )  # fmt: skip


def _ask_when_silent(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT_SECONDS), ("TCP_KEEPINTVL", _ASK_SECONDS), ("TCP_KEEPCNT", _ASKED)):
        if (option := getattr(socket, name, None)) is not None:  # which of them there are depends on the system
            line.setsockopt(socket.IPPROTO_TCP, option, value)
