"""A GPU as views show it: its last reading, with TensorFlow's figures, its history and its lease."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ....engine.files.values import EMPTY, whole
from ....engine.gpu import Gpu, GpuProcess, NvLink, extended
from ....engine.runs.events import Allocator, Started
from ....engine.telemetry.gpu_totals import CAUSES, MEANS, GpuTotals
from .series import NOTHING, Line

NOT_ASKED = "not asked"
FREE = "free"  # the lease of a GPU that a start may have
_REASONS = {"unsupported": "not offered"}  # by this GPU or its driver


@dataclass(frozen=True)
class ShownGpu(Gpu):
    """The last reading of a GPU, or with `mean` the means while the run trained. `tf_*`: bytes of TensorFlow's
    allocator. `energy_wh` and `slowed` (share, 0 to 1, of each cause): since the first reading."""

    training: bool = False
    tf_current_bytes: float | None = None
    tf_peak_bytes: float | None = None
    history: Line = NOTHING
    energy_wh: float | None = None
    slowed: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    lease: str = ""
    mean: bool = False

    @property
    def ours(self) -> bool:
        return self.training or any(process.own for process in self.processes or ())

    def why(self, figure: str) -> str:
        reason = (self.reasons or EMPTY).get(figure, NOT_ASKED)
        return _REASONS.get(reason, reason.replace("_", " "))


def shown(
    gpu: Gpu, name: str | None, used: Sequence[str], own: Mapping[str, float], line: Line, totals: GpuTotals
) -> ShownGpu:
    """Return a GPU with its `name`. `used` are the run's GPUs, `own` TensorFlow's figures, `line` the history of busy
    time, `totals` the sums since the first reading."""
    lost = "" if gpu.lost_since is None else f" since {time.strftime('%H:%M:%S', time.localtime(gpu.lost_since))}"
    return extended(
        ShownGpu,
        replace(gpu, name=name, processes=_processes(gpu), missing=f"{gpu.missing}{lost}" if gpu.missing else None),
        training=trains(gpu, used),
        tf_current_bytes=own.get("current_bytes"),
        tf_peak_bytes=own.get("peak_bytes"),
        history=line,
        energy_wh=totals.energy_wh if totals.counts_energy else None,
        slowed={cause: part for cause in CAUSES if (part := totals.slowed_by(cause)) is not None},
    )


def with_means(gpu: ShownGpu, training: GpuTotals, memory: Line) -> ShownGpu:
    """Return the GPU of an ended run with means while it trained: sums of readings, and `memory` in use."""
    means: dict[str, Any] = {key: training.mean(key) for key in MEANS} | {"power_w": training.power_w}
    if means["sm_clock_mhz"] is None:  # it has hardly worked
        means["sm_clock_mhz"] = training.mean("idle sm_clock_mhz")
    traffic = [means.pop(f"nvlink_{way}_bytes_per_second") for way in ("rx", "tx")]
    return replace(
        gpu,
        mean=True,
        throttle=None,
        memory_used_bytes=max(map(round, memory.high or memory.y), default=None),
        tf_current_bytes=None,
        nvlink=gpu.nvlink and NvLink(gpu.nvlink.links, *traffic),
        **means,
    )


def trains(gpu: Gpu, used: Sequence[str]) -> bool:
    """True if the run uses the GPU of this reading. `used` has UUIDs or places on the PCI bus."""
    return any(name in used for name in (gpu.uuid, gpu.pci_bus_id) if name)


def _processes(gpu: Gpu) -> tuple[GpuProcess, ...] | None:
    # Without privileges, the driver lists the processes of an instance only for the instance.
    lists = [gpu.processes, *(part.processes for part in gpu.instances or ())]
    by_pid = {process.pid: process for listed in lists for process in listed or ()}
    ordered = sorted(by_pid.values(), key=lambda each: (not each.own, -(each.memory_used_bytes or 0), each.pid))
    return None if all(listed is None for listed in lists) else tuple(ordered)


def by_physical_gpu(
    allocator: Allocator | None, started: Started | None, readings: Mapping[int, Gpu]
) -> dict[str, dict[str, float]]:
    """Return TensorFlow's figures by names such as GPU:3 with NVML's number, summed over a GPU's logical devices."""
    parts = (whole(started.option("device.logical_devices")) if started else None) or 1
    numbers = _physical(started, readings, parts) if started else {}
    totals: dict[str, dict[str, float]] = {}
    for name, figures in (allocator.devices if allocator else EMPTY).items():
        kind, _, position = name.partition(":")
        if kind == "GPU" and position.isdigit():
            order = int(position) // parts
            name = f"GPU:{numbers.get(order, order)}"
        total = totals.setdefault(name, {})
        for key, value in figures.items():
            total[key] = total.get(key, 0) + value
    return totals


def _physical(started: Started, readings: Mapping[int, Gpu], parts: int) -> dict[int, int]:
    """NVML's number by TensorFlow's, from the started event or, if that names no GPUs, from device.visible."""
    cards = {str(gpu.uuid): index for index, gpu in readings.items()}
    cards |= {str(index): index for index in readings}
    if order_to_card := {gpu.place // parts: cards[str(gpu.uuid)] for gpu in started.gpu_devices
                         if str(gpu.uuid) in cards and gpu.place is not None}:  # fmt: skip
        return order_to_card
    visible = started.option("device.visible")
    names = started.gpus or (visible if isinstance(visible, list) else ())
    return {order: cards[str(name)] for order, name in enumerate(names) if str(name) in cards}


def numbers(indices: Sequence[int]) -> str:
    """Return numbers as a short text with ranges, such as 0-3,7."""
    runs = [[n for _, n in group] for _, group in groupby(enumerate(sorted(indices)), lambda at: at[1] - at[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
