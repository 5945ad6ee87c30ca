"""Python programs and trainers, each in a process forked from one that has imported TensorFlow.

The import takes 2 s of a core; it starts no thread of TensorFlow's and no device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.files import scratch
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.runs import Run

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONWARNINGS": "error::DeprecationWarning:__main__",
    # Most of a short training with XLA is its compiler: it takes half the time where it optimizes little, and fuses
    # operations without MLIR.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                 "--xla_cpu_use_fusion_emitters=false",
}

# Each line that it reads holds the processes that run side by side; it answers with their exit codes.
SERVER = """
import gc, json, os, runpy, sys, traceback, warnings
gc.disable()
import keras, numpy, tensorflow
gc.freeze()
gc.enable()

def run(folder, output, arguments, path, environment):
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(environment)
    sys.path[:0] = path
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    pids = []
    for program in json.loads(line):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pids.append(os.fork())
        if pids[-1] == 0:
            run(**program)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""
# `python -m gputui.engine.trainer RUN_DIR`, with the pipes of an engine that never asks for anything.
TRAINER = """
import os, runpy
for name, end in (("GPUTUI_LIFELINE", 0), ("GPUTUI_REPORT", 1)):
    os.environ[name] = str(os.pipe()[end])
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


class Forks:
    """A process that has imported TensorFlow, and forks one for each program."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env=os.environ | ENVIRONMENT,
        )  # fmt: skip

    def run(self, *programs: Program) -> None:
        """Run all to their ends, at the same time; a failure tells what the program has printed last."""
        failed = [Path(program.output) for program, code in zip(programs, self.codes(*programs), strict=True) if code]
        assert not failed, "\n".join(path.read_text()[-2000:] for path in failed)

    def codes(self, *programs: Program) -> list[int]:
        """Run all to their ends, at the same time; their exit codes, negative where a signal has ended them."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps([asdict(program) for program in programs]), file=self._server.stdin, flush=True)
        return list(json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(60)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """What runs programs and trainers without importing TensorFlow for each."""
    server = Forks()
    yield server
    server.close()


def trainer_of(preset: Preset) -> tuple[Run, Program]:
    """A new run of the preset, and its trainer without an engine: it leaves the same events and result."""
    run = runs.create(preset.name, launch.settle(preset, Path.cwd()).to_yaml())
    main, scratch_folder = run.path / ".trainer.py", run.path / ".scratch"
    main.write_text(TRAINER)
    scratch_folder.mkdir()
    output = str(run.file("engine.log"))
    environment = {scratch.VARIABLE: str(scratch_folder)}
    return run, Program(os.getcwd(), output, [str(main), str(run.path)], environment=environment)
