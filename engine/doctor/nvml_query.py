"""Queries NVML for the doctor, step by step and in a separate thread, as a driver may be slow or hang; the details come
last, so that a slow driver answers for as many GPUs as possible.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from ..gpu import Gpu, GpuProcess
from ..system.child_process import BackgroundCall
from ..telemetry import resource_limits
from ..telemetry.gpu_processes import described
from ..telemetry.nvml import connection
from ..telemetry.nvml.connection import NO_GPU
from ..telemetry.nvml.gpu_reader import GpuQuery, Lost
from ..telemetry.nvml.queries import QUESTIONS, Handle, chip, computing, names
from ..telemetry.nvml.reasons import Reason, or_none, text_of

_FIGURES = ("memory_used_bytes", "power_limit_w", "power_limit_default_w", "throttle", "ecc_errors", "processes", "mig")
_ASKED = [question for question in QUESTIONS if set(_FIGURES) & set(question.keys)]


@dataclass(frozen=True)
class ExaminedGpu(Gpu):
    """A GPU with what only the doctor needs; None: not known, or not yet."""

    why: Reason | None = None  # it cannot be read
    persistence: bool | None = None
    ecc: bool | None = None
    compute_mode: int | None = None  # NVML's number
    holders: Sequence[GpuProcess] = ()  # that compute
    pcie_lanes: tuple[int, int] | None = None  # now and at most
    fabric: int | None = None  # NVML's number for the state of its registration at the NVLink switches
    nvlinks: tuple[int, int] | None = None  # active and all
    repair: str | None = None  # the memory that the next reset replaces
    unrepaired: bool | None = None  # a row could not be replaced
    licensed: bool | None = None  # of a virtual GPU

    @property
    def usable(self) -> bool:
        return not self.missing and bool(self.parts)


@dataclass(frozen=True)
class NvmlAnswers:
    """The answers of NVML up to now, or why there are none."""

    gpus: tuple[ExaminedGpu, ...] = ()
    count: int = 0
    reason: str = ""
    code: int | None = None  # NVML's error number
    driver: str = ""
    cuda: tuple[int, int] | None = None
    late_seconds: float | None = None  # after which essential answers were still missing


class NvmlQuery:
    """Queries NVML from the creation of the object on. A thread that hangs ends with the process."""

    def __init__(self) -> None:
        self._seen, self._began = NvmlAnswers(), time.monotonic()
        self._call = BackgroundCall(self._ask)

    def by(self, deadline: float) -> NvmlAnswers:
        """Complete, or up to the deadline (time.monotonic)."""
        with contextlib.suppress(TimeoutError):
            self._call.result(max(0.0, deadline - time.monotonic()))
            return self._seen
        seen, seconds = self._seen, time.monotonic() - self._began
        if seen.count and len(seen.gpus) == seen.count:  # only details have not been answered
            return seen
        nothing = f"the NVIDIA driver has not answered within {seconds:.0f} s"
        return replace(seen, late_seconds=seconds, reason=seen.reason or ("" if seen.count else nothing))

    def _know(self, **more: Any) -> None:
        self._seen = replace(self._seen, **more)

    def _ask(self) -> None:
        try:
            pynvml.nvmlInit()
        except Exception as fault:  # noqa: BLE001 - loading a broken library can raise any exception
            self._know(reason=text_of(fault), code=getattr(fault, "value", None))
            return
        try:
            driver, cuda = connection.of_driver()
            self._know(driver=driver or "of an unknown version", cuda=cuda)
            try:
                count = int(pynvml.nvmlDeviceGetCount())
                self._know(count=count, reason="" if count else NO_GPU)
            except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
                self._know(reason=text_of(fault), code=getattr(fault, "value", None))
            for index in range(self._seen.count):
                self._know(gpus=(*self._seen.gpus, _gpu(index)))
            for index, gpu in enumerate(self._seen.gpus):
                handle = None if gpu.missing else or_none(functools.partial(pynvml.nvmlDeviceGetHandleByIndex, index))
                if handle is not None:
                    answers = {key: or_none(functools.partial(ask, handle)) for key, ask in _DETAILS.items()}
                    more: dict[str, Any] = {key: answer for key, answer in answers.items() if answer is not None}
                    gpus = list(self._seen.gpus)
                    gpus[index] = replace(gpu, **more)
                    self._know(gpus=tuple(gpus))
        finally:
            or_none(pynvml.nvmlShutdown)


# ---- one GPU ----------------------------------------------------------------------------------


def _gpu(index: int) -> ExaminedGpu:
    """One that cannot be read has the reason in `missing` and `why`."""
    query, facts = GpuQuery(index), dict[str, Any]()
    if (handle := query.handle) is None:
        return ExaminedGpu(index, missing=query.missing, why=query.why)
    try:
        for question in _ASKED:
            answer = query.answer(question)
            facts |= {key: value for key, value in answer.items() if not isinstance(value, Reason)}
    except Lost as fault:
        return ExaminedGpu(index, **facts, missing=str(fault), why=Reason.LOST)
    facts |= names(handle) | chip(handle) | {
        "persistence": or_none(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        "ecc": or_none(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        "processes": described(facts.get("processes") or (), None),
    }  # fmt: skip
    if facts.get("memory_total_bytes", 0) == 0:  # GB10 and Jetson, whose memory is the host's
        shared = {"memory_used_bytes": None, "shared_with_host": True}
        facts |= shared | {"memory_total_bytes": resource_limits.memory().total}
    return ExaminedGpu(index, **facts)


# ---- details that only the doctor needs ----------------------------------------------------------


def _fabric(gpu: Handle) -> int | None:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    if or_none(lambda: (pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, pynvml.byref(info)), True)) is None:
        info = pynvml.c_nvmlGpuFabricInfo_t()  # before R545
        pynvml.nvmlDeviceGetGpuFabricInfo(gpu, pynvml.byref(info))
    state = int(info.state) & 0xFF
    return None if state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED else state


def _nvlinks(gpu: Handle) -> tuple[int, int] | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT])
    count = min(int(field.value.uiVal), pynvml.NVML_NVLINK_MAX_LINKS) if field.nvmlReturn == 0 else 0
    states = [or_none(functools.partial(pynvml.nvmlDeviceGetNvLinkState, gpu, link)) for link in range(count)]
    return (sum(map(bool, states)), count) if count else None


def _repair(gpu: Handle) -> str | None:
    """Ampere and later chips replace rows at the next reset; older chips stop using pages."""
    rows = or_none(lambda: pynvml.nvmlDeviceGetRemappedRows(gpu))
    if rows is not None:
        return "rows of its memory" if rows[2] else None
    return "pages of its memory" if pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) else None


def _licensed(gpu: Handle) -> bool | None:
    """Return False for a virtual GPU without a licence, which is slowed down; None for other GPUs."""
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
    "pcie_lanes": lambda gpu: (pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
    "fabric": _fabric,
    "nvlinks": _nvlinks,
    "repair": _repair,
    "unrepaired": lambda gpu: bool(pynvml.nvmlDeviceGetRemappedRows(gpu)[3]),
    "licensed": _licensed,
}
