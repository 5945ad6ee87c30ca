"""How many GPUs CUDA shows to a process: those of the driver, less what CUDA_VISIBLE_DEVICES and MIG keep from it."""

from __future__ import annotations

from typing import Any

from .gpus import usable
from .nvml_query import NvmlAnswers


def expected(seen: NvmlAnswers, chosen: str | None) -> int:
    """`chosen` is the value of CUDA_VISIBLE_DEVICES, None where it is not set.

    From NVIDIA's MIG guide: where an instance is visible CUDA shows one instance, and no whole GPU.
    """
    left = [gpu for gpu in _chosen(all_of(seen), chosen) if usable(gpu)]
    return 1 if any(gpu.get("mig") for gpu in left) else len(left)


def all_of(seen: NvmlAnswers) -> list[dict[str, Any]]:
    """Those that have not answered yet are taken to be well."""
    return [*seen.gpus, *({"index": index} for index in range(len(seen.gpus), seen.count))]


def _chosen(gpus: list[dict[str, Any]], chosen: str | None) -> list[dict[str, Any]]:
    """CUDA takes names up to the first that is none, or fits several."""
    if chosen is None:
        return gpus
    left: list[dict[str, Any]] = []
    for name in chosen.split(","):
        found = [gpu for gpu in gpus if _is_called(gpu, name.strip())]
        if len(found) != 1:
            break
        left += found
    return left


def _is_called(gpu: dict[str, Any], name: str) -> bool:
    """By its index, or by the beginning of its UUID or of an instance's; older drivers name instances by their GPU."""
    instances = [str(one["uuid"]) for one in gpu.get("mig") or []]
    uuids = [str(gpu.get("uuid") or ""), *instances, *([f"MIG-{gpu.get('uuid')}/"] if instances else [])]
    if name.startswith("MIG-GPU-"):
        return any(uuid.endswith("/") and name.startswith(uuid) for uuid in uuids)
    return name == str(gpu["index"]) or (name.startswith(("GPU-", "MIG-")) and any(u.startswith(name) for u in uuids))
