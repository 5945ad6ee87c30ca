"""Visits to played machines (boxes.py): what the doctor, a start and a trainer that finds no GPU say there.

A visit is a process of its own that is forked from one that has imported gputui, as starting Python costs most of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.boxes import Box
from tests.support.fakenvml import FakeNvml

# Runs each program that it is sent, in a process that takes itself for one on the box; prints what it leaves in `told`.
# Before the fork nothing has been asked: NVML and CUDA are loaded, and packages are looked up, by each process anew.
SERVER = """
import json, os, sys, traceback
from pathlib import Path
import psutil, pynvml
from gputui.engine import checks, doctor, presets
from gputui.engine.doctor import no_gpu
from gputui.engine.interpreter import supported_versions
from gputui.engine.job import this_machine
from gputui.engine.telemetry import resource_limits
from gputui.tui.cli import main
from gputui.tui.commands import train
presets.resolve("quickstart").to_yaml()  # imports what any preset needs
doctor.PATIENCE_SECONDS = no_gpu.PATIENCE_SECONDS = 90.0  # here programs take turns on few cores
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.environ.clear()
        os.environ.update(asked["environment"])
        resource_limits.ROOT = Path(os.environ["GPUTUI_ROOT"])
        sys.path.insert(0, os.environ["PYTHONPATH"])
        supported_versions.HAS_CUDA = asked["processor"] == "x86_64"
        sys.argv[1:] = asked["arguments"]
        told, code = {}, 1
        try:
            exec(asked["program"])
            code = 0
        except BaseException:
            told = traceback.format_exc()
        Path(asked["answer"]).write_text(json.dumps(told))
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Visits:
    """Makes visits; `visit(box, program, ...)` is what the program has left in `told`."""

    def __init__(self, nvml: FakeNvml, folder: Path) -> None:
        self._nvml, self._folder, self._count = nvml, folder, 0
        self._servers: dict[str, subprocess.Popen[str]] = {}  # by the search path of libraries

    def visit(self, box: Box, program: str, *arguments: str) -> Any:
        self._count += 1
        folder = self._folder / f"box{self._count}"
        environment = box.environment(self._nvml, folder)
        environment |= {"GPUTUI_HOME": str(folder / "home")} | dict(box.variables)
        answer = folder / "answer.json"
        asked = {"environment": environment, "processor": box.processor, "program": program}
        server = self._server(environment["LD_LIBRARY_PATH"])
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(asked | {"arguments": arguments, "answer": str(answer)}), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        told = json.loads(answer.read_text())
        assert code == 0, told
        return told

    def end(self) -> None:
        while self._servers:
            self._servers.popitem()[1].communicate(timeout=60)

    def _server(self, libraries: str) -> subprocess.Popen[str]:
        if libraries not in self._servers:
            command, pipe = [sys.executable, "-P", "-c", SERVER], subprocess.PIPE
            environment = os.environ | {"LD_LIBRARY_PATH": libraries}
            self._servers[libraries] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        return self._servers[libraries]
