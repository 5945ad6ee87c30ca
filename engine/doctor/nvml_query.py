"""Queries NVML for the doctor, step by step and in a separate thread, since a driver may be slow or hang.

The answers up to the deadline are used. Only facts that the doctor reports are queried, so that a slow driver answers
for as many GPUs as possible. The details come after the essential facts about all GPUs. The answers are judged in
driver.py and gpu_findings.py.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from ..system.child_process import BackgroundCall
from ..telemetry import resource_limits
from ..telemetry.gpu_processes import described
from ..telemetry.nvml.connection import NO_GPU
from ..telemetry.nvml.queries import QUESTIONS, Question, chip, computing, names
from ..telemetry.nvml.reasons import Reason, or_none, reason_of, text_of

_FIGURES = ("memory_used_bytes", "power_limit_w", "throttle", "ecc_errors", "processes", "mig")
_ASKED = [question for question in QUESTIONS if set(_FIGURES) & set(question.keys)]


@dataclass(frozen=True)
class NvmlAnswers:
    """The answers of NVML up to now. If there are none, `reason` gives the reason, and `code` is NVML's error number.

    `count` is the number of GPUs, 0 until it is known. `gpus` are the GPUs that have answered, with their figures by
    name. `driver` and `cuda` are versions. `late_seconds` is the time after which essential answers were still missing;
    None if none is.
    """

    gpus: tuple[dict[str, Any], ...] = ()
    count: int = 0
    reason: str = ""
    code: int | None = None
    driver: str = ""
    cuda: tuple[int, int] | None = None
    late_seconds: float | None = None


class NvmlQuery:
    """Queries NVML in another thread, from the creation of the object on. A thread that hangs ends with the process."""

    def __init__(self) -> None:
        self._seen, self._began = NvmlAnswers(), time.monotonic()
        self._call = BackgroundCall(self._ask)

    def by(self, deadline: float) -> NvmlAnswers:
        """Return the answers as soon as they are complete, or the answers up to the deadline.

        The deadline is a time of time.monotonic in seconds.
        """
        try:
            self._call.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return self._late()
        return self._seen

    def _late(self) -> NvmlAnswers:
        seen, seconds = self._seen, time.monotonic() - self._began
        if seen.count and len(seen.gpus) == seen.count:  # only details have not been answered
            return seen
        nothing = f"the NVIDIA driver has not answered within {seconds:.0f} s"
        return replace(seen, late_seconds=seconds, reason=seen.reason or ("" if seen.count else nothing))

    def _know(self, **more: Any) -> None:
        """Replace the fields of the answers that `more` names.

        This is one assignment, as another thread may read the answers at any time.
        """
        self._seen = replace(self._seen, **more)

    def _ask(self) -> None:
        try:
            pynvml.nvmlInit()
        except Exception as fault:  # noqa: BLE001 - loading a broken library can raise any exception
            self._know(reason=text_of(fault), code=getattr(fault, "value", None))
            return
        try:
            self._ask_driver()
            for index in range(self._seen.count):
                self._know(gpus=(*self._seen.gpus, _gpu(index)))
            for index, gpu in enumerate(self._seen.gpus):
                if not gpu.get("missing"):
                    self._know_details(index)
        finally:
            or_none(pynvml.nvmlShutdown)

    def _know_details(self, index: int) -> None:
        gpus = list(self._seen.gpus)
        gpus[index] = gpus[index] | (or_none(lambda: details(pynvml.nvmlDeviceGetHandleByIndex(index))) or {})
        self._know(gpus=tuple(gpus))

    def _ask_driver(self) -> None:
        cuda = or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        driver = or_none(pynvml.nvmlSystemGetDriverVersion) or "of an unknown version"
        self._know(driver=str(driver), cuda=(cuda // 1000, cuda % 1000 // 10) if cuda else None)
        try:
            count = int(pynvml.nvmlDeviceGetCount())
            self._know(count=count, reason="" if count else NO_GPU)
        except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
            self._know(reason=text_of(fault), code=getattr(fault, "value", None))


# ---- one GPU ----------------------------------------------------------------------------------


def _gpu(index: int) -> dict[str, Any]:
    """Return the facts and settings of the GPU with NVML's `index`, by name.

    A GPU that cannot be read has the reason in `missing` and `why`.
    """
    gpu: dict[str, Any] = {"index": index}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for question in _ASKED:
            gpu |= _answer(handle, question)
    except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
        return gpu | {"missing": text_of(fault), "why": reason_of(fault)}
    gpu |= names(handle) | chip(handle) | _settings(handle)
    gpu["processes"] = described(gpu.get("processes") or (), None)
    return gpu | (_host_memory() if gpu.get("memory_total_bytes", 0) == 0 else {})


def _answer(handle: Any, question: Question) -> dict[str, Any]:
    """Return the figures that answer one question about the GPU with NVML's `handle`, by name.

    All are None if the query failed. Empty if this driver or chip does not have them. If the GPU is lost, the exception
    of NVML is raised.
    """
    for way in question.ways:
        try:
            return {key: None if isinstance(value, Reason) else value for key, value in way(handle).items()}
        except Exception as fault:
            reason = reason_of(fault)
            if reason is Reason.LOST:
                raise
            if reason is not Reason.UNSUPPORTED:
                return dict.fromkeys(question.keys)
    return {}


def _host_memory() -> dict[str, Any]:
    """Return the memory figures of a GPU that shares the host's memory, as on GB10 and Jetson.

    `memory_total_bytes` is the size of the host's memory, `memory_used_bytes` is None, and `shared_with_host` is True.
    NVML reports no size or zero for these chips.
    """
    return {"memory_used_bytes": None, "memory_total_bytes": resource_limits.memory().total, "shared_with_host": True}


def _settings(handle: Any) -> dict[str, Any]:
    """Return the settings of the GPU with NVML's `handle` that an administrator can change, by name. A value is None if
    it is not known.
    """
    default = or_none(lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
    return {
        "persistence": or_none(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        "ecc": or_none(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        "power_default_w": default / 1000 if default else None,
    }


# ---- details that only the doctor needs ----------------------------------------------------------


Handle = Any


def details(gpu: Handle) -> dict[str, Any]:
    """Return the details of a GPU that are available, by these keys.

    `compute_mode` is NVML's number. `holders` are the processes that compute. `pcie_lanes` are the lanes now and at
    most. `fabric` is NVML's number for the state of its registration at the NVLink switches. `nvlinks` are the numbers
    of active and of all links. `repair` is the memory that the next reset replaces (rows or pages). `unrepaired` is
    True if a row could not be replaced. `licensed` is for a virtual GPU.
    """
    answers = {key: or_none(functools.partial(ask, gpu)) for key, ask in _DETAILS.items()}
    return {key: answer for key, answer in answers.items() if answer is not None}


def _pcie_lanes(gpu: Handle) -> tuple[int, int]:
    return pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)


def _fabric(gpu: Handle) -> int | None:
    """Return NVML's number for the state of the registration at the NVLink switches; None if there are no switches."""
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
    """Return the part of the memory that the next reset will replace; None if there is none.

    Ampere and later chips replace rows; older chips stop using pages.
    """
    rows = or_none(lambda: pynvml.nvmlDeviceGetRemappedRows(gpu))
    if rows is not None:
        return "rows of its memory" if rows[2] else None
    return "pages of its memory" if pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) else None


def _unrepaired(gpu: Handle) -> bool:
    return bool(pynvml.nvmlDeviceGetRemappedRows(gpu)[3])


def _licensed(gpu: Handle) -> bool | None:
    """Return True if a virtual GPU (NVIDIA vGPU) has its licence. Without one it is slowed down, and False is returned.

    None for other GPUs.
    """
    if pynvml.nvmlDeviceGetVirtualizationMode(gpu) != pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
        return None
    features = pynvml.nvmlDeviceGetGridLicensableFeatures(gpu)
    if not features.isGridLicenseSupported:
        return None
    there = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return any(feature.featureEnabled and feature.featureState for feature in there)


_DETAILS: dict[str, Callable[[Handle], Any]] = {
    "compute_mode": pynvml.nvmlDeviceGetComputeMode,
    "holders": lambda gpu: described(computing(gpu), None),
    "pcie_lanes": _pcie_lanes,
    "fabric": _fabric,
    "nvlinks": _nvlinks,
    "repair": _repair,
    "unrepaired": _unrepaired,
    "licensed": _licensed,
}
