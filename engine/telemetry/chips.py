"""The peak dense FLOP/s of chips by number format, which MFU compares a training with; and which GPUs this machine has.
Dense means without the factor of two for structured sparsity that data sheets print first. The peaks are from NVIDIA's
data sheets (V100, T4, A100, A30, A10, A10G, A40, L4, L40, L40S, H100, H200, HGX B200, RTX A4000 to A6000, RTX 6000 Ada)
and the appendices of its GA102, Ada and Blackwell white papers; another source stands on the chip's line. A chip that
is not in the table has no known peak, nor has a number format that the chip does not compute in tensor cores. GeForce
cards are listed by their float32 rate, which is two operations a clock in each CUDA core at the boost clock that NVIDIA
specifies. With float32 accumulation, as TensorFlow multiplies, their tensor cores do twice that in 16 bits and as much
in TF32, from Ampere to Blackwell alike: so the appendices print it for RTX 3090, 4090 and 5090. Laptop cards of the
same names are slower, each by its power limit, and are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..system import proc
from . import resource_limits

TERA = 1e12
# From NVIDIA's CUDA C++ Programming Guide, "Arithmetic Instructions": throughput by compute capability.
FLOAT16_CAPABILITY = (7, 0)
BFLOAT16_CAPABILITY = (8, 0)
# float32 units in a multiprocessor, from the same table; a chip that is newer than the last has as many as that.
_CORES_OF_A_MULTIPROCESSOR = {(5, 0): 128, (6, 0): 64, (6, 1): 128, (7, 0): 64, (8, 0): 64, (8, 6): 128}
# Without tensor cores, and yet with float16 products at twice the rate of float32: P100, and Jetson TX1 and TX2.
FAST_FLOAT16_WITHOUT_TENSOR_CORES = ((5, 3), (6, 0), (6, 2))
_NO_TENSOR_CORES = re.compile(r"\bGTX 16\d\d\b|\bMX\d50\b|\bT\d{3,4}\b")  # Turing's small chips, TU116 and TU117
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Peak:
    """The peak of a chip in TFLOP/s. `half` is that of float16 and, if `bfloat16` is True, of bfloat16. `tf32` is None
    if the chip does not have TF32.
    """

    float32: float
    half: float
    tf32: float | None
    bfloat16: bool = True


# A part of a chip is not the chip: MIG, and virtual GPUs by the names that NVIDIA's vGPU documentation lists, such as
# GRID A100-10C, NVIDIA A40-48Q, NVIDIA A100-1-5CME.
_PART = re.compile(r"\bMIG\b|^GRID\b|-\d+[ABCQ](ME|\d)?$")
# NVML's name ends so: RTX 4090 D and RTX 4090 Laptop GPU are other chips.
_GEFORCE_FLOAT32 = {
    "RTX 5090": 104.8, "RTX 5080": 56.3, "RTX 5070 Ti": 43.9, "RTX 5070": 30.9, "RTX 5060 Ti": 23.7, "RTX 5060": 19.2,
    "RTX 4090": 82.6, "RTX 4080 SUPER": 52.2, "RTX 4080": 48.7, "RTX 4070 Ti SUPER": 44.1, "RTX 4070 Ti": 40.1,
    "RTX 4070 SUPER": 35.5, "RTX 4070": 29.1, "RTX 4060 Ti": 22.1, "RTX 4060": 15.1,
    "RTX 3090 Ti": 40.0, "RTX 3090": 35.6, "RTX 3080 Ti": 34.1, "RTX 3080": 29.8, "RTX 3070 Ti": 21.7,
    "RTX 3070": 20.3, "RTX 3060 Ti": 16.2, "RTX 3060": 12.7,
}  # fmt: skip
# By a part of NVML's name that stands between word boundaries; the first that fits decides.
CHIPS: Mapping[str, Peak] = {
    "H200 NVL": Peak(60, 835.5, 417.5),
    "H200": Peak(67, 989.5, 494.5),
    "GH200": Peak(67, 989.5, 494.5),
    "H100 PCIe": Peak(51, 756, 378),
    "H100 NVL": Peak(60, 835.5, 417.5),
    "H100 80GB HBM3": Peak(67, 989.5, 494.5),
    "H20": Peak(44, 148, 74),  # zangshuxian.com/new/674733024499207168, after NVIDIA's data sheet
    "B200": Peak(75, 2250, 1100),
    "GB200": Peak(80, 2500, 1250),  # NVIDIA's Blackwell data sheet, "Individual Blackwell GPU", GB200 NVL72
    "B300": Peak(75, 2250, 1125),  # glennklockwood.com/garden/processors/B300, after HGX B300's data sheet
    "GB300": Peak(80, 2500, 1250),  # verda.com/blog/gb300-nvl72-architecture, per GPU without sparsity
    "A100": Peak(19.5, 312, 156),
    "A800": Peak(19.5, 312, 156),  # aiwiki.ai/wiki/nvidia_a800, an A100 with a slower NVLink
    "A30": Peak(10.3, 165, 82),
    "A40": Peak(37.4, 149.7, 74.8),
    "A10": Peak(31.2, 125, 62.5),
    "L40S": Peak(91.6, 362, 183),
    "L40": Peak(90.5, 181, 90.5),
    "L4": Peak(30.3, 121, 60),
    "A10G": Peak(31.5, 70, 35),
    # hmc-tech.com/gpu, RTX PRO 6000 Blackwell; the Max-Q and the server edition have other clocks.
    "RTX PRO 6000 Blackwell Workstation": Peak(126, 503.8, 251.9),
    "RTX 6000 Ada": Peak(91.1, 364.2, 182.1),
    "RTX A6000": Peak(38.7, 154.8, 77.4),
    "RTX A5000": Peak(27.8, 111.1, 55.6),
    "RTX A4000": Peak(19.2, 76.7, 38.3),
    **{name: Peak(rate, 2 * rate, rate) for name, rate in _GEFORCE_FLOAT32.items()},
    "V100S": Peak(16.4, 130, None, bfloat16=False),
    "V100-PCIE": Peak(14, 112, None, bfloat16=False),
    "V100": Peak(15.7, 125, None, bfloat16=False),
    "T4": Peak(8.1, 65, None, bfloat16=False),
}


def number_format(policy: str, tf32: bool) -> str:
    """That of matrix products, on a chip that supports it; `tf32` says whether TensorFloat-32 is allowed."""
    formats = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
    return formats.get(policy, "tf32" if tf32 else "float32")


def peak_flops(name: str | None, number_format: str) -> float | None:
    """The dense peak in FLOP/s of the chip with NVML's `name`, for products in a format of `number_format()`; a chip
    without TF32 computes it as float32. None if it is not known, and for a part of a chip (MIG, vGPU).
    """
    if name is None or _PART.search(name):
        return None
    words = {chip: rf"\b{chip}" + ("$" if chip in _GEFORCE_FLOAT32 else r"\b") for chip in CHIPS}
    chip = next((peak for chip, peak in CHIPS.items() if re.search(words[chip], name)), None)
    if chip is None or (number_format == "bfloat16" and not chip.bfloat16):
        return None
    plain = {"float32": chip.float32, "float16": chip.half, "bfloat16": chip.half}
    return TERA * plain.get(number_format, chip.tf32 or chip.float32)


def multiprocessors(cores: int | None, capability: Sequence[int] | None) -> int | None:
    """By the number of CUDA cores that NVML reports; None if it or the capability is not known, or too old."""
    kinds = [kind for kind in _CORES_OF_A_MULTIPROCESSOR if capability is not None and kind <= tuple(capability)]
    return cores // _CORES_OF_A_MULTIPROCESSOR[max(kinds)] if cores and kinds else None


def cpu_multiplies_bfloat16() -> bool:
    """Return True if this CPU has instructions for bfloat16 products (AVX512-BF16 or AMX), according to the kernel."""
    return re.search(r"\b(avx512_bf16|amx_bf16)\b", proc.text(_CPU_INFO)) is not None


def fast_policies(capability: Sequence[int] | None, cpu_bfloat16: bool) -> list[str]:
    """The mixed precisions for which a GPU of this compute capability has instructions; None is the CPU, and
    `cpu_bfloat16` says whether it has some for bfloat16.
    """
    if capability is None:
        return ["mixed_bfloat16"] if cpu_bfloat16 else []
    needs = (("mixed_float16", FLOAT16_CAPABILITY), ("mixed_bfloat16", BFLOAT16_CAPABILITY))
    return [policy for policy, least in needs if tuple(capability) >= least]


def best_policy(capability: Sequence[int], name: str | None) -> str:
    """The `precision.policy` with which a GPU uses its tensor cores, without loss scaling if it can; float32 without
    tensor cores.
    """
    if tuple(capability) >= BFLOAT16_CAPABILITY:
        return "mixed_bfloat16"
    has_cores = tuple(capability) >= FLOAT16_CAPABILITY and not _NO_TENSOR_CORES.search(name or "")
    return "mixed_float16" if has_cores else "float32"


# ---- the GPUs in the kernel's files ---------------------------------------------------------------


NVIDIA = "0x10de"
# Its numbers of chips grow with the generations (the PCI ID Repository): the first of Turing and of Blackwell.
TURING_DEVICE, BLACKWELL_DEVICE = 0x1E00, 0x2900
DISPLAY = "0x03"  # the PCI class of graphics and compute chips; a card's audio and USB parts have others
LENT = "vfio-pci"  # this driver reserves a device for a virtual machine
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONFINED = ("container", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SLURM_JOB_ID")


def gpus_on_bus() -> list[str] | None:
    """The PCI addresses of this machine's NVIDIA GPUs, such as 0000:01:00.0, without those lent to virtual machines.
    None if the bus cannot be seen, or shows none although there are device nodes of GPUs.
    """
    try:
        devices = sorted((resource_limits.ROOT / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    addresses = [device.name for device in devices if _is_gpu(device)]
    return None if not addresses and has_device_nodes() else addresses


def devices_at(addresses: Iterable[str]) -> list[int]:
    """Return the PCI device ids of the GPUs at these addresses, without those that cannot be read."""
    devices = []
    for address in addresses:
        with contextlib.suppress(OSError, ValueError):
            file = resource_limits.ROOT / "sys/bus/pci/devices" / address / "device"
            devices.append(int(file.read_text().strip(), 16))
    return devices


def _is_gpu(device: Path) -> bool:
    nvidia, lent = proc.text(device / "vendor").strip() == NVIDIA, (device / "driver").resolve().name == LENT
    return nvidia and proc.text(device / "class").startswith(DISPLAY) and not lent


def confined() -> bool:
    """Return True in a container or a batch job, which may have been given only some of the GPUs."""
    files = any((resource_limits.ROOT / name).exists() for name in _CONTAINER_FILES)
    return files or any(os.environ.get(name) for name in _CONFINED)


# ---- the driver's device nodes -------------------------------------------------------------------


# Of the driver for data centres and desktops, and of a Jetson.
_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/nvhost-gpu")
_UVM = "dev/nvidia-uvm"
# WSL has this node for GPUs of any maker; Windows' NVIDIA driver adds its libcuda.so.1 (NVIDIA's "CUDA on WSL" guide).
WSL_LIBRARIES = "usr/lib/wsl/lib"
_WSL = ("dev/dxg", f"{WSL_LIBRARIES}/libcuda.so.1")


def has_device_nodes() -> bool:
    """Return True if this machine or container has the device node of an NVIDIA GPU."""
    if all((resource_limits.ROOT / name).exists() for name in _WSL):
        return True
    return any(any(resource_limits.ROOT.glob(node)) for node in _NODES)


def is_wsl() -> bool:
    """Return True in Windows' WSL, where Windows' desktop uses the GPU and the driver does not list its processes."""
    return (resource_limits.ROOT / _WSL[0]).exists()


def lacks_unified_memory() -> bool:
    """Return True if the driver's device nodes exist, but not the one of nvidia_uvm, which CUDA needs."""
    return any(resource_limits.ROOT.glob(_NODES[0])) and not (resource_limits.ROOT / _UVM).exists()
