"""The last reading of a GPU as plain fields, each a value or the reason why there is none, with TensorFlow's figures.
Readings come from the events of engine/telemetry/nvml/gpu_reader.py. Fields of a wrong type count as absent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from ....engine.figures import GPU
from ....engine.files.values import EMPTY, mapping, moment, number
from ....engine.telemetry.gpu_totals import CAUSES, MEANS, GpuTotals
from .series import NOTHING, Line

NOT_ASKED = "not asked"
FREE = "free"  # the lease of a GPU that a start may have


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU; fields are None if the driver or the system does not report them. `own`: it belongs to the
    run, None with the reason `hidden`. `use`: share of time on the chip, 0 to 1. `idle_at_least`: idle since the first
    reading, perhaps longer. `cpu_seconds`: CPU time in all. `type`: `C` computes, `G` draws, `C+G` both."""

    pid: int
    name: str | None = None
    memory_used_bytes: float | None = None
    own: bool | None = None
    user: str | None = None
    command: str | None = None
    started: float | None = None
    use: float | None = None
    idle_seconds: float | None = None
    idle_at_least: bool = True
    hidden: str = ""
    cpu_seconds: float | None = None
    type: str | None = None

    @property
    def program(self) -> str | None:
        return self.command or self.name


@dataclass(frozen=True)
class Instance:
    """A partition of a GPU (MIG). `processes` is None if the driver does not list them."""

    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    uuid: str = ""
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True)
class Gpu:
    """The last reading of a GPU, or with `mean` the means while the run trained. `missing`: why readings have stopped;
    `reasons`: why a figure has no value. `counts_reserved`: used memory includes the driver's. `mig`: instances, None
    unless in MIG mode or, if not `mig_off`, unknown. `tf_*`: bytes of TensorFlow's allocator. `energy_wh` and `slowed`
    (share, 0 to 1, of each cause): since the first reading. `more`: declared figures without a field."""

    index: int
    name: str | None = None
    busy: float | None = None
    memory_busy: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    pstate: float | None = None
    throttle: tuple[str, ...] | None = None
    clocks_set_by: tuple[str, ...] | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_rx_bytes_per_second: float | None = None
    pcie_tx_bytes_per_second: float | None = None
    nvlink_links: float | None = None
    nvlink_rx_bytes_per_second: float | None = None
    nvlink_tx_bytes_per_second: float | None = None
    ecc_corrected: float | None = None
    ecc_uncorrected: float | None = None
    mig: tuple[Instance, ...] | None = None
    mig_off: bool = False
    processes: tuple[GpuProcess, ...] | None = None
    reasons: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    missing: str | None = None
    training: bool = False
    shared_with_host: bool = False
    counts_reserved: bool = False
    tf_current_bytes: float | None = None
    tf_peak_bytes: float | None = None
    history: Line = NOTHING
    energy_wh: float | None = None
    slowed: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    uuid: str = ""
    lease: str = ""
    more: Mapping[str, float | None] = field(default_factory=lambda: EMPTY)
    mean: bool = False

    def value(self, figure: str) -> float | None:
        """Return the value of a declared figure (figures.GPU), from the field of this name or from `more`; None without
        one."""
        return number(getattr(self, figure, None)) if figure in _FIELDS else self.more.get(figure)

    @property
    def ours(self) -> bool:
        return self.training or any(process.own for process in self.processes or ())

    def why(self, figure: str) -> str:
        reason = str(self.reasons.get(figure, NOT_ASKED))
        return _REASONS.get(reason, reason.replace("_", " "))


_FIELDS = frozenset(info.name for info in fields(Gpu))
_REASONS = {"unsupported": "not offered"}  # by this GPU or its driver


# What stands elsewhere than at the top of a reading, and what is no number.
_ELSEWHERE = ("throttle", "nvlink_", "ecc_", "tf_")
FIGURES = tuple(key for key in GPU if not key.startswith(_ELSEWHERE))


def read(
    index: int, reading: Mapping[str, Any], name: str | None, used: Sequence[Any], own: Mapping[str, Any], line: Line,
    totals: GpuTotals,
) -> Gpu:  # fmt: skip
    """Return the GPU of NVML's number `index`. `used` are the run's GPUs, `own` TensorFlow's figures, `line` the
    history of busy time, `totals` the sums since the first reading."""
    missing = reading.get("missing")
    links, errors = mapping(reading.get("nvlink")), mapping(reading.get("ecc_errors"))
    return Gpu(
        index,
        name=name,
        uuid=str(reading.get("uuid") or ""),
        lease="",
        throttle=_words(reading.get("throttle")),
        clocks_set_by=_words(reading.get("clocks_set_by")),
        nvlink_links=number(links.get("links")),
        nvlink_rx_bytes_per_second=number(links.get("rx_bytes_per_second")),
        nvlink_tx_bytes_per_second=number(links.get("tx_bytes_per_second")),
        ecc_corrected=number(errors.get("corrected")),
        ecc_uncorrected=number(errors.get("uncorrected")),
        mig=_instances(reading.get("mig")),
        mig_off="mig" in reading and reading["mig"] is None,
        processes=_processes(_listed(reading)),
        reasons=mapping(reading.get("reasons")),
        missing=f"{missing}{_since(reading.get('lost_since'))}" if missing else None,
        training=trains(reading, used),
        shared_with_host=bool(reading.get("shared_with_host")),
        counts_reserved=bool(reading.get("memory_used_counts_reserved")),
        tf_current_bytes=number(own.get("current_bytes")),
        tf_peak_bytes=number(own.get("peak_bytes")),
        history=line,
        energy_wh=totals.energy_wh if totals.counts_energy else None,
        slowed={cause: part for cause in CAUSES if (part := totals.slowed_by(cause)) is not None},
        more={figure: number(reading.get(figure)) for figure in FIGURES if figure not in _FIELDS},
        mean=False,
        **{figure: number(reading.get(figure)) for figure in FIGURES if figure in _FIELDS},
    )


