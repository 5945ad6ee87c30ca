"""Which GPUs CUDA shows to a process, by CUDA_VISIBLE_DEVICES and MIG.

The rules, with their sources:

- If the variable is not set, CUDA shows all GPUs; if it is empty, none. An identifier that fits no GPU ends the list:
  `0,-1,1` shows only GPU 0. GPUs come in the order of the list. A UUID may be shortened if it still fits only one GPU.
  A MIG instance is named by its UUID, with older drivers by `MIG-<GPU UUID>/<GPU instance>/<compute instance>` (CUDA
  Programming Guide, 5.2.1.1 CUDA_VISIBLE_DEVICES).
- If a MIG instance is shown, it is the only device: no other instance and no whole GPU is shown. If a GPU in MIG mode
  is named as a whole, its first instance is shown (NVIDIA MIG User Guide, "CUDA Device Enumeration").
- The first identifier decides between indexes, GPU UUIDs and MIG UUIDs: an identifier of another kind ends the list. If
  an identifier names a GPU for the second time, no GPU is shown at all (not documented by NVIDIA; PyTorch's
  torch/cuda/__init__.py, `_parse_visible_devices`, follows the driver in this).

Indexes are in PCI order, as NVML's are. CUDA counts so only with CUDA_DEVICE_ORDER=PCI_BUS_ID, which gputui sets for
the trainers that it starts; by CUDA's default, FASTEST_FIRST, GPU 0 is the fastest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = ("", "-1", "NoDevFiles")  # the last is Slurm's
_INDEX = re.compile(r"\+?[0-9]+")
_OLDER_INSTANCE = "MIG-GPU-"


@dataclass(frozen=True)
class Device:
    """A GPU of the machine. `instances` are the UUIDs of its MIG instances, None if it is not in MIG mode."""

    index: int
    uuid: str | None = None
    instances: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Shown:
    """A GPU that CUDA shows. `index` is NVML's index.

    `instance` is the position (from 0) of the shown instance among the GPU's MIG instances, None for a whole GPU.
    """

    index: int
    instance: int | None = None


def visible(value: str | None, devices: Sequence[Device]) -> list[Shown]:
    """Return the GPUs that CUDA shows, in CUDA's order.

    `value` is that of CUDA_VISIBLE_DEVICES, None if it is not set.
    """
    if value is None:
        shown = [whole for device in devices if (whole := _whole(device))]
    else:
        shown = _named([name.strip() for name in value.split(",")], devices)
    instances = [gpu for gpu in shown if gpu.instance is not None]
    return instances[:1] or shown


def named(value: str | None, devices: Sequence[Device]) -> list[Shown]:
    """Return the GPUs and MIG instances of which one process could be shown some: those that `value` names, None for
    all. A GPU in MIG mode that is named as a whole stands for all its instances.
    """
    if value is None:
        return [part for device in devices for part in _parts(device)]
    names = [name.strip() for name in value.split(",")]
    by_index = {device.index: device for device in devices}
    pairs = zip(names, _named(names, devices), strict=False)
    return [
        part
        for name, shown in pairs
        for part in ([shown] if name.startswith("MIG-") else _parts(by_index[shown.index]))
    ]


def _parts(device: Device) -> list[Shown]:
    if device.instances is None:
        return [Shown(device.index)]
    return [Shown(device.index, place) for place in range(len(device.instances))]


def hides_all(value: str | None) -> bool:
    """Return True if this value of CUDA_VISIBLE_DEVICES hides all GPUs on purpose: it is or begins with an empty name,
    -1 or NoDevFiles.
    """
    return value is not None and value.split(",")[0].strip() in _NONE


def is_index(name: str) -> bool:
    return _INDEX.fullmatch(name) is not None


def stops_at(value: str, devices: Sequence[Device]) -> str:
    """Return the first identifier in `value` (CUDA_VISIBLE_DEVICES) that CUDA refuses on a machine with these devices;
    empty if it refuses none.

    CUDA then also ignores all later ones. An identifier such as -1, which ends the list on purpose, is not returned.
    """
    names = [name.strip() for name in value.split(",")]
    for place, name in enumerate(names):
        if name in _NONE:
            return ""
        if len(_named(names[: place + 1], devices)) <= place:
            return name
    return ""


def _named(names: Sequence[str], devices: Sequence[Device]) -> list[Shown]:
    shown: dict[Any, Shown] = {}
    for name in names:
        device = find(name, devices) if _kind(name) == _kind(names[0]) else None
        if device is None:
            break
        repeated = name if name.startswith(_OLDER_INSTANCE) else device  # an older name may mean any of the instances
        if repeated in shown:
            return []
        shown[repeated] = device
    return list(shown.values())


def _kind(name: str) -> str:
    return name[:4] if name.startswith(("GPU-", "MIG-")) else "index"


def find(name: str, devices: Iterable[Device]) -> Shown | None:
    """Return the only GPU or MIG instance with this name (index, or UUID or its begin); None if there is none or
    several.

    A GPU in MIG mode that is named as a whole gives its first instance.
    """
    if is_index(name):
        matching = [_whole(device) for device in devices if device.index == int(name)]
    elif name.startswith(_OLDER_INSTANCE):
        uuid = name.removeprefix("MIG-").partition("/")[0]
        matching = [_whole(device) for device in devices if device.instances and device.uuid == uuid]
    elif name.startswith("GPU-"):
        matching = [_whole(device) for device in devices if device.uuid and device.uuid.startswith(name)]
    elif name.startswith("MIG-"):
        matching = [
            Shown(device.index, place)
            for device in devices
            for place, uuid in enumerate(device.instances or ())
            if uuid.startswith(name)
        ]
    else:
        return None
    return matching[0] if len(matching) == 1 else None


def _whole(device: Device) -> Shown | None:
    """Return a GPU that is named as a whole, in MIG mode its first instance; None for a GPU in MIG mode without an
    instance.
    """
    if device.instances is None:
        return Shown(device.index)
    return Shown(device.index, 0) if device.instances else None
