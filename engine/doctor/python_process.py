"""Runs a Python program in a child process, so that a crash or a hang in it does no harm to the caller."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..system.background_call import BackgroundCall


@dataclass(frozen=True)
class Output:
    """The return code and the output of the process."""

    returncode: int
    text: str
    log: str


class Child:
    """The process, which starts when the object is made. `end` may be called by any thread at any time."""

    def __init__(self, program: str, environment: Mapping[str, str], *flags: str, python: str = sys.executable) -> None:
        self._began, self.seconds = time.monotonic(), 0.0
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        command, variables = [python, "-P", *flags, "-c", program], os.environ | environment
        self._process: subprocess.Popen[str] | None = None
        self._fault = ""
        try:
            self._process = subprocess.Popen(
                command, stdout=pipe, stderr=pipe, stdin=nothing, text=True, errors="replace", env=variables
            )
        except OSError as fault:
            self._fault = str(fault)
        self._output = BackgroundCall(self._listen)

    def _listen(self) -> Output:
        if self._process is None:
            return Output(-1, "", self._fault)
        output, log = self._process.communicate()
        self.seconds = time.monotonic() - self._began
        return Output(self._process.returncode, output, log)

    def output(self, deadline: float) -> Output | None:
        """The result once the process has ended; None when it has not by the deadline."""
        try:
            return self._output.result(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            self.seconds = time.monotonic() - self._began
            self.end()
            return None

    def end(self) -> None:
        """Kill the process; one in the driver's uninterruptible sleep does not die and is left to the system."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(1)
