"""`gputui doctor` from the front door: what it finds on machines of all kinds, how fast, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doors.engine import runs
from tests.support.fakenvml import FakeNvml
from tests.support.front_door import gputui, happened
from tests.support.machines import NO_FABRIC_MANAGER, machine, put, whole

GIB = 1024**3
Found = list[dict[str, str]]
Machine = Callable[..., dict[str, str]]


@pytest.fixture
def no_gpu(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a GPU."""
    return machine(tmp_path / "machine") | {"LD_LIBRARY_PATH": "", "FAKE_NVML": ""}


@pytest.fixture
def box(nvml: FakeNvml, tmp_path: Path) -> Machine:
    """box("gpus=2", gpus=2): the environment of a machine with GPUs, nothing missing; the words are nvml.c's."""
    return lambda words, gpus=1: whole(nvml, tmp_path / "machine", words, gpus)


# `gputui doctor --json ARGUMENTS`, each in a process of its own that is forked from one that has imported gputui. It is
# as patient as is asked: here programs take turns on few cores, and a process may get none for seconds.
SERVER = """
import json, os, sys
import psutil, pynvml, rich.table
from gputui.tui.cli import main
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, path in enumerate(asked["files"], 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(asked["environment"])
        from gputui.engine import doctor
        doctor.PATIENCE_SECONDS, doctor.DEEP_PATIENCE_SECONDS = asked["patience"]
        try:
            main(["doctor", "--json", *asked["arguments"]])
        except SystemExit as left:
            sys.stdout.flush()
            os._exit(left.code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
_servers: dict[str, subprocess.Popen[str]] = {}  # by the search path of libraries, which only a new process reads


@pytest.fixture(autouse=True, scope="module")
def servers_end() -> Iterator[None]:
    yield
    while _servers:
        _servers.popitem()[1].communicate(timeout=60)


def asked(*arguments: str, **environment: str) -> tuple[int, Found]:
    """Exit code and findings of the command, which waits until everything has answered."""
    return asked_within((90.0, 180.0), *arguments, **environment)


def asked_within(patience: tuple[float, float], *arguments: str, **environment: str) -> tuple[int, Found]:
    """Of one that waits so many seconds, and with --deep so many."""
    wanted = os.environ | environment
    libraries = wanted.get("LD_LIBRARY_PATH", "")
    if libraries not in _servers:
        command, pipe = [sys.executable, "-P", "-c", SERVER], subprocess.PIPE
        _servers[libraries] = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=os.environ | {"LD_LIBRARY_PATH": libraries}
        )
    server = _servers[libraries]
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/out", f"{folder}/errors"]
        question = {"environment": wanted, "arguments": arguments, "files": files, "patience": patience}
        print(json.dumps(question), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        out, errors = (Path(file).read_text() for file in files)
    return told(code, out, errors)


def asked_anew(**environment: str) -> tuple[int, Found]:
    """Exit code and findings of the command, in a Python of its own."""
    done = gputui("doctor", "--json", env=os.environ | environment)
    return told(done.returncode, done.stdout, done.stderr)


def told(code: int, out: str, errors: str) -> tuple[int, Found]:
    assert errors == ""
    return code, json.loads(out)["findings"]


def of(found: Found, what: str) -> dict[str, str]:
    """The one finding that says so."""
    says = [finding for finding in found if what in finding["what"]]
    assert len(says) == 1, found
    return says[0]


def waited(found: Found, what: str) -> int:
    """The seconds in the warning that says so: those that were waited, which may be more on a busy machine."""
    finding = of(found, what)
    assert finding["level"] == "warning"
    (seconds,) = re.findall(rf"{what}(\d+) s", finding["what"])
    return int(seconds)


# ---- with and without GPUs --------------------------------------------------------------------


def test_without_a_gpu_it_is_calm(no_gpu: dict[str, str]) -> None:
    code, found = asked_anew(**no_gpu)
    assert code == 0
    assert {finding["level"] for finding in found} <= {"ok", "note", "warning"}
    (gpu,) = [finding for finding in found if finding["about"] == "GPU"]
    assert gpu["level"] == "note"
    assert "runs on the CPU" in gpu["remedy"]


def test_nvidias_libraries_on_a_machine_without_a_gpu_are_no_fault(box: Machine) -> None:
    code, found = asked(**box("init=9", gpus=0))
    assert code == 0
    assert of(found, "no NVIDIA GPU in this machine")["level"] == "note"
    of_today = ("memory", "runs")  # what is free on the machine of the tests
    assert {finding["level"] for finding in found if finding["about"] not in of_today} <= {"ok", "note"}


def test_a_gpu_that_the_driver_does_not_show_is_named(box: Machine, tmp_path: Path) -> None:
    environment = box("gpus=2", gpus=3)
    code, found = asked(**environment)
    assert (code, of(found, "shows 2 of the 3 GPUs in this machine (0000:03:00.0)")["level"]) == (0, "warning")
    (tmp_path / "machine/.dockerenv").touch()  # a container may have been given two of them
    _, found = asked(**environment)
    assert not [finding for finding in found if "in this machine" in finding["what"]]
    code, found = asked(**environment | {"FAKE_NVML": "init=9"})  # as in one that has been given none
    finding = of(found, "3 NVIDIA GPU(s) in this machine, but the NVIDIA driver is installed but not loaded")
    assert (code, finding["level"]) == (0, "warning")
    assert "--gpus all" in finding["remedy"]


def test_tensorflow_is_not_imported() -> None:
    nvml = FakeNvml(Path("/nowhere"), Path("/nowhere"))
    program = "import sys, json; from gputui.tui.commands.gpus import examine; examine(False); "
    program += "print(json.dumps([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules]))"
    assert nvml.run(program) == []


# ---- drivers that take long -------------------------------------------------------------------


def test_a_driver_that_does_not_answer_is_not_waited_for(box: Machine) -> None:
    code, found = asked_anew(**box("init_ms=600000"))  # longer than a command of the tests may take
    assert code == 0
    assert waited(found, "has not answered within ") >= 2


# ---- the deep look ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_deep_look_compares_tensorflow_with_the_driver(box: Machine) -> None:
    environment = box("gpus=2", gpus=2)
    code, found = asked("--deep", **environment)
    assert code == 1
    assert any("can be imported" in finding["what"] for finding in found)
    assert of(found, "the driver shows 2 GPU(s), but TensorFlow sees 0")["level"] == "error"


# ---- the host and what is installed -----------------------------------------------------------


def test_the_limits_of_a_container_are_said(no_gpu: dict[str, str], tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    put(
        tmp_path / "machine",
        {
            f"{group}/memory.max": str(2 * GIB),
            f"{group}/memory.current": str(GIB),
            f"{group}/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
            f"{group}/cpu.max": "50000 100000",
        },
    )
    _, found = asked(**no_gpu)
    assert of(found, "1.5 GiB of 2.0 GiB free (the container's limit)")["level"] == "ok"
    many = len(os.sched_getaffinity(0))
    own_cpus = "1 CPU" if many == 1 else f"{many} CPUs"
    assert of(found, f"0.5 of {own_cpus} (the container's limit)")["level"] == "note"


@pytest.mark.nightly
def test_a_tensorflow_compiled_at_each_start_is_said_with_the_remedy(tmp_path: Path, no_gpu: dict[str, str]) -> None:
    empty = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    _, found = asked_anew(**no_gpu, **empty)
    finding = of(found, "compiled again at each start")
    assert finding["level"] == "note"
    assert "PYTHONDONTWRITEBYTECODE is set" in finding["what"]
    assert finding["remedy"].startswith(f"{sys.executable} -m compileall -q /")
    # Where the first import leaves it behind, there is nothing to do.
    _, found = asked_anew(**no_gpu, **empty | {"PYTHONDONTWRITEBYTECODE": ""})
    assert not [finding for finding in found if "compiled again" in finding["what"]]


# ---- why TensorFlow sees no GPU ---------------------------------------------------------------


@pytest.mark.nightly
def test_a_training_does_not_begin_on_the_cpu_of_a_board_without_its_fabric_manager(
    nvml: FakeNvml, tmp_path: Path, home: Path
) -> None:
    """TensorFlow itself is refused by the stand-in for libcuda.so.1, as it is by the real one."""
    done = gputui("--preset", "quickstart", env=NO_FABRIC_MANAGER.environment(nvml, tmp_path / "machine"))
    assert done.returncode == 1
    assert "the driver shows 8 GPU(s), but TensorFlow can use none of them: CUDA does not start" in done.stdout
    assert "systemctl start nvidia-fabricmanager; its version must be the driver's, 570.86.15" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    (run,) = runs.all_runs()
    assert run.result is not None
    assert (run.result["outcome"], happened(run, "started")) == ("error", [])
    error = run.result["error"]
    assert error["kind"] == "device"
    assert "NVLink switches" in error["message"]
    assert "device.visible=none" in error["hint"]
    assert "failed call to cuInit" in run.file("engine.log").read_text()
