"""A GPU, from NVML to the screens: what it is, its readings, the processes on it, and its MIG instances. The fields are
those in a `gpu` event, under the names in its JSON. A value that is not known is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from .units import HOUR, since

G = TypeVar("G", bound="Gpu")
T = TypeVar("T")
VISIBLE = "CUDA_VISIBLE_DEVICES"
TAKEN_BYTES, TAKEN_SHARE = 1024**3, 0.1  # more than the driver itself uses
IDLE_HOURS = 2  # from which on a process is named as idle
_MPS = "nvidia-cuda-mps"  # its server holds the GPU, and takes many processes
# Programs that draw a screen: X and Wayland, compositors, and browsers.
_DESKTOP = re.compile(
    r"(X|Xorg|Xwayland|sway|weston|Hyprland|xfwm4|picom|compiz|cosmic-comp|gamescope|firefox|electron|brave|opera)$"
    r"|(gnome-shell|mutter|kwin|plasmashell|cinnamon|chrome|chromium|firefox-|msedge|vivaldi|Isolated Web|Web Content"
    r"|WebKit)"
)


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. The fields after `type` are None if the system hides them, for the reason `hidden`."""

    pid: int
    user: str | None = None
    name: str | None = None
    memory_used_bytes: int | None = None
    type: str | None = None  # of nvidia-smi: C computes, G draws, C+G does both
    own: bool | None = None  # it is the training's
    hidden: str = ""
    command: str | None = None
    started: float | None = None  # Unix time
    cpu_seconds: float | None = None  # CPU time in all
    use: float | None = None  # the share of the last second in which it used the GPU
    idle_seconds: float | None = None  # since it last worked
    idle_at_least: bool = True  # it has not worked since it was first seen: it may have been idle before

    def __str__(self) -> str:
        what = f"{self.user}'s {self.name or 'process'}" if self.user else f"process {self.pid}"
        begin = f" {since(self.started)}" if self.started else ""
        return f"{what}{begin}" + (f", idle for {self.idle_hours} h" if self.idle_hours else "")

    @property
    def title(self) -> str:
        """Its name and id, such as `python 4711`."""
        return f"{self.name or 'process'} {self.pid}"

    @property
    def program(self) -> str | None:
        return self.command or self.name

    @property
    def idle_hours(self) -> int:
        """Full hours, if at least IDLE_HOURS; else 0, also if not known."""
        hours = int((self.idle_seconds or 0.0) // HOUR)
        return hours if hours >= IDLE_HOURS else 0

    @property
    def is_mps(self) -> bool:
        return (self.name or "").startswith(_MPS)

    @property
    def computes(self) -> bool:
        """False for a program of the desktop, which often has both types, and for MPS, which computes for others."""
        is_desktop = self.type == "C+G" and _DESKTOP.match(self.name or "")
        return self.type != "G" and not self.is_mps and not is_desktop


@dataclass(frozen=True)
class MigInstance:
    """A part of a GPU in MIG mode, which works as a GPU of its own."""

    uuid: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    gpu_instance: int | None = None  # the driver's id
    processes: Sequence[GpuProcess] | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


@dataclass(frozen=True)
class NvLink:
    """The traffic over all NVLinks of a GPU."""

    links: int | None = None
    rx_bytes_per_second: float | None = None
    tx_bytes_per_second: float | None = None


@dataclass(frozen=True)
class EccErrors:
    """The memory errors since the driver was loaded."""

    corrected: int | None = None
    uncorrected: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU at one moment, or with `instance` one of its MIG instances as a GPU of its own. Shares are 0 to 1; totals
    count since the driver was loaded. The figures are declared in figures.GPU.
    """

    index: int = 0  # NVML's
    uuid: str | None = None
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # by any program
    busy: float | None = None  # the share of the time in which a kernel ran
    processes: Sequence[GpuProcess] | None = None
    mig: Sequence[MigInstance] | Literal["unknown"] | None = "unknown"  # the MIG instances; None: not in MIG mode
    multiprocessors: int | None = None
    pci_bus_id: str | None = None
    exclusive: bool = False  # its compute mode lets only one process compute
    prohibited: bool = False  # its compute mode lets no process compute
    instance: int | None = None  # the position (from 0) of a MIG instance among those of its GPU
    card: str | None = None  # of a MIG instance: the UUID of the whole GPU
    missing: str | None = None  # why there is no reading
    lost_since: float | None = None  # Unix time since which the GPU does not answer
    reasons: Mapping[str, str] | None = None  # why readings are missing, by name (`*`: all)
    memory_busy: float | None = None
    memory_reserved_bytes: int | None = None
    memory_used_counts_reserved: bool = False  # an older driver counts reserved memory as used
    shared_with_host: bool = False  # its memory is the memory of the host
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    energy_j: float | None = None
    slowed_by_power_seconds: float | None = None
    slowed_by_heat_seconds: float | None = None
    slowed_by_board_limit_seconds: float | None = None
    slowed_by_reliability_limit_seconds: float | None = None
    slowed_by_sync_boost_seconds: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: Sequence[str] | None = None  # reasons why the chip is slowed down
    clocks_set_by: Sequence[str] | None = None
    pstate: float | None = None
    ecc_errors: EccErrors | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_rx_bytes_per_second: float | None = None
    pcie_tx_bytes_per_second: float | None = None
    nvlink: NvLink | None = None

    def __str__(self) -> str:
        return f"GPU {self.index}" + (f" ({self.name})" if self.name else "")

    @property
    def number(self) -> str:
        """Its number as text, of a MIG instance with its position: `0`, or `0:1` as in NVIDIA's container toolkit."""
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance}"

    @property
    def key(self) -> str:
        """The name of its lease: the UUID, or the index if the driver reports none."""
        return self.uuid or str(self.index)

    @property
    def lost(self) -> str:
        """Why the GPU no longer answers; empty if it does, or was never read."""
        return (self.missing or "") if (self.reasons or {}).get("*") == "lost" else ""

    @property
    def in_mig_mode(self) -> bool:
        return self.instance is not None or self.instances is not None

    @property
    def instances(self) -> Sequence[MigInstance] | None:
        """Its MIG instances; None if it is not in MIG mode, or if that is not known."""
        return None if self.mig is None or isinstance(self.mig, str) else self.mig

    @property
    def parts(self) -> tuple[Gpu, ...]:
        """The devices that CUDA can compute on: the GPU itself or, in MIG mode, its instances."""
        if self.instances is None:
            return (self,)
        return tuple(
            replace(
                self, uuid=part.uuid, card=self.uuid, instance=place, mig=None, processes=part.processes,
                memory_total_bytes=part.memory_total_bytes, memory_used_bytes=part.memory_used_bytes,
                busy=part.sm_active,  # the driver reports no load of an instance; from Hopper on its activity
                sm_active=part.sm_active, tensor_active=part.tensor_active, dram_active=part.dram_active,
            )
            for place, part in enumerate(self.instances)
        )  # fmt: skip

    @property
    def free_bytes(self) -> int:
        return max(0, (self.memory_total_bytes or 0) - (self.memory_used_bytes or 0))

    @property
    def is_taken(self) -> bool:
        """True if a considerable part of its memory is in use: 1 GiB and a tenth of it. False in MIG mode."""
        return not self.in_mig_mode and is_taken(self.memory_used_bytes, self.memory_total_bytes)

    def value(self, figure: str) -> float | None:
        """Return the value of a figure of figures.GPU; None if it is not known, or no number."""
        if figure.startswith(("nvlink_", "ecc_")):
            group, _, name = figure.partition("_")
            value = getattr(self.nvlink if group == "nvlink" else self.ecc_errors, name, None)
        else:
            value = getattr(self, figure, None)
        return value if isinstance(value, int | float) else None

    # ---- its form in JSON ------------------------------------------------------------------------

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Gpu:
        """The types of `content` have been checked. A field that is not declared goes along to `as_json`."""
        return _filled(cls, content)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of a `gpu` event, in which all but the main values are left out if not known."""
        content: dict[str, Any] = _json(self)
        return content


@dataclass(frozen=True)
class TrainingGpu:
    """A GPU that trains, as TensorFlow has opened it. A value that neither it nor the driver reports is None."""

    device: str = ""  # TensorFlow's name of the first logical device on it
    pci_bus_id: str | None = None
    uuid: str | None = None
    index: int | None = None  # NVML's
    name: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_limit_bytes: int | None = None  # that TensorFlow may take, for all logical devices on it together
    memory_total_bytes: int | None = None
    mig: bool = False  # a MIG instance of a GPU

    @property
    def id(self) -> str:
        """The UUID. Without NVML it is the PCI address, and if that is unknown TensorFlow's name."""
        return self.uuid or self.pci_bus_id or self.device

    @property
    def place(self) -> int | None:
        """The number of its first logical device among those of TensorFlow; None if it is not known."""
        number = self.device.rpartition("GPU:")[2]
        return int(number) if number.isdigit() else None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainingGpu:
        return _filled(cls, content)

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))


