"""The questions that NVML is asked about a GPU, with one function per generation of drivers, the newest first. It
returns values, or a Reason for one that the driver marks as not available by the largest number of its type, or raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pynvml

from ...gpu import EccErrors, GpuProcess, MigInstance
from ..chips import multiprocessors
from .reasons import Reason, or_none

Handle = Any
Values = dict[str, Any]
Way = Callable[[Handle], Values]

_GPU_INSTANCES: dict[str, int | None] = {}
NOT_AVAILABLE = (2**64 - 1, 2**32 - 1)

# From nvml.h, "nvmlClocksEventReasons": the bits that mean the chip runs slower than it could. The last two are in the
# older list of the same numbers only ("nvmlClocksThrottleReasons").
THROTTLE_REASONS = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000010: "sync boost",
    0x0000000000000020: "software thermal",
    0x0000000000000040: "hardware thermal",
    0x0000000000000080: "power brake",
    0x0000000000000200: "board limit",
    0x0000000000000400: "reliability limit",
}
# From the same list: somebody has set the clocks, which is no problem. Bit 0x1, idle, is known from `busy`.
CLOCK_SETTINGS = {0x0000000000000002: "application clocks", 0x0000000000000100: "display clocks"}
_REASONS = (THROTTLE_REASONS, CLOCK_SETTINGS)


@dataclass(frozen=True)
class Question:
    """A question to NVML for the figures `keys`: `ways` may answer it, the newest first. If `slow`, it is asked only at
    slow readings.
    """

    keys: tuple[str, ...]
    ways: tuple[Way, ...]
    slow: bool = False


def known(raw: Any) -> Any:
    """Reason.UNSUPPORTED for None and for the largest number of its type, NVML's mark for "not available"."""
    return Reason.UNSUPPORTED if raw is None or raw in NOT_AVAILABLE else raw


def text(function: Callable[[Handle], Any], gpu: Handle) -> str:
    """Bytes that are not UTF-8 are replaced, where `pynvml` itself would fail."""
    raw = getattr(function, "__wrapped__", function)(gpu)
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def names(gpu: Handle) -> Values:
    """Return `uuid`, `name` and `pci_bus_id`, which never change; a value is None if the driver does not report it."""
    return {
        "uuid": or_none(lambda: text(pynvml.nvmlDeviceGetUUID, gpu)),
        "name": or_none(lambda: text(pynvml.nvmlDeviceGetName, gpu)),
        "pci_bus_id": or_none(lambda: text(lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId, gpu)),
    }


def chip(gpu: Handle) -> Values:
    """`compute_capability` (major, minor) and `multiprocessors`, which never change; None if not known."""
    capability = or_none(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(gpu))
    cores = or_none(lambda: pynvml.nvmlDeviceGetNumGpuCores(gpu))
    return {
        "compute_capability": tuple(capability) if capability else None,
        "multiprocessors": multiprocessors(cores, capability),
    }


def _busy(gpu: Handle) -> Values:
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
    return {"busy": _share(rates.gpu), "memory_busy": _share(rates.memory)}


def _share(raw: Any) -> Any:
    percent = known(raw)
    return percent if isinstance(percent, Reason) else percent / 100 if percent <= 100 else Reason.ERROR


def _memory_v2(gpu: Handle) -> Values:
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
    return _memory(memory) | {"memory_reserved_bytes": known(memory.reserved)}


def _memory_v1(gpu: Handle) -> Values:
    # Of older drivers: reserved memory counts as used.
    values = _memory(pynvml.nvmlDeviceGetMemoryInfo(gpu))
    return values | {"memory_reserved_bytes": Reason.UNSUPPORTED, "memory_used_counts_reserved": True}


def _memory(memory: Any) -> Values:
    return {"memory_used_bytes": known(memory.used), "memory_total_bytes": known(memory.total)}


def _thousandth(raw: Any) -> Any:
    value = known(raw)
    return value if isinstance(value, Reason) else round(value / 1000, 1)


def _figure(key: str, *asks: Callable[[Handle], Any], slow: bool = False, of: Callable[[Any], Any] = known) -> Question:
    """A question for one figure: what `of` makes of the answer of the newest of pynvml's functions that works."""

    def way(ask: Callable[[Handle], Any]) -> Callable[[Handle], Values]:
        return lambda gpu: {key: of(ask(gpu))}

    return Question((key,), tuple(map(way, asks)), slow)


def _slowed(policies: Mapping[str, int]) -> Question:
    """The seconds in which each cause has slowed the GPU, by NVML's number (nvml.h, "violationTime")."""

    def ask(gpu: Handle) -> Values:
        times = {name: known(pynvml.nvmlDeviceGetViolationStatus(gpu, policy).violationTime)
                 for name, policy in policies.items()}  # fmt: skip
        return {
            f"slowed_by_{name}_seconds": value if isinstance(value, Reason) else round(value / 1e9, 3)
            for name, value in times.items()
        }

    return Question(tuple(f"slowed_by_{name}_seconds" for name in policies), (ask,))


def _named(bits: int) -> Values:
    if isinstance(known(bits), Reason):
        return {"throttle": Reason.UNSUPPORTED}
    throttle, settings = ([name for bit, name in names.items() if bits & bit] for names in _REASONS)
    return {"throttle": tuple(throttle)} | ({"clocks_set_by": tuple(settings)} if settings else {})


def _ecc(gpu: Handle) -> Values:
    """An uncorrected error has ended the program that ran."""
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    counts = [pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, pynvml.NVML_VOLATILE_ECC) for kind in kinds]
    return {"ecc_errors": EccErrors(*counts)}


