"""The devices of this machine as the queue sees them: which are free, and which an entry could use.
Deferred imports: GPUs are looked at only if an entry waits for one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..gpu import Gpu
from ..leases import records
from ..leases.records import CPU as CPU
from ..leases.records import Holder, NotFree
from ..options import gpu_choice
from ..units import size
from .entries import Device, Entry
from .queue_settings import Settings

if TYPE_CHECKING:
    from ..leases.gpu_use import GpuWatch, IdleNotes


class DeviceReader:
    """A GPU is free if it was in all readings of the last `idle_seconds` (None: the machine's default, 20 s)."""

    def __init__(self) -> None:
        self.idle_seconds: float | None = None  # the usual seconds
        self._free_since: dict[str, float] = {}
        self._last: tuple[Device, ...] = ()
        self._watch: GpuWatch | None = None
        self._notes: IdleNotes | None = None

    def __call__(self) -> tuple[Device, ...]:
        """The GPUs by number, and the CPU last. If GPUs cannot be read, the last ones are returned as not free."""
        from ..leases import gpu_use

        self._watch = self._watch or gpu_use.GpuWatch()
        self._notes = self._notes or gpu_use.IdleNotes()
        try:
            uses = self._notes.of(self._watch.read())
        except NotFree as fault:  # also if there is no driver
            return (*(replace(device, holder=str(fault), shut=str(fault)) for device in self._last), _cpu())
        now, least = time.monotonic(), self.idle_seconds
        least = gpu_use.idle_seconds() if least is None else least
        self._last = ()
        for use in uses:
            why = use.why_not_free()
            since = self._free_since.setdefault(use.key, now) if not why else self._free_since.pop(use.key, now)
            settles = not why and now - since < least
            if settles:
                why = f"must stay idle for {least:.0f} s first"
            shut = use.missing or (str(use.holder) if use.leased else "")
            per_gpu, places = (use.holder.per_gpu, use.holder.places) if use.holder is not None else (1, "")
            per_gpu = 1 if why and use.why_not_sharing(per_gpu) else per_gpu
            run = _own_run(use.holder)
            self._last += (Device(use, why, shut, use.strangers, settles, run, per_gpu, places),)
        return (*self._last, _cpu())

    def close(self) -> None:
        """Close NVML until the next call, so that a GPU can be reset meanwhile."""
        if self._watch is not None:
            self._watch.close()


def _cpu() -> Device:
    who = records.holder(CPU)
    return Device(holder=f"used by {who}" if who else "", shut=str(who or ""), run=_own_run(who))


def _own_run(who: Holder | None) -> str:
    is_own = who is not None and not who.stuck and who.user == records.user_name(os.geteuid())
    return who.run if who is not None and is_own else ""


def usable(entry: Entry, devices: Sequence[Device]) -> list[Device]:
    """The devices that an entry could use, free or not; the CPU if it needs it, or without a GPU."""
    gpus = [(device, device.gpu) for device in devices if device.gpu is not None]
    if entry.needs == CPU or not gpus:
        return [device for device in devices if device.gpu is None]
    if choice := gpu_choice.parse(entry.needs):
        return [
            device
            for device, gpu in gpus
            if (not entry.among or gpu.key in entry.among)
            and choice.allows(gpu.name, gpu.memory_total_bytes)
            and (choice.count == 1 or gpu.instance is None)
        ]
    if entry.needs == "all":
        return next(([device] for device, gpu in gpus if gpu.instance is not None), [device for device, _ in gpus])
    named = entry.needs.split(",")
    return [device for device, gpu in gpus if gpu.key in named or (str(gpu.index) in named and not gpu.instance)]


def shown_at_once(devices: Sequence[Device]) -> int:
    """How many GPUs CUDA shows to one process: one if there are MIG instances, else all."""
    gpus = [device.gpu for device in devices if device.gpu is not None]
    return 1 if any(gpu.instance is not None for gpu in gpus) else len(gpus)


def allowed(devices: Sequence[Device], settings: Settings) -> list[Device]:
    """The devices that queue.yaml does not forbid; those of its `gpus` come first, in its order."""
    order = settings.gpus
    places = {device.name: _place(device, order) for device in devices}
    able = [device for device in devices if _place(device, settings.never) is None]
    return sorted(able, key=lambda device: len(order) if (at := places[device.name]) is None else at)


def _place(device: Device, named: Sequence[str]) -> int | None:
    names = (device.name, device.gpu and str(device.gpu.index))
    return next((at for at, name in enumerate(named) if name in names), None)


def why_not(entry: Entry, device: Device) -> str:
    """Return why an entry cannot start on a device now; empty if it can."""
    choice = gpu_choice.parse(entry.needs)
    if device.gpu is None and entry.anyway:
        return ""
    if device.gpu is None or choice is None or not choice.shared:
        return device.holder
    if not device.shut and entry.bytes is not None and device.gpu.free_bytes < entry.bytes:
        return f"{size(device.gpu.free_bytes)} of its memory are free"
    return device.shut


def has_room(entry: Entry, device: Device, begun: Sequence[Entry]) -> bool:
    """None has `begun` on the device, or fewer runs than share it in the same number, and nobody else is on it."""
    if not begun:
        return not why_not(entry, device)
    same = entry.per_gpu > 1 and device.gpu is not None and all(other.per_gpu == entry.per_gpu for other in begun)
    return same and len(begun) < entry.per_gpu and (not device.holder or device.per_gpu == entry.per_gpu)


def count(entry: Entry, gpus: int) -> int:
    """How many devices an entry needs at once on a machine with `gpus` GPUs; without a GPU 1, the CPU."""
    if entry.needs == CPU or not gpus:
        return 1
    choice = gpu_choice.parse(entry.needs)
    return choice.count if choice else gpus if entry.needs == "all" else len(entry.needs.split(","))


def needs_text(entry: Entry, gpus: int) -> str:
    """Which devices an entry needs, such as `2 GPUs`, on a machine with `gpus` GPUs (no matter in Slurm)."""
    if entry.needs == CPU or not (gpus or entry.is_of_slurm):
        return "the CPU"
    if entry.is_of_slurm and entry.needs == "all":
        return "the GPUs of its job"
    if choice := gpu_choice.parse(entry.needs):
        place = f"1 of {entry.per_gpu} places on " if entry.per_gpu > 1 else ""
        return place + choice.kind + (f" with {size(entry.bytes)} free" if choice.shared and entry.bytes else "")
    if entry.needs == "all":
        return "its GPU" if gpus == 1 else f"all {gpus} GPUs"
    return ", ".join(f"GPU {name}" for name in entry.needs.split(","))


def needs_in_full(entry: Entry, gpus: int) -> str:
    """Return `needs_text`, and from what the memory is predicted, if it was not measured."""
    return needs_text(entry, gpus) + (f" ({entry.prediction})" if entry.prediction and gpus else "")


def why_busy(entry: Entry, devices: Collection[Device], kept: Collection[str]) -> str:
    """At most three devices are named, the others counted. `kept` are kept for an entry before this one."""
    words = []
    for device in devices:
        if device.name in kept:
            words.append(f"{device} is kept for a run before it")
        elif why := why_not(replace(entry, anyway=False), device):
            words.append(why if device.gpu is None else f"{device}: {why}")
    return "; ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


def as_news(devices: Sequence[Device]) -> list[Device]:
    """Return what views need of the devices: it changes only if one is taken or freed, so that the file rarely does."""
    return [
        Device(
            gpu=gpu and Gpu(gpu.index, gpu.uuid, gpu.name, memory_total_bytes=gpu.memory_total_bytes,
                            instance=gpu.instance),
            holder="taken" if each.holder and not each.settles else "",
            run=each.run,
        )
        for each in devices
        for gpu in (each.gpu,)
    ]  # fmt: skip
