"""Machines with GPUs as they are met, as data: what their drivers answer, what is installed, and who started the job.

`box.environment(nvml, folder)` is what makes a new process believe that it runs there: NVML, CUDA's start, the PCI bus,
the launcher's variables, the packages that pip lists and the kind of processor. TensorFlow itself is not played.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fakenvml import FakeNvml
from tests.support.machines import machine, put

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


_V100 = "name=Tesla_V100-SXM2-16GB capability=7.0 cores=5120 mem_total=16384 mem_used=0 retired=0"
_P100 = "name=Tesla_P100-PCIE-16GB capability=6.0 cores=3584 mem_total=16384 mem_used=0 retired=0"
_T4 = "name=Tesla_T4 capability=7.5 cores=2560 mem_total=15360 mem_used=0"
H100 = "name=NVIDIA_H100_80GB_HBM3 capability=9.0 cores=16896 mem_total=81559 mem_used=0 nvlinks=18 fabric=3"
A100 = "name=NVIDIA_A100-SXM4-80GB capability=8.0 cores=6912 mem_total=81920 mem_used=0 nvlinks=12"
R470, R535, R570 = "driver=470.256.02 cuda=11040", "driver=535.183.01 cuda=12020", "driver=570.86.15 cuda=12080"
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
GH200 = Box(
    f"name=NVIDIA_GH200_480GB capability=9.0 cores=16896 mem_total=97871 mem_used=0 {R570}",
    tensorflow=_WITHOUT_CUDA,
    processor="aarch64",
)
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
NO_FABRIC_MANAGER = Box(f"{H100} fabric=2 {R570}".replace("fabric=3 ", ""), "SYSTEM_NOT_READY", 8)
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