def is_taken(used: int | None, total: int | None) -> bool:
    """True for at least 1 GiB and more than a tenth of the bytes; False if they are not known. A driver uses less."""
    return used is not None and bool(total) and used >= TAKEN_BYTES and used > TAKEN_SHARE * (total or 0)


def sole_holder(gpu: Gpu) -> str:
    """The process that excludes all others from a GPU in exclusive mode; empty without one, or if MPS shares it."""
    holders = gpu.processes or ()
    is_alone = gpu.exclusive and holders and not any(process.is_mps for process in holders)
    return holders[0].title if is_alone else ""


def extended(kind: type[G], gpu: Gpu, **more: Any) -> G:
    """Return the GPU as one of the subclass `kind`, whose further fields are `more`."""
    return kind(**{each.name: getattr(gpu, each.name) for each in fields(Gpu)}, **more)


# The fields that are written also if they are None: of a GPU only if it could be read.
CORE = (
    "uuid", "name", "pci_bus_id", "busy", "memory_used_bytes", "memory_total_bytes", "temperature_c", "power_w",
    "power_limit_w", "sm_clock_mhz", "memory_clock_mhz", "throttle", "pstate",
)  # fmt: skip
_ALWAYS: Mapping[type, tuple[str, ...]] = {
    GpuProcess: ("pid", "memory_used_bytes", "type", "name", "own", "user"),
    MigInstance: ("uuid", "gpu_instance", "memory_used_bytes", "memory_total_bytes"),
    NvLink: ("links", "rx_bytes_per_second", "tx_bytes_per_second"),
    EccErrors: ("corrected", "uncorrected"),
    Gpu: ("index",),
}
_UNDECLARED = object()


def _json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if (always := _ALWAYS.get(type(value))) is None:
        return value
    always += CORE if isinstance(value, Gpu) and not value.missing else ()
    return {
        name: _json(item)
        for name, item in vars(value).items()
        if name in always or item != getattr(type(value), name, _UNDECLARED)
    }


# Fields that are no plain values: the class of a mapping or of the items of a list, None for a list of plain values.
_WITHIN: Mapping[str, type | None] = {
    "processes": GpuProcess, "mig": MigInstance, "ecc_errors": EccErrors, "nvlink": NvLink, "compute_capability": None,
    "throttle": None, "clocks_set_by": None,
}  # fmt: skip


def _filled(kind: type[T], content: Mapping[str, Any]) -> T:
    filled = object.__new__(kind)  # four times as fast as the constructor; absent fields have the defaults of the class
    values = vars(filled)
    values.update(content)
    for name in _WITHIN.keys() & values.keys():
        item, within = values[name], _WITHIN[name]
        if isinstance(item, list):
            values[name] = tuple(_filled(within, each) for each in item) if within else tuple(item)
        elif isinstance(item, dict) and within:
            values[name] = _filled(within, item)
    return filled
