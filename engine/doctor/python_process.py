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
    """The return code of a process, its standard output (`text`) and its standard error (`log`).

    If the process could not be started, the code is -1 and `log` has the reason.
    """

    returncode: int
    text: str
    log: str


class Child:
    """A Python process of the interpreter `python` that runs `program`, the text of a program. It starts when the
    object is created.

    `environment` is added to the environment of this process, and `flags` are options of Python. `seconds` is how long
    the process ran. Any thread may call `end` at any time.
    """

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
        """Return the output when the process has ended. If it has not ended by the deadline, end it and return None.

        The deadline is a time of time.monotonic in seconds.
        """
        try:
            return self._output.result(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            self.seconds = time.monotonic() - self._began
            self.end()
            return None

    def end(self) -> None:
        """Kill the process, and wait at most 1 s until it has ended.

        A process in an uninterruptible call of the driver does not end.
        """
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(1)
