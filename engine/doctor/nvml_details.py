"""Asks NVML for details of a GPU that only the doctor needs: connections, compute mode, memory repairs, licence.

These queries come after the essential ones about all GPUs, so that a slow driver has answered those first. Where the
driver or the chip does not support a query, its key is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pynvml

from ..telemetry.gpu_processes import described
from ..telemetry.nvml.queries import computing
from ..telemetry.nvml.reasons import or_none

Handle = Any


def details(gpu: Handle) -> dict[str, Any]:
    """The answers that there are, by these keys:

    `compute_mode`, `holders` (processes that compute), `pcie_lanes` (now, at most), `fabric` (the state of its
    registration at the NVLink switches), `nvlinks` (active, all), `repair` (what waits for a reset: rows or pages),
    `unrepaired` (a row could not be replaced) and `licensed` (of a virtual GPU).
    """
    answers = {key: or_none(functools.partial(ask, gpu)) for key, ask in _ASKED.items()}
    return {key: answer for key, answer in answers.items() if answer is not None}


def _pcie_lanes(gpu: Handle) -> tuple[int, int]:
    return pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)


def _fabric(gpu: Handle) -> int | None:
    """NVML's number of the state; None on boards without NVLink switches."""
    info = or_none(lambda: _fabric_v(gpu)) or _fabric_before_r545(gpu)
    state = int(info.state) & 0xFF
    return None if state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED else state


def _fabric_v(gpu: Handle) -> Any:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, pynvml.byref(info))
    return info


def _fabric_before_r545(gpu: Handle) -> Any:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(gpu, pynvml.byref(info))
    return info


def _nvlinks(gpu: Handle) -> tuple[int, int] | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT])
    count = min(int(field.value.uiVal), pynvml.NVML_NVLINK_MAX_LINKS) if field.nvmlReturn == 0 else 0
    states = [or_none(functools.partial(pynvml.nvmlDeviceGetNvLinkState, gpu, link)) for link in range(count)]
    return (sum(map(bool, states)), count) if count else None


def _repair(gpu: Handle) -> str | None:
    """Ampere and later replace rows of their memory, older chips leave out pages: both at the next reset."""
    rows = or_none(lambda: pynvml.nvmlDeviceGetRemappedRows(gpu))
    if rows is not None:
        return "rows of its memory" if rows[2] else None
    return "pages of its memory" if pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) else None


def _unrepaired(gpu: Handle) -> bool:
    return bool(pynvml.nvmlDeviceGetRemappedRows(gpu)[3])


def _licensed(gpu: Handle) -> bool | None:
    """Of a virtual GPU (NVIDIA vGPU): whether it has its licence, without which it is slowed down."""
    if pynvml.nvmlDeviceGetVirtualizationMode(gpu) != pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
        return None
    features = pynvml.nvmlDeviceGetGridLicensableFeatures(gpu)
    if not features.isGridLicenseSupported:
        return None
    there = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return any(feature.featureEnabled and feature.featureState for feature in there)


_ASKED: dict[str, Callable[[Handle], Any]] = {
    "compute_mode": pynvml.nvmlDeviceGetComputeMode,
    "holders": lambda gpu: described(computing(gpu), None),
    "pcie_lanes": _pcie_lanes,
    "fabric": _fabric,
    "nvlinks": _nvlinks,
    "repair": _repair,
    "unrepaired": _unrepaired,
    "licensed": _licensed,
}
