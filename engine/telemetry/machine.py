"""What this machine has, as far as options depend on it: GPUs by NVML, CPUs, memory. No TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import no_driver, nodes
from .background_call import BackgroundCall
from .gpus import Answers, Gpu, Instance, Machine, shown_of, used_by_tensorflow
from .nvml import NO_GPU, Nvml, NvmlUnavailable
from .processes import named, sole
from .reasons import Code
from .visible import VARIABLE

__all__ = [
    "PATIENCE_SECONDS",
    "Gpu",
    "Instance",
    "Machine",
    "answers",
    "gpus_of",
    "memory_free_bytes",
    "read",
    "used_by_tensorflow",
    "visible_gpus",
]

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must not make gputui hang
WITHOUT_CUDA = (Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH)  # then CUDA cannot work either


def read() -> Machine:
    """The machine as it is now."""
    return Machine.of(answers())


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    return shown_of(answers().gpus, os.environ.get(VARIABLE))


def memory_free_bytes(index: int) -> int | None:
    """The free memory of a GPU at this moment; None where the driver does not report it."""
    try:
        (reading,) = (one for one in BackgroundCall(_readings).result(PATIENCE_SECONDS) if one["index"] == index)
        free = reading["memory_total_bytes"] - reading["memory_used_bytes"] - reading.get("memory_reserved_bytes", 0)
    except (NvmlUnavailable, TimeoutError, ValueError, KeyError, TypeError):
        return None
    return max(0, int(free))


def gpus_of(pid: int) -> frozenset[str]:
    """The UUIDs of the GPUs on which the driver sees a process; none where it sees it on none, or does not tell."""
    try:
        readings = BackgroundCall(_readings).result(PATIENCE_SECONDS)
    except (NvmlUnavailable, TimeoutError):
        return frozenset()
    seen = (one for one in readings if any(process["pid"] == pid for process in one.get("processes") or ()))
    return frozenset(one["uuid"] for one in seen if one.get("uuid"))


def _readings() -> list[dict[str, Any]]:
    nvml = Nvml()
    try:
        return nvml.read()
    finally:
        nvml.close()


def answers() -> Answers:
    """What NVML tells of the GPUs, or why it does not."""
    try:
        return BackgroundCall(_ask).result(PATIENCE_SECONDS)
    except NvmlUnavailable as fault:
        unknown = fault.code not in WITHOUT_CUDA and nodes.there()
        why = no_driver.found(str(fault), fault.code)
        return Answers(reason=str(fault), missing=str(fault) if unknown else "", fault=why)
    except TimeoutError as late:
        reason = f"the NVIDIA driver hangs: {late}"
        return Answers(reason=reason, missing=reason)


def _ask() -> Answers:
    nvml = Nvml()
    try:
        gpus = tuple(_gpu(identity) for identity in nvml.identities())
        why = None if gpus else no_driver.found(NO_GPU, None)
        return Answers(gpus, "" if gpus else NO_GPU, "", nvml.cuda(), nvml.driver(), why)
    finally:
        nvml.close()


def _gpu(identity: Mapping[str, Any]) -> Gpu:
    instances = identity.get("mig")
    return Gpu(
        index=identity["index"],
        uuid=identity.get("uuid"),
        name=identity.get("name"),
        compute_capability=identity.get("compute_capability"),
        memory_total_bytes=identity.get("memory_total_bytes"),
        mig=instances is not None,
        instances=tuple(Instance(one["uuid"], one["memory_total_bytes"]) for one in instances or ()),
        multiprocessors=identity.get("multiprocessors"),
        pci_bus_id=identity.get("pci_bus_id"),
        lost=identity.get("missing", "") if identity.get("lost") else "",
        prohibited=bool(identity.get("prohibited")),
        memory_used_bytes=identity.get("memory_used_bytes"),
        holders=tuple(map(named, identity.get("holders", ()))),
        sole_holder=sole(identity.get("holders", ())) if identity.get("exclusive") else "",
    )
