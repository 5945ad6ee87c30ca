"""Python programs and trainers, each in a process forked from one that has imported what they need.

TensorFlow's import takes 2 s of a core, and that of the trainer's modules that need none a quarter of a second; both
start no thread of TensorFlow's and no device.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

from tests.doors.engine import Preset, Run, installed, launch, places
from tests.support import shared

# XLA of TensorFlow 2.18 and 2.19 ends the process on the flag that it does not know.
_HAS_NO_FUSION_EMITTERS = (installed.tensorflow_version() or "").startswith(("2.18.", "2.19."))
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONWARNINGS": "error::DeprecationWarning:__main__",
    # Most of a short training with XLA is its compiler: it takes half the time where it optimizes little, and fuses
    # operations without MLIR.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + ("" if _HAS_NO_FUSION_EMITTERS else " --xla_cpu_use_fusion_emitters=false"),
}
# Forks a process for each who connects. Each line that this reads holds the processes that run side by side; it answers
# with their exit codes.
SERVER = """
import gc, json, os, runpy, select, signal, socket, sys, traceback, warnings
gc.disable()
import {modules}
gc.freeze()
gc.enable()

def run(folder, output, arguments, path, environment, of_gputui):
    if not of_gputui:
        for name in [name for name in sys.modules if name.partition(".")[0] == "gputui"]:
            del sys.modules[name]
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.path[:0] = path
    sys.argv = arguments
    try:
        kept = runpy.run_path(arguments[0], run_name="__main__")  # what is dropped may wait for threads of TensorFlow
        code = 0
    except BaseException as fault:
        if isinstance(fault, SystemExit) and not fault.code:
            sys.stdout.flush()
            os._exit(0)
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

run.__code__ = run.__code__.replace(co_stacksize=1 << 17)  # as gputui.engine.system.import_cost, which is not imported

def serve(line):
    with line.makefile("rw") as file:
        for wanted in file:
            pids = []
            for program in json.loads(wanted):
                pids.append(os.fork())
                if pids[-1] == 0:
                    run(**program)
            print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), file=file, flush=True)
    os._exit(0)

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            serve(line)
        line.close()
"""
# `python -m gputui.engine.trainer RUN_DIR`, with the pipes of an engine that never asks for anything.
TRAINER = """
import os, runpy
for name, end in (("GPUTUI_LIFELINE", 0), ("GPUTUI_REPORT", 1)):
    ends = os.pipe()
    os.environ[name], os.environ[name + "_OF_ENGINE"] = str(ends[end]), str(ends[1 - end])
runpy.run_module("gputui.engine.trainer", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Program:
    """`python ARGUMENTS` in a folder; what it prints goes to a file, and modules are first looked for in `path`."""

    folder: str
    output: str
    arguments: list[str]
    path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    of_gputui: bool = False  # it imports gputui; to others, no module of it is known


class Forks:
    """Forks a process for each program, from one that has imported what they need."""

    def __init__(self, line: TextIO) -> None:
        self._line = line

    def run(self, *programs: Program) -> None:
        """Run all to their ends, at the same time; a failure tells what the program has printed last."""
        failed = [Path(program.output) for program, code in zip(programs, self.codes(*programs), strict=True) if code]
        assert not failed, "\n".join(path.read_text()[-2000:] for path in failed)

    def codes(self, *programs: Program) -> list[int]:
        """Run all to their ends, at the same time; their exit codes, negative where a signal has ended them."""
        print(json.dumps([asdict(program) for program in programs]), file=self._line, flush=True)
        return list(json.loads(self._line.readline()))


@contextlib.contextmanager
def forks_with(modules: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Forks]:
    """Forks from a server that has imported these modules, and runs in a folder of its own."""
    address = folder / "socket"
    command = [sys.executable, "-P", "-c", SERVER.replace("{modules}", modules), str(address)]
    with shared.server(folder, command, environment), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(address))
        with line.makefile("rw") as file:
            yield Forks(file)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What runs programs and trainers without importing TensorFlow for each."""
    modules = "keras, numpy, tensorflow, gputui.engine.trainer.session"
    with forks_with(modules, shared.folder(tmp_path_factory, "forks"), ENVIRONMENT) as made:
        yield made


def trainer_of(preset: Preset) -> tuple[Run, Program]:
    """A new run of the preset, and its trainer without an engine: it leaves the same events and result."""
    run = launch.create(launch.settle(preset, Path.cwd()))
    main, scratch_folder = run.path / ".trainer.py", run.path / ".scratch"
    main.write_text(TRAINER)
    scratch_folder.mkdir()
    output = str(run.file("engine.log"))
    environment = {places.SCRATCH_VARIABLE: str(scratch_folder), "GPUTUI_HOME": os.environ["GPUTUI_HOME"]}
    return run, Program(os.getcwd(), output, [str(main), str(run.path)], environment=environment, of_gputui=True)
