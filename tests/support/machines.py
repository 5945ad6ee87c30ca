"""Machines that the doctor is taken to: what is on the bus, the container's limits, and a TensorFlow as wished.

A Box is one as it is met, as data: what its driver answers, what is installed, and who started the job. Its environment
makes a new process believe that it runs there: NVML, CUDA's start, the PCI bus, the launcher's variables, the packages
that pip lists and the kind of processor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.doors.engine import chips, installed, resource_limits
from tests.support.fakenvml import FakeNvml

# Says and sees what FAKE_TF holds: its number of GPUs, or "hang", with a process of its own that keeps the pipes open.
TENSORFLOW = """
import os, subprocess, sys, time
wish = os.environ["FAKE_TF"]
if wish == "hang":
    subprocess.Popen(["sleep", "40"])
    time.sleep(40)
if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
    print("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", file=sys.stderr)
__version__ = "2.21.0"

class config:
    list_physical_devices = staticmethod(lambda kind: list(range(int(wish))))

    class experimental:
        get_device_details = staticmethod(lambda gpu: {"device_name": f"chip {gpu}"})
"""


def machine(folder: Path, gpus: int = 0, driver: str = "nvidia", container: bool = False) -> dict[str, str]:
    """What makes gputui see GPUs on the bus at 0000:01:00.0 and on, with their sound chips and a network card."""
    for number in range(1, gpus + 1):
        _device(folder, f"0000:{number:02x}:00.0", "0x10de", "0x030200", driver)
        _device(folder, f"0000:{number:02x}:00.1", "0x10de", "0x040300", "snd_hda_intel")
    _device(folder, "0000:7f:00.0", "0x8086", "0x020000", "e1000e")
    (folder / "dev").mkdir()
    if container:
        (folder / ".dockerenv").touch()
    return {"GPUTUI_ROOT": str(folder)} | dict.fromkeys(chips._CONFINED, "")


def _device(folder: Path, address: str, vendor: str, kind: str, driver: str) -> None:
    device = folder / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    (device / "driver").symlink_to(folder / "sys/bus/pci/drivers" / driver)


def whole(nvml: FakeNvml, folder: Path, words: str, gpus: int) -> dict[str, str]:
    """A machine with as many GPUs on the bus, whose driver has all its libraries and says what the words wish."""
    folder.mkdir()
    given = nvml.environment(words)
    libraries = {"LD_LIBRARY_PATH": f"{given['LD_LIBRARY_PATH']}:{nvml.cuda}", "FAKE_CUDA": str(gpus)}
    return machine(folder, gpus) | given | libraries


def tensorflow(folder: Path, wish: str) -> dict[str, str]:
    """What makes a new process import the stand-in above."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    return {"PYTHONPATH": str(folder), "FAKE_TF": wish}


def put(folder: Path, files: dict[str, str]) -> None:
    """Files of the kernel in a machine's tree."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the file system in which limits and GPUs are looked for; no GPU is chosen."""
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of a TensorFlow 2.21 as its packages have them, whatever is installed here."""
    info = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9.3.0",
            "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]}  # fmt: skip
    monkeypatch.setattr(installed, "build_info", lambda: info)
    monkeypatch.setattr(installed, "tensorflow_version", lambda: "2.21.0")


# ---- with GPUs as they are met ------------------------------------------------------------------

# Of the process that runs the tests; no box has them unless it says so.
_LAUNCHERS = ("CUDA_", "SLURM_", "NVIDIA_", "GPU_DEVICE_ORDINAL")
_PROCESSOR = "import platform\nplatform.machine = lambda: {processor!r}\n"


@dataclass(frozen=True)
class Box:
    """`nvml` are the words of fakenvml/nvml.c, `cuda` is what fakenvml/cuda.c does: a number of GPUs, or an error.

    `packages` takes the place of versions that pip lists; `tensorflow` of how TensorFlow says that it was built.
    """

    nvml: str
    cuda: str = "1"
    gpus: int = 1
    shown: int | None = None  # of these, those that NVML knows, if not all
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    tensorflow: Mapping[str, object] | None = None
    processor: str = "x86_64"
    container: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    def environment(self, nvml: FakeNvml, folder: Path) -> dict[str, str]:
        """All variables of a process on this machine, whose files are put into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        own = {key: value for key, value in os.environ.items() if not key.startswith(_LAUNCHERS)}
        places = own.get("PATH", "").split(os.pathsep)  # also if the environment of the tests is activated
        own["PATH"] = os.pathsep.join(place for place in places if place != os.path.dirname(sys.executable))
        words = nvml.environment(f"gpus={self.gpus if self.shown is None else self.shown} {self.nvml}")
        words["LD_LIBRARY_PATH"] += f":{nvml.cuda}"
        found = own | machine(folder, self.gpus, container=self.container) | words
        put(folder, dict(self.files))
        return found | {"FAKE_CUDA": self.cuda, "PYTHONPATH": str(self._site(folder / "site"))} | dict(self.variables)

    def _site(self, site: Path) -> Path:
        built = {"tensorflow": "2.21.0"} if self.tensorflow is not None else {}
        for name, version in {**self.packages, **built}.items():
            listed = f"{name.replace('-', '_')}-{version}.dist-info/METADATA"
            put(site, {listed: f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"})
        if self.tensorflow is not None:
            told = f"build_info = collections.OrderedDict({list(self.tensorflow.items())!r})"
            put(site, {"tensorflow/python/platform/build_info.py": told})
        put(site, {"sitecustomize.py": _PROCESSOR.format(processor=self.processor)})
        return site


H100 = "name=NVIDIA_H100_80GB_HBM3 capability=9.0 cores=16896 mem_total=81559 mem_used=0 nvlinks=18 fabric=3"
A100 = "name=NVIDIA_A100-SXM4-80GB capability=8.0 cores=6912 mem_total=81920 mem_used=0 nvlinks=12"
R470, R535, R570 = "driver=470.256.02 cuda=11040", "driver=535.183.01 cuda=12020", "driver=570.86.15 cuda=12080"
NO_FABRIC_MANAGER = Box(f"{H100} fabric=2 {R570}".replace("fabric=3 ", ""), "SYSTEM_NOT_READY", 8)
