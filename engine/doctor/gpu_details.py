"""Findings about a GPU's connections, compute mode, memory repairs and licence, from nvml_details.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from ..telemetry.gpu_processes import sole
from ..telemetry.nvml.queries import EXCLUSIVE
from .cuda_errors import FABRIC
from .finding import Finding

Gpu = dict[str, Any]
_RESET = "reset it when nothing runs on it (as root: nvidia-smi --gpu-reset)"


def _compute_mode(gpu: Gpu) -> Iterator[Finding]:
    reset = "as root: nvidia-smi -c DEFAULT"
    if gpu.get("compute_mode") == pynvml.NVML_COMPUTEMODE_PROHIBITED:
        yield _of(gpu, "error", "its compute mode is PROHIBITED: CUDA cannot use it", reset)
    elif gpu.get("compute_mode") in EXCLUSIVE:
        message, remedy = "its compute mode is EXCLUSIVE_PROCESS: only one process can use it", f"{reset} lets several"
        if not (holder := held(gpu)):
            yield _of(gpu, "note", message, remedy)
        else:
            level = "error" if gpu.get("all_held") else "warning"
            yield _of(gpu, level, f"{message}, and {holder} does now", f"wait until it ends, or {remedy}")


def held(gpu: Gpu) -> str:
    """The process that has the GPU for itself."""
    return sole(gpu.get("holders") or ()) if gpu.get("compute_mode") in EXCLUSIVE else ""


def _lanes(gpu: Gpu) -> Iterator[Finding]:
    now, most = gpu.get("pcie_lanes") or (0, 0)
    if 0 < now < most:
        message = f"PCIe uses {now} of {most} lanes: copies take {most / now:g} times as long"
        yield _of(gpu, "warning", message, "reseat the card, or try another slot")


def _fabric(gpu: Gpu) -> Iterator[Finding]:
    state, works = gpu.get("fabric"), gpu.get("cuda_works")
    if state in (None, pynvml.NVML_GPU_FABRIC_STATE_COMPLETED) or works is False:  # CUDA's own error says it
        return
    remedy = FABRIC.remedy.format(driver=gpu.get("driver") or "of an unknown version")
    if works:
        yield _of(gpu, "warning", f"{FABRIC.what}: there is no NVLink between the GPUs", remedy)
    else:
        yield _of(gpu, "error", f"CUDA cannot start: {FABRIC.what}", remedy)


def _nvlinks(gpu: Gpu) -> Iterator[Finding]:
    """None active is normal for a card without a bridge; all GPUs behind NVLink switches have them all."""
    active, count = gpu.get("nvlinks") or (0, 0)
    if 0 < active < count:
        level = "note" if gpu.get("fabric") is None else "warning"
        message = f"{active} of {count} NVLinks are active"
        remedy = "nvidia-smi nvlink --status shows which; cards with fewer bridges have fewer links"
        yield _of(gpu, level, message, remedy)


def _memory(gpu: Gpu) -> Iterator[Finding]:
    if gpu.get("repair"):
        yield _of(gpu, "warning", f"{gpu['repair']} failed and will be replaced at the next reset", _RESET)
    if gpu.get("unrepaired"):
        message = "a failed row of its memory could not be replaced"
        yield _of(gpu, "warning", message, "replace the GPU; until then leave it out with device.visible")


def _licence(gpu: Gpu) -> Iterator[Finding]:
    if gpu.get("licensed") is False:
        message = "this virtual GPU has no licence: the driver slows it down, and later CUDA stops working"
        yield _of(gpu, "warning", message, "systemctl status nvidia-gridd shows why")


def hides(gpu: Gpu) -> Iterator[Finding]:
    """What keeps CUDA from using the GPU at all."""
    yield from (finding for look in (_compute_mode, _fabric) for finding in look(gpu) if finding.level == "error")


DETAILS: tuple[Callable[[Gpu], Iterator[Finding]], ...] = (_compute_mode, _lanes, _fabric, _nvlinks, _memory, _licence)


def _of(gpu: Gpu, level: str, what: str, remedy: str) -> Finding:
    return Finding(level, f"GPU {gpu['index']}", what, remedy)
