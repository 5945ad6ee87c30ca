"""What the doctor, a start and a trainer say on machines as they are met, in golden/answers/boxes.txt."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.contract.conftest import Golden
from tests.support import machines
from tests.support.fakenvml import FakeNvml

# For each environment that it is sent, forks a process that takes itself for one on the box, which prints what it says.
# Before the fork nothing has been asked: NVML and CUDA are loaded, and packages are looked up, by each process anew.
# What concerns the machine that runs the tests is left out.
SERVER = """
import contextlib, io, json, os, sys, traceback
from pathlib import Path
import psutil, pynvml
from gputui.engine import checks, doctor, presets
from gputui.engine.doctor import no_gpu
from gputui.engine.finding import worst_first
from gputui.engine.interpreter import supported_versions
from gputui.engine.job import this_machine
from gputui.engine.telemetry import resource_limits
from gputui.tui.cli import main
from gputui.tui.commands import train
from gputui.tui.wording.doctor import conclusion
presets.resolve("quickstart").to_yaml()  # imports what any preset needs
doctor.PATIENCE_SECONDS = no_gpu.PATIENCE_SECONDS = 90.0  # here programs take turns on few cores

def said():
    found, errors = worst_first(doctor.examine()), io.StringIO()
    for each in found:
        if each.level in ("error", "warning"):
            if each.about not in ("memory", "/dev/shm", "runs", "CPU", "pynvml", "terminal"):
                yield f"{each.level} {each.about}: {each.what}; {each.remedy}"
    yield conclusion(found)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            code = main(["--preset", "quickstart", "--dry-run", "--set", "drop_remainder=true"])
        except SystemExit as left:
            code = left.code
    yield from f"start [{code}] {errors.getvalue()}".splitlines()
    if conclusion(found).startswith("Not") and (reason := no_gpu.reason()):
        yield f"trainer: {reason}"

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        asked = json.loads(line)
        os.environ.clear()
        os.environ.update(asked["environment"])
        resource_limits.ROOT = Path(os.environ["GPUTUI_ROOT"])
        sys.path.insert(0, os.environ["PYTHONPATH"])
        supported_versions.HAS_CUDA = asked["processor"] == "x86_64"
        try:
            told = list(said())
        except BaseException:
            told = traceback.format_exc().splitlines()
        print(json.dumps(told), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_what_is_said_on_machines_as_they_are_met(nvml: FakeNvml, golden: Golden, tmp_path: Path) -> None:
    names = vars(machines) | {"replace": dataclasses.replace}
    servers: dict[str, subprocess.Popen[str]] = {}  # by the search path of libraries

    def server(libraries: str) -> subprocess.Popen[str]:
        if libraries not in servers:
            environment, pipe = os.environ | {"LD_LIBRARY_PATH": libraries}, subprocess.PIPE
            command = [sys.executable, "-P", "-c", SERVER]
            servers[libraries] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        return servers[libraries]

    def answer(question: str) -> Iterator[str]:
        try:
            code = compile(question, "boxes", "eval")
        except SyntaxError:
            exec(question, names)
            return
        box, folder = eval(code, names), tmp_path / f"box{len(list(tmp_path.iterdir()))}"
        environment = box.environment(nvml, folder) | {"GPUTUI_HOME": str(folder / "home")}
        asked = json.dumps({"environment": environment, "processor": box.processor})
        told = server(environment["LD_LIBRARY_PATH"])
        assert told.stdin
        assert told.stdout
        print(asked, file=told.stdin, flush=True)
        for line in json.loads(told.stdout.readline()):
            yield re.sub(r"(Keras|Python) [\d.]+", r"\1 N", line.replace(sys.executable, "PYTHON")).rstrip()

    golden.answers("answers/boxes.txt", answer)
    for each in servers.values():
        each.communicate(timeout=60)
