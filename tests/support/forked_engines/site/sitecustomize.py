"""In the installed command, and in what measures for it: engines are asked for at the server, which forks their
trainers.
"""

from __future__ import annotations

import os
import sys

ADDRESS = os.environ.get("GPUTUI_TEST_ENGINES", "")
STARTS_ENGINES = [os.path.basename(word) for word in sys.orig_argv[1:2]] == ["gputui"] or sys.orig_argv[2:4] in (
    ["-m", "gputui.engine.proof"],
    ["-m", "gputui.engine.queue.start"],
)

if os.path.exists(ADDRESS) and STARTS_ENGINES:
    import json
    import select
    import socket
    import subprocess
    from pathlib import Path
    from typing import Any

    class Engine:
        """The part of `subprocess.Popen` that the command uses: the engine is no child of it."""

        def __init__(self, pid: int) -> None:
            self.pid, self._ended = pid, os.pidfd_open(pid)

        def poll(self) -> int | None:
            return 0 if select.select([self._ended], [], [], 0)[0] else None

        def wait(self, timeout: float | None = None) -> int:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("engine", timeout or 0.0)
            return 0

    def forked(
        folder: str, pass_fds: tuple[int, ...] = (), env: dict[str, str] | None = None, **more: Any
    ) -> Engine | None:
        """The engine of that run; None where the server does not start it."""
        wanted = {
            "folder": folder,
            "environment": dict(os.environ if env is None else env),
            "at": os.getcwd(),
            "limits": Path("/proc/self/limits").read_text(),
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(ADDRESS)
            socket.send_fds(line, [json.dumps(wanted).encode()], list(pass_fds))
            if not (pid := line.recv(32)):
                return None
            engine = Engine(int(pid))
            line.sendall(b"\n")
            return engine

    started = subprocess.Popen

    class Popen(started):  # type: ignore[type-arg]
        def __new__(cls, command: list[str], **more: Any) -> Any:
            engine = None
            if list(command[1:4]) == ["-P", "-m", "gputui.engine"] and not command[4].startswith("-"):
                engine = forked(command[4], **more)
            return super().__new__(cls) if engine is None else engine

    subprocess.Popen = Popen  # type: ignore[assignment, misc]
