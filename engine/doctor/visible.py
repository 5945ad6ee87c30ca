"""How many GPUs CUDA should show to a process: those of the driver, less what CUDA_VISIBLE_DEVICES and MIG hide."""

from __future__ import annotations

from typing import Any

from ..telemetry.visible import Device, visible
from .gpus import usable
from .nvml_query import NvmlAnswers


def expected(seen: NvmlAnswers, chosen: str | None) -> int:
    """`chosen` is the value of CUDA_VISIBLE_DEVICES, None where it is not set."""
    gpus = all_of(seen)
    lost = {gpu["index"] for gpu in gpus if not usable(gpu)}
    return sum(one.index not in lost for one in visible(chosen, [_device(gpu) for gpu in gpus]))


def all_of(seen: NvmlAnswers) -> list[dict[str, Any]]:
    """Those that have not answered yet are taken to be well."""
    return [*seen.gpus, *({"index": index} for index in range(len(seen.gpus), seen.count))]


def _device(gpu: dict[str, Any]) -> Device:
    mig = gpu.get("mig")
    return Device(gpu["index"], gpu.get("uuid"), None if mig is None else tuple(str(one["uuid"]) for one in mig))
