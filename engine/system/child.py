"""A child process that was not started by this program but by the one whose process id it has taken over by exec."""

from __future__ import annotations

import os
import signal
import subprocess
import time

_LOOK_SECONDS = 0.02


class Child:
    """The part of `subprocess.Popen` that looks after a process which runs already."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negative number of the signal that ended it; None as long as it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises TimeoutExpired where it goes on."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := until - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(min(left, _LOOK_SECONDS))
        return code

    def send_signal(self, number: int) -> None:
        """Nothing is sent to a process that has ended; as long as it is not waited for, its id is nobody else's."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
