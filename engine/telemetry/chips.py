"""Peak dense FLOP/s by chip and number format: what the share of the peak (MFU) is measured against.

Dense means without the factor of two for structured sparsity that data sheets print first. From NVIDIA's data sheets
(V100, T4, A100, A30, A10, A40, L4, L40, L40S, H100, H200, HGX B200) and the appendices of its GA102 and Ada white
papers (RTX 3090, RTX 4090: with float32 accumulation, as TensorFlow multiplies). A chip that is not in the table has
no known peak, nor has a number format that it does not compute in tensor cores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TERA = 1e12
# From NVIDIA's CUDA C++ Programming Guide, "Arithmetic Instructions": throughput by compute capability.
FLOAT16_CAPABILITY = (7, 0)
BFLOAT16_CAPABILITY = (8, 0)
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Peak:
    """TFLOP/s; `half` is float16 and bfloat16, None stands for formats that the chip lacks."""

    float32: float
    half: float
    tf32: float | None
    bfloat16: bool = True


# A part of a chip is not the chip: MIG, and virtual GPUs by the names that NVIDIA's vGPU documentation lists, such as
# GRID A100-10C, NVIDIA A40-48Q, NVIDIA A100-1-5CME.
_PART = re.compile(r"\bMIG\b|^GRID\b|-\d+[ABCQ](ME|\d)?$")
# The first pattern that is found in NVML's name decides.
_CHIPS: tuple[tuple[str, Peak], ...] = (
    (r"\bH200 NVL\b", Peak(60, 835.5, 417.5)),
    (r"\bG?H200\b", Peak(67, 989.5, 494.5)),
    (r"\bH100 PCIe\b", Peak(51, 756, 378)),
    (r"\bH100 NVL\b", Peak(60, 835.5, 417.5)),
    (r"\bH100 80GB HBM3\b", Peak(67, 989.5, 494.5)),
    (r"\bB200\b", Peak(75, 2250, 1100)),
    (r"\bA100\b", Peak(19.5, 312, 156)),
    (r"\bA30\b", Peak(10.3, 165, 82)),
    (r"\bA40\b", Peak(37.4, 149.7, 74.8)),
    (r"\bA10\b", Peak(31.2, 125, 62.5)),
    (r"\bL40S\b", Peak(91.6, 362, 183)),
    (r"\bL40\b", Peak(90.5, 181, 90.5)),
    (r"\bL4\b", Peak(30.3, 121, 60)),
    (r"\bRTX 4090$", Peak(82.6, 165.2, 82.6)),
    (r"\bRTX 3090$", Peak(35.6, 71, 35.6)),
    (r"\bV100S\b", Peak(16.4, 130, None, bfloat16=False)),
    (r"\bV100-PCIE\b", Peak(14, 112, None, bfloat16=False)),
    (r"\bV100\b", Peak(15.7, 125, None, bfloat16=False)),
    (r"\bT4\b", Peak(8.1, 65, None, bfloat16=False)),
)


def number_format(policy: str, tf32: bool) -> str:
    """In what the matrix products of a precision policy are computed, where the chip can."""
    formats = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
    return formats.get(policy, "tf32" if tf32 else "float32")


def peak_flops(name: str | None, number_format: str) -> float | None:
    """Dense FLOP/s of the chip with NVML's `name`, or None where it is not known.

    `tf32` on a chip without it is computed as float32.
    """
    if name is None or _PART.search(name):
        return None
    found = next((peak for pattern, peak in _CHIPS if re.search(pattern, name)), None)
    if found is None:
        return None
    if number_format == "bfloat16" and not found.bfloat16:
        return None
    plain = {"float32": found.float32, "float16": found.half, "bfloat16": found.half}
    return TERA * plain.get(number_format, found.tf32 or found.float32)


def cpu_multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16 products (AVX512-BF16 or AMX), as far as the kernel tells."""
    try:
        flags = _CPU_INFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return re.search(r"\b(avx512_bf16|amx_bf16)\b", flags) is not None
