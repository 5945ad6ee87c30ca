"""How many GPUs CUDA should show to a process: those of the driver, less what CUDA_VISIBLE_DEVICES and MIG hide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..telemetry import allocation
from ..telemetry.visible import VARIABLE, Device, visible
from .finding import Finding
from .gpus import usable
from .nvml_query import NvmlAnswers


def expected(seen: NvmlAnswers, chosen: str | None) -> int:
    """`chosen` is the value of CUDA_VISIBLE_DEVICES, None where it is not set."""
    gpus = all_of(seen)
    lost = {gpu["index"] for gpu in gpus if not usable(gpu)}
    return sum(one.index not in lost for one in visible(chosen, [_device(gpu) for gpu in gpus]))


def findings(seen: NvmlAnswers) -> Iterator[Finding]:
    """A finding where the launcher has allocated fewer GPUs to this process than the driver shows."""
    given = allocation.read(os.environ, seen.count)
    if given is None or not seen.count:
        return
    devices = [_device(gpu) for gpu in all_of(seen)]
    if all(given.allows(device.index, devices) for device in devices):
        return
    if VARIABLE in os.environ:
        yield Finding("note", "GPU", str(given), "device.visible=all uses these; other GPUs are refused")
    else:
        remedy = f"export {VARIABLE}={','.join(given.names)}, or set device.visible to these"
        yield Finding("warning", "GPU", f"{given}, but all {seen.count} are visible to CUDA", remedy)


def all_of(seen: NvmlAnswers) -> list[dict[str, Any]]:
    """Those that have not answered yet are taken to be well."""
    return [*seen.gpus, *({"index": index} for index in range(len(seen.gpus), seen.count))]


def _device(gpu: dict[str, Any]) -> Device:
    mig = gpu.get("mig")
    return Device(gpu["index"], gpu.get("uuid"), None if mig is None else tuple(str(one["uuid"]) for one in mig))
