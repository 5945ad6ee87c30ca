"""What the doctor and a start say on machines as they are met: the cause first, and no more than three lines for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import all_hold
from tests.support.fakenvml import FakeNvml
from tests.support.machines import A100, H100, NO_FABRIC_MANAGER, R470, R535, R570, Box

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


PROGRAM = """
import contextlib, io
from gputui.engine.finding import worst_first
from gputui.tui.wording.doctor import conclusion
found, errors = worst_first(doctor.examine()), io.StringIO()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
    try:
        code = main(["--preset", "quickstart", "--dry-run", "--set", "drop_remainder=true", *sys.argv[1:]])
    except SystemExit as left:
        code = left.code
told = {
    "doctor": [[f.level, f.about, f.what, f.remedy] for f in found], "verdict": conclusion(found),
    "code": code, "start": errors.getvalue(),
    "reason": str(no_gpu.reason() or "") if conclusion(found)[:3] == "Not" else "",
}
"""
HOST = ("memory", "/dev/shm", "runs", "CPU", "pynvml", "terminal")  # of the machine that runs the tests
READY, CPU, NOT_READY = "Ready to train", "Ready to train on the CPU", "Not ready to train"
IDLE_UVM = {"dev/nvidiactl": "", "dev/nvidia0": ""}
NODES = IDLE_UVM | {"dev/nvidia-uvm": ""}
WSL = {"dev/dxg": "", "usr/lib/wsl/lib/libd3d12.so": ""}
WSL_CUDA = WSL | {"usr/lib/wsl/lib/libcuda.so.1": ""}


_V100 = "name=Tesla_V100-SXM2-16GB capability=7.0 cores=5120 mem_total=16384 mem_used=0 retired=0"
_P100 = "name=Tesla_P100-PCIE-16GB capability=6.0 cores=3584 mem_total=16384 mem_used=0 retired=0"
_T4 = "name=Tesla_T4 capability=7.5 cores=2560 mem_total=15360 mem_used=0"
_LOCKED_CUDNN = {"nvidia-cudnn-cu12": "9.28.0.42"}
_WITH_CUDA = {
    "cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": True, "is_rocm_build": False,
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}  # fmt: skip
_WITHOUT_CUDA = {"is_cuda_build": False, "is_rocm_build": False, "is_tensorrt_build": False}

V100 = Box(f"{_V100} {R570}", packages=_LOCKED_CUDNN)
V100_WITH_ITS_CUDNN = Box(f"{_V100} {R570}", packages={"nvidia-cudnn-cu12": "9.10.2.21"})
T4_WITH_AN_OLD_CUDNN = Box(f"{_T4} {R570}", packages={"nvidia-cudnn-cu12": "9.5.1.17"})
T4_WITH_TOO_OLD_A_CUDNN = Box(f"{_T4} {R570}", packages={"nvidia-cudnn-cu12": "9.1.0.70"})
T4_WITHOUT_CUDAS_PACKAGES = Box(f"{_T4} {R570}", tensorflow=_WITH_CUDA)
P100 = Box(f"{_P100} {R570}", packages={"nvidia-cudnn-cu12": "9.10.2.21"})
H100_R535 = Box(f"{H100} {R535}", "8", 8)
H100_R570 = Box(f"{H100} {R570}", "8", 8)
RTX_5090 = Box(f"name=NVIDIA_GeForce_RTX_5090 capability=12.0 cores=21760 mem_total=32607 mem_used=800 ecc=0 {R570}")
_GH200 = "name=NVIDIA_GH200_480GB capability=9.0 cores=16896 mem_total=97871 mem_used=0"
GH200 = Box(f"{_GH200} {R570}", tensorflow=_WITHOUT_CUDA, processor="aarch64")
WORKSTATION = Box(  # a display card beside the one that computes
    "name=Quadro_P400@0 capability=6.1@0 cores=256@0 mem_total=2048@0 mem_used=300@0 retired=0@0 "
    f"name=NVIDIA_GeForce_RTX_4090@1 capability=8.9@1 cores=16384@1 mem_total=24564@1 mem_used=0@1 {R570}",
    "2",
    2,
    packages=_LOCKED_CUDNN,
)
MIG = Box(f"{A100} mig=2 {R570}")
CONTAINER_WITHOUT_NVML = Box(
    "init=12",  # libnvidia-ml.so.1 is not there
    variables={"NVIDIA_DRIVER_CAPABILITIES": "compute", "NVIDIA_VISIBLE_DEVICES": "all"},
    container=True,
    files={"dev/nvidiactl": "", "dev/nvidia0": ""},
)
LAPTOP = Box(  # its display takes a part of the memory
    f"name=NVIDIA_GeForce_RTX_4060_Laptop_GPU capability=8.9 cores=3072 mem_total=8188 mem_used=1250 {R570}"
)
H100_WITH_ECC_ERRORS = Box(f"{H100} {R570} uncorrected=2", "8", 8)
SLURM = Box(
    f"{H100} {R570}",
    "2",
    8,
    variables={"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"},
)


@dataclass(frozen=True, kw_only=True)
class Met:
    """A box, and what is said there. `doctor` are words of its first error or warning, `remedy` of what that advises;
    `level` is its level. `start` are words of the first line of a start, which `refused` says is refused.

    `because` are words of the reason that a trainer gives which finds no GPU; where none is given, those of `doctor`.
    """

    box: Box
    verdict: str = READY
    level: str = "error"
    doctor: str = ""
    remedy: str = ""
    start: str = ""
    refused: bool = False
    because: str | None = None
    arguments: tuple[str, ...] = ()


TWO = Box(f"{H100} {R570}", "2", 2)
NO_PROCESS = 4194304  # above the largest process id of Linux
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def chosen(value: str, box: Box = TWO, more: Mapping[str, str] | None = None) -> Box:
    return replace(box, variables={"CUDA_VISIBLE_DEVICES": value} | dict(more or {}))


def refused(box: Box, doctor: str, remedy: str, start: str | None = None, **more: Any) -> Met:
    """One on which no training can begin, as is said before the start."""
    told = doctor if start is None else start
    return Met(box=box, verdict=NOT_READY, doctor=doctor, remedy=remedy, start=told, refused=True, **more)


def fails(box: Box, doctor: str, remedy: str) -> Met:
    """One on which only CUDA itself knows that no training can begin: the trainer says so."""
    return Met(box=box, verdict=NOT_READY, doctor=doctor, remedy=remedy)


def warned(box: Box, doctor: str, remedy: str = "", **more: Any) -> Met:
    return Met(box=box, level="warning", doctor=doctor, remedy=remedy, **more)


H100S, B200 = (
    f"{H100} {R570}",
    "name=NVIDIA_B200 capability=10.0 cores=18944 mem_total=183359 mem_used=0 nvlinks=18 fabric=3",
)
RTX_3090 = "name=NVIDIA_GeForce_RTX_3090@{0} capability=8.6@{0} cores=10496@{0}"
RTX_4090 = "name=NVIDIA_GeForce_RTX_4090@{0} capability=8.9@{0} cores=16384@{0}"
M40 = "name=Tesla_M40@{0} capability=5.2@{0} cores=3072@{0} mem_total=24000@{0} mem_used=0"
TWO_MODELS = Box(f"{RTX_3090.format(0)} {RTX_4090.format(1)} mem_total=24564 mem_used=0 {R570}", "2", 2)
BOXES: dict[str, Met] = {
    # ---- all is well
    "8 x H100": Met(box=H100_R570),
    "8 x B200": Met(box=Box(f"{B200} {R570}", "8", 8)),
    "RTX 5090": Met(box=RTX_5090),
    "V100 with its cuDNN": warned(
        V100_WITH_ITS_CUDNN, "XLA of TensorFlow 2.21 fails at convolutions", "compile.xla=false", start="XLA of"
    ),
    "T4 with cuDNN 9.5": warned(
        T4_WITH_AN_OLD_CUDNN, "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.5; it needs 9.24",
        "pip install 'nvidia-cudnn-cu12>=9.24,<10'", start="XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9",
    ),
    "P100": warned(P100, "XLA of TensorFlow 2.21 fails at convolutions", "compile.xla=false", start="XLA of Ten"),
    "P400 beside a 4090": Met(box=WORKSTATION),
    "MIG with two instances": Met(box=MIG),
    "a job with two of eight": Met(box=SLURM),
    "WSL": Met(box=Box(f"{H100S.replace(' nvlinks=18 fabric=3', '')}", files=WSL_CUDA)),
    # ---- the CPU trains, as is meant
    "no GPU": Met(box=Box("init=12", "NO_DEVICE", 0), verdict=CPU),
    "all GPUs hidden": Met(box=chosen(""), verdict=CPU),
    "no driver": warned(
        Box("init=12", "NO_DEVICE", 2), "2 NVIDIA GPU(s) in this machine, but no NVIDIA driver",
        "install NVIDIA's driver", verdict=CPU, start="2 NVIDIA GPU(s) in this machine, but no NVIDIA driver",
    ),
    "a container without --gpus": warned(
        Box("init=12", "NO_DEVICE", 2, container=True), "2 NVIDIA GPU(s) in this machine, but no NVIDIA driver",
        "--gpus all", verdict=CPU, start="2 NVIDIA GPU(s) in this machine, but no NVIDIA driver",
    ),
    # ---- the driver
    "driver and library differ": refused(
        Box("init=18", "SYSTEM_DRIVER_MISMATCH", 2), "the loaded NVIDIA driver and its library are of different",
        "modprobe nvidia",
    ),
    "driver not loaded": refused(
        Box("init=9", "NO_DEVICE", 2), "the NVIDIA driver is installed but not loaded", "modprobe nvidia"
    ),
    "a driver that sees no GPU": refused(
        Box("", "NO_DEVICE", 2, shown=0), "2 NVIDIA GPU(s) in this machine, but the NVIDIA driver sees no GPU", "dmesg"
    ),
    "R470": refused(
        Box(f"{A100} {R470}", "UNSUPPORTED_PTX_VERSION"), "NVIDIA driver 470.256.02, CUDA 11.4: TensorFlow was built",
        "update the driver",
    ),
    "a container that has lost its GPUs": fails(
        Box("init=999", "NO_DEVICE", container=True, files=NODES), "the container has lost its GPUs", "restart the cont"
    ),
    "T4 with cuDNN 9.1": refused(
        T4_WITH_TOO_OLD_A_CUDNN, "TensorFlow loads cuDNN 9.1, and was built with 9.3: it cannot use a GPU",
        "pip install 'nvidia-cudnn-cu12>=9.24,<10'", because="",  # TensorFlow sees the GPU
    ),
    "T4 without CUDA's packages": fails(
        T4_WITHOUT_CUDAS_PACKAGES, "CUDA's libraries are missing (libcudart.so.12, ", "tensorflow[and-cuda]"
    ),
    "a container without NVML": warned(
        CONTAINER_WITHOUT_NVML, "libnvidia-ml.so.1 is missing: nothing is known of the GPUs",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    # ---- CUDA
    "no fabric manager": fails(
        NO_FABRIC_MANAGER, "CUDA does not start (CUDA_ERROR_SYSTEM_NOT_READY): the fabric manager",
        "systemctl start nvidia-fabricmanager",
    ),
    "CUDA gives no reason": fails(
        Box(H100S, "UNKNOWN", files=NODES), "CUDA does not start (CUDA_ERROR_UNKNOWN): the driver gives no reason",
        "restart the machine",
    ),
    "no /dev/nvidia-uvm": fails(
        Box(H100S, "UNKNOWN", files=IDLE_UVM), "(CUDA_ERROR_UNKNOWN): the driver's node /dev/nvidia-uvm is missing",
        "modprobe nvidia_uvm",
    ),
    # ---- single GPUs
    "a lost GPU beside a sound one, and CUDA refuses": fails(
        Box(f"{H100S} lost=1+0", "UNKNOWN", 2), "the GPU is lost (it has fallen off the bus)", "device.visible"
    ),
    "a lost GPU": refused(Box(f"{H100S} lost=0+0", "UNKNOWN"), "the GPU is lost (it has fallen off the bus)", "dmesg"),
    "compute capability 5.2": refused(
        Box(f"{M40.format(0)} {R570}"), "TensorFlow has no code for compute capability 5.2", "device.visible=none",
        "TensorFlow has no code for GPU 0 (Tesla",
    ),
    "V100": refused(V100, "has no code for compute capability 7.0", "nvidia-cudnn-cu12", "no code for GPU 0"),
    "H100 with R535": refused(
        H100_R535, "only as PTX 8.5, which this driver, for CUDA 12.2, cannot compile", "install driver 555"
    ),
    "GH200": refused(GH200, "built without CUDA: it cannot use a GPU", "", "is built without CUDA"),
    "MIG without an instance": refused(
        Box(f"{A100} mig=0 {R570}", "NO_DEVICE"), "MIG is on without an instance", "nvidia-smi mig -cgi"
    ),
    "a prohibited GPU": refused(
        Box(f"{H100S} compute_mode=2", "NO_DEVICE"), "its compute mode is PROHIBITED", "nvidia-smi -c DEFAULT"
    ),
    "an exclusive GPU that a stranger holds": refused(
        Box(f"{H100S} compute_mode=3 procs={NO_PROCESS}"),
        f"only one process can use it, and process {NO_PROCESS} does now",
        "wait until", f"process {NO_PROCESS} has GPU 0 for itself", because="",
    ),
    "full memory": warned(
        Box(f"{H100S.replace('mem_used=0', 'mem_used=80000')} procs={NO_PROCESS}"),
        "78.1 GiB of 79.6 GiB are already in use by",
        "end them", start=f"78.1 GiB of 79.6 GiB are already in use by process {NO_PROCESS}",
    ),
    "a laptop whose display is in use": warned(
        LAPTOP, "1.2 GiB of 8.0 GiB are already in use", start="1.2 GiB of 8.0 GiB are already in use"
    ),
    "Blackwell with TensorFlow 2.20": refused(
        replace(RTX_5090, packages={"tensorflow": "2.20.0"}),
        "the packages of TensorFlow 2.20 have no code for Blackwell (compute capability 12.0)",
        "tensorflow[and-cuda]>=2.21,<2.22", because="",
    ),
    "errors of the memory": warned(H100_WITH_ECC_ERRORS, "2 memory error(s) that could not be corrected"),
    # ---- the choice of GPUs
    "an unknown UUID": refused(chosen("GPU-9"), "CUDA_VISIBLE_DEVICES=GPU-9 shows no GPU", "has GPU-0000-0 (NVIDIA"),
    "an unknown index": refused(chosen("7"), "CUDA_VISIBLE_DEVICES=7 shows no GPU", "has 0 (NVIDIA H100 80GB HBM3)"),
    "an unknown index behind a known one": warned(
        chosen("1,7"), "CUDA_VISIBLE_DEVICES=1,7 shows GPU 1 (NVIDIA H100 80GB HBM3) alone",
        start="CUDA_VISIBLE_DEVICES=1,7 shows GPU 1 (NVIDIA H100 80GB HBM3) alone",
    ),
    "the UUID of an earlier MIG instance": refused(
        chosen("MIG-1111", MIG), "CUDA_VISIBLE_DEVICES=MIG-1111 shows no GPU", "has MIG-0000-100, MIG-0000-101"
    ),
    "P400 and 4090, 0 is shown": warned(
        chosen("0", replace(WORKSTATION, packages={"nvidia-cudnn-cu12": "9.10.2.21"})),
        "CUDA_VISIBLE_DEVICES=0 means GPU 0 (Quadro P400), in the order of the PCI bus", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        start="CUDA_VISIBLE_DEVICES=0 means GPU 0 (Quadro P400)",
    ),
    "P400 and 4090, 0 is shown in PCI order": Met(
        box=chosen("0", WORKSTATION, PCI), start="", refused=True
    ),
    "two models, the first trains": warned(
        TWO_MODELS, "GPUs of different models: GPU 0 (NVIDIA GeForce RTX 3090), GPU 1", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        start="GPUs of different models: GPU 0 (NVIDIA GeForce RTX 3090), GPU 1 (NVIDIA GeForce RTX 4090)",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def told(nvml: FakeNvml, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    visits = Visits(nvml, tmp_path_factory.mktemp("boxes"))
    found = {name: visits.visit(met.box, PROGRAM, *met.arguments) for name, met in BOXES.items()}
    visits.end()
    return found


def bad(doctor: list[list[str]]) -> list[list[str]]:
    """Errors and warnings about GPUs, driver and packages, in their order."""
    return [one for one in doctor if one[0] in ("error", "warning") and one[1] not in HOST]


def test_the_doctor_names_the_cause_first_in_three_lines_at_most(told: Mapping[str, Any]) -> None:
    with all_hold() as cases:
        for name, met in BOXES.items():
            with cases.case(name):
                found, verdict = bad(told[name]["doctor"]), told[name]["verdict"]
                assert verdict.startswith(met.verdict + (";" if found and met.verdict in (READY, CPU) else "")), verdict
                assert verdict.startswith(CPU) is (met.verdict == CPU), verdict
                assert len(found) <= 3, found
                assert bool(found) is bool(met.doctor), found
                if met.doctor:
                    level, _, what, remedy = found[0]
                    assert (level, met.doctor in what, met.remedy in remedy) == (met.level, True, True), found


def test_a_start_says_the_same_before_anything_is_trained(told: Mapping[str, Any]) -> None:
    with all_hold() as cases:
        for name, met in BOXES.items():
            with cases.case(name):
                code, lines = told[name]["code"], told[name]["start"].splitlines()
                assert (code != 0) is met.refused, lines
                assert len(lines) <= 3, lines
                assert met.start in (lines or [""])[0], lines
                assert bool(lines) is bool(met.start or met.refused), lines


def test_a_trainer_that_finds_no_gpu_gives_the_cause_of_the_doctor(told: Mapping[str, Any]) -> None:
    with all_hold() as cases:
        for name, met in BOXES.items():
            if met.verdict == NOT_READY and "capability" not in met.doctor + name and "PTX" not in met.doctor:
                with cases.case(name):
                    assert (met.doctor if met.because is None else met.because) in told[name]["reason"]