def with_means(gpu: Gpu, training: GpuTotals, memory: Line) -> Gpu:
    """Return the GPU of an ended run with means while it trained: sums of readings, and `memory` in use."""
    means: dict[str, Any] = {key: training.mean(key) for key in MEANS} | {"power_w": training.power_w}
    if means["sm_clock_mhz"] is None:  # it has hardly worked
        means["sm_clock_mhz"] = training.mean("idle sm_clock_mhz")
    return replace(
        gpu,
        mean=True,
        throttle=None,
        memory_used_bytes=max(memory.high or memory.y, default=None),
        tf_current_bytes=None,
        more={**gpu.more, **{key: value for key, value in means.items() if key in gpu.more}},
        **{key: value for key, value in means.items() if key in _FIELDS},
    )


def trains(reading: Mapping[str, Any], used: Sequence[Any]) -> bool:
    """True if the run uses the GPU of this reading. `used` has UUIDs or places on the PCI bus."""
    return any(reading.get(key) in used for key in ("uuid", "pci_bus_id") if reading.get(key))


def _words(listed: Any) -> tuple[str, ...] | None:
    return tuple(str(word) for word in listed) if isinstance(listed, list) else None


def _listed(reading: Mapping[str, Any]) -> Any:
    # Without privileges, the driver lists the processes of an instance only for the instance.
    of_instances = [mapping(instance).get("processes") for instance in reading.get("mig") or ()]
    lists = [listed for listed in (reading.get("processes"), *of_instances) if isinstance(listed, list)]
    by_pid = {mapping(process).get("pid"): process for listed in lists for process in listed}
    return list(by_pid.values()) if lists else None


def _processes(listed: Any) -> tuple[GpuProcess, ...] | None:
    if not isinstance(listed, list):
        return None
    processes = [_process(mapping(process)) for process in listed]
    return tuple(
        sorted(processes, key=lambda process: (not process.own, -(process.memory_used_bytes or 0), process.pid))
    )


def _process(reading: Mapping[str, Any]) -> GpuProcess:
    own = reading.get("own")

    def text(key: str) -> str | None:
        return str(reading[key]) if reading.get(key) else None

    return GpuProcess(
        int(number(reading.get("pid")) or 0),
        text("name"),
        number(reading.get("memory_used_bytes")),
        own if isinstance(own, bool) else None,
        text("user"),
        text("command"),
        number(reading.get("started")),
        number(reading.get("use")),
        number(reading.get("idle_seconds")),
        reading.get("idle_at_least") is not False,
        text("hidden") or "",
        number(reading.get("cpu_seconds")),
        text("type"),
    )


def _instances(listed: Any) -> tuple[Instance, ...] | None:
    if not isinstance(listed, list):
        return None
    return tuple(
        Instance(
            number(instance.get("memory_used_bytes")),
            number(instance.get("memory_total_bytes")),
            str(instance.get("uuid") or ""),
            _processes(instance.get("processes")),
        )
        for instance in map(mapping, listed)
    )


def _since(lost_since: Any) -> str:
    t = moment(lost_since)
    return f" since {time.strftime('%H:%M:%S', time.localtime(t))}" if t else ""


def by_physical_gpu(
    devices: Mapping[str, Any], started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Return TensorFlow's figures by names such as GPU:3 with NVML's number, summed over the logical devices of a
    GPU."""
    parts = int(number(mapping(mapping(started.get("options")).get("device")).get("logical_devices")) or 1)
    numbers = _physical(started, readings, parts)
    totals: dict[str, dict[str, float]] = {}
    for name, figures in devices.items():
        kind, _, position = str(name).partition(":")
        if kind == "GPU" and position.isdigit():
            order = int(position) // parts
            name = f"GPU:{numbers.get(order, order)}"
        total = totals.setdefault(name, {})
        for key, value in mapping(figures).items():
            total[key] = total.get(key, 0) + (number(value) or 0)
    return totals


def _physical(started: Mapping[str, Any], readings: Mapping[int, Mapping[str, Any]], parts: int) -> dict[int, int]:
    """NVML's number by TensorFlow's, from the started event or, if that names no GPUs, from device.visible."""
    cards = {str(reading.get("uuid")): index for index, reading in readings.items()}
    cards |= {str(index): index for index in readings}
    devices = started.get("gpu_devices")
    opened = [mapping(device) for device in devices] if isinstance(devices, list) else []
    if order_to_card := {order: cards[name] for device in opened if (name := str(device.get("uuid"))) in cards
                 if (order := _order(device, parts)) is not None}:  # fmt: skip
        return order_to_card
    used, visible = started.get("gpus"), mapping(mapping(started.get("options")).get("device")).get("visible")
    names = used if isinstance(used, list) and used else visible if isinstance(visible, list) else []
    return {order: cards[str(name)] for order, name in enumerate(names) if str(name) in cards}


def _order(device: Mapping[str, Any], parts: int) -> int | None:
    # The place among the GPUs that TensorFlow has opened, from the name of its first device.
    position = str(device.get("device")).rpartition("GPU:")[2]
    return int(position) // parts if position.isdigit() else None


def numbers(indices: Sequence[int]) -> str:
    """Return numbers as a short text with ranges, such as 0-3,7."""
    runs = [[n for _, n in group] for _, group in groupby(enumerate(sorted(indices)), lambda at: at[1] - at[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