def _processes(gpu: Handle, version: int) -> Values:
    """By this `version` of NVML's functions; one that computes and draws is listed twice by the driver."""
    processes: dict[int, GpuProcess] = {}
    for kind in ("Compute", "Graphics"):
        for process in _running(kind, version, gpu):
            used = known(process.usedGpuMemory)
            listed = GpuProcess(process.pid, memory_used_bytes=None if isinstance(used, Reason) else used, type=kind[0])
            both = replace(processes.get(process.pid, listed), type="C+G")
            processes[process.pid] = both if process.pid in processes else listed
    return {"processes": tuple(processes.values())}


def _running(kind: str, version: int, gpu: Handle) -> Any:
    if version == 3 and _has_long_entries():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}")(gpu)


@cache
def _has_long_entries() -> bool:
    # Drivers 535.43 to 535.86: entries of the `_v3` lists have 32 bytes, of which `pynvml` reads 24 (nvitop, pull
    # request 79).
    driver = or_none(pynvml.nvmlSystemGetDriverVersion) or ""
    return re.match(r"535\.(4[3-9]|[5-7]\d|8[0-6])\b", driver) is not None


def computing(gpu: Handle) -> list[GpuProcess]:
    """Return the processes with a CUDA context; processes that only draw are not included."""
    asked = or_none(lambda: _running("Compute", 3, gpu))
    listed = _running("Compute", 2, gpu) if asked is None else asked
    return [GpuProcess(process.pid) for process in listed]


def _mig_with_processes(gpu: Handle) -> Values:
    # The whole GPU's list has them only for a caller with privileges (nvml.h, nvmlDeviceGetComputeRunningProcesses).
    def processes(instance: Handle) -> Values:
        listed = or_none(lambda: _processes(instance, 3)) or or_none(lambda: _processes(instance, 2))
        return listed or {"processes": None}

    return _instances(gpu, processes)


def _instances(gpu: Handle, more: Way) -> Values:
    # None if the mode is off.
    if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
        return {"mig": None}
    instances = []
    for position in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, position)
        except pynvml.NVMLError_NotFound:
            continue
        uuid = text(pynvml.nvmlDeviceGetUUID, instance)
        about = _instance_memory(instance) | more(instance)
        instances.append(MigInstance(uuid, gpu_instance=_gpu_instance(uuid, instance), **about))
    return {"mig": tuple(instances)}


def _gpu_instance(uuid: str, instance: Handle) -> int | None:
    # Asked only once for each UUID, which is made from the id.
    if uuid not in _GPU_INSTANCES:
        _GPU_INSTANCES[uuid] = or_none(lambda: int(pynvml.nvmlDeviceGetGpuInstanceId(instance)))
    return _GPU_INSTANCES[uuid]


def _instance_memory(instance: Handle) -> Values:
    values = or_none(lambda: _memory(pynvml.nvmlDeviceGetMemoryInfo(instance))) or {}
    return {key: value if isinstance(value := values.get(key), int) else None for key in MEMORY.keys[:2]}


def _pcie(gpu: Handle) -> Values:
    # Each of the two calls blocks for the 20 ms in which it measures.
    received = pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES)
    sent = pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    return {"pcie_rx_bytes_per_second": received * 1024, "pcie_tx_bytes_per_second": sent * 1024}


EXCLUSIVE = (pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
BUSY = Question(("busy", "memory_busy"), (_busy,))
MEMORY = Question(("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes"), (_memory_v2, _memory_v1))
MIG = Question(("mig",), (lambda gpu: _instances(gpu, lambda _instance: {}),), slow=True)
MIG_PROCESSES = Question(("mig",), (_mig_with_processes,), slow=True)  # in place of MIG, if processes are asked for
PROCESSES = Question(("processes",), (lambda gpu: _processes(gpu, 3), lambda gpu: _processes(gpu, 2)), slow=True)
_RARE_POLICIES = {
    "board_limit": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    "reliability_limit": pynvml.NVML_PERF_POLICY_RELIABILITY,
    "sync_boost": pynvml.NVML_PERF_POLICY_SYNC_BOOST,
}
# That a chip does not count one of these is no news: such a reason would lengthen each reading.
RARE = frozenset(f"slowed_by_{name}_seconds" for name in _RARE_POLICIES)
QUESTIONS = (
    BUSY,
    MEMORY,
    _figure(
        "temperature_c",
        lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        lambda gpu: pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),
    ),
    _figure("power_w", lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu), of=_thousandth),
    _figure("power_limit_w", lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu), slow=True, of=_thousandth),
    _figure("power_limit_default_w", lambda gpu: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu), slow=True,
            of=_thousandth),
    # Chips have the counter from Volta on.
    _figure("energy_j", lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu), of=_thousandth),
    _slowed({"power": pynvml.NVML_PERF_POLICY_POWER, "heat": pynvml.NVML_PERF_POLICY_THERMAL}),
    # Chips answer some of these only.
    *(replace(_slowed({name: policy}), slow=True) for name, policy in _RARE_POLICIES.items()),
    _figure("sm_clock_mhz", lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
    _figure("max_sm_clock_mhz", lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM), slow=True),
    _figure("memory_clock_mhz", lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM)),
    Question(("throttle",), (
        lambda gpu: _named(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
        lambda gpu: _named(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),  # before R535
    )),
    _figure("pstate", lambda gpu: pynvml.nvmlDeviceGetPerformanceState(gpu),
            of=lambda state: state if 0 <= state <= 15 else Reason.UNSUPPORTED),
    Question(("ecc_errors",), (_ecc,), slow=True),
    PROCESSES,
    MIG,
)  # fmt: skip
PCIE = Question(("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"), (_pcie,), slow=True)
