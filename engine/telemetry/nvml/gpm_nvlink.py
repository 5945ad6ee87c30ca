"""Activity and traffic of a GPU and of its MIG instances, from the best source that answers: GPM (NVIDIA's performance
metrics, from Hopper on), else NVLink's counters and PCIe throughput. A source that the chip, the driver or the
administrator refuses is not asked again until the GPU is opened again, one that has only failed is. GPM and the NVLink
counters give differences of two readings; two samples of GPM, which does not block, must be at least 100 ms apart.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pynvml

from ...gpu import MigInstance, NvLink
from .queries import PCIE, Handle, Values
from .reasons import Code, Reason, or_none, reason_of

R = TypeVar("R")
T = TypeVar("T")
REFUSED = (Reason.UNSUPPORTED, Reason.NO_PERMISSION)


class Flow:
    """The activity and traffic of a GPU, from GPM and NVLink. All methods but `close` raise NVMLError if the GPU is
    lost. If GPM `tells_pcie`, NVML's blocking question for the traffic is not needed.
    """

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self._gpm = Source(lambda: Gpm(gpu))
        self._links = Source(lambda: NvLinkCounters(gpu))
        self.tells_pcie = self._gpm.ask(lambda _: True) not in REFUSED

    def read(self, fresh: bool = True) -> Values:
        """The figures, or a Reason for each: GPM_SHARES, `nvlink` and, if GPM reports it, PCIe. Unless `fresh`, GPM's
        are those of the last reading.
        """
        answer = self._gpm.ask(Gpm.read if fresh else lambda gpm: gpm.last)
        values: Values = dict.fromkeys(GPM_KEYS, answer) if isinstance(answer, Reason) else dict(answer)
        nvlink = self._nvlink(values.pop("nvlink_rx"), values.pop("nvlink_tx"))
        self.tells_pcie = not any(values[key] in REFUSED for key in PCIE.keys)
        if not self.tells_pcie:
            values = {key: value for key, value in values.items() if key not in PCIE.keys}
        return values | nvlink

    def close(self) -> None:
        """Release the driver's memory for GPM."""
        if self._gpm.reader is not None:
            or_none(self._gpm.reader.close)

    def _nvlink(self, received: int | Reason, sent: int | Reason) -> Values:
        """By GPM (bytes per second) or else by the NVLink counters; a Reason if there is neither."""
        if received in REFUSED or sent in REFUSED:
            answer = self._links.ask(NvLinkCounters.read)
        elif Reason.ERROR in (received, sent):
            answer = Reason.ERROR
        else:
            rates = [None if isinstance(value, Reason) else value for value in (received, sent)]
            answer = self._links.ask(lambda links: links.traffic(*rates))
        return {"nvlink": answer} if isinstance(answer, Reason) else answer


class Source(Generic[T]):
    """A reader of figures that `make` creates when the first figure is needed. `refused` is the reason why the reader
    is not asked any more, else None.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.reader: T | None = None
        self.refused: Reason | None = None

    def ask(self, question: Callable[[T], R]) -> R | Reason:
        """The result of `question`, or why there is none. Raises NVML's exception if the GPU is lost."""
        if self.refused is not None:
            return self.refused
        try:
            if self.reader is None:
                self.reader = self._make()
            return question(self.reader)
        except Exception as fault:
            reason = reason_of(fault)
            if reason is Reason.LOST:
                raise
            self.refused = reason if reason in REFUSED else None
            return reason


# ---- GPM and the counters of NVLink --------------------------------------------------------------


GPM_SECONDS = 0.1
ALL_LINKS = 2**32 - 1
MIB, KIB = 1024**2, 1024

# Numbers of the metrics, from nvml.h, "nvmlGpmMetricId_t"; an outdated `pynvml` has no names for them.
_SHARES = {"sm_active": 2, "tensor_active": 5, "dram_active": 10}
_RATES = {  # MiB/s
    "pcie_rx_bytes_per_second": 21,
    "pcie_tx_bytes_per_second": 20,
    "nvlink_rx": 60,
    "nvlink_tx": 61,
}
GPM_SHARES = tuple(_SHARES)
GPM_KEYS = (*_SHARES, *_RATES)


def ask_for_gpm(gpu: Handle) -> bool:
    """True; raises NVMLError (not supported) if the chip has no performance metrics."""
    if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
        raise pynvml.NVMLError(Code.NOT_SUPPORTED)
    return True


class Gpm:
    """The performance metrics (GPM) of one GPU or, if `instance` is the id of one of its GPU instances, of that
    instance.
    """

    def __init__(self, gpu: Handle, instance: int | None = None) -> None:
        if instance is None:
            ask_for_gpm(gpu)  # for all instances it is asked once
        self._instance = instance
        self._gpu, self.last = gpu, dict.fromkeys(GPM_KEYS, Reason.NOT_ASKED)  # the values of the last reading
        self._older, self._newer = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        self._taken: float | None = None
        self._wanted = _SHARES | _RATES
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version, self._request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(self._wanted)
        for position, metric in enumerate(self._wanted.values()):
            self._request.metrics[position].metricId = metric

    def read(self) -> Values:
        """For each of GPM_KEYS the mean since the last reading (a share or bytes per second), or a Reason; within 0.1 s
        those of the last reading.
        """
        now = time.monotonic()
        if self._taken is not None and now - self._taken < GPM_SECONDS:
            return self.last
        self._older, self._newer = self._newer, self._older
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._gpu, self._newer)
        else:
            pynvml.nvmlGpmMigSampleGet(self._gpu, self._instance, self._newer)
        if self._taken is not None:
            self._request.sample1, self._request.sample2 = self._older, self._newer
            pynvml.nvmlGpmMetricsGet(self._request)
            raw = dict(zip(self._wanted, self._request.metrics, strict=False))
            shares = {key: _figure(raw[key], lambda percent: round(min(percent, 100.0) / 100, 3)) for key in _SHARES}
            self.last = shares | {key: _figure(raw[key], lambda mib: int(mib * MIB)) for key in _RATES}
        self._taken = now
        return self.last

    def close(self) -> None:
        for sample in (self._older, self._newer):
            pynvml.nvmlGpmSampleFree(sample)


def _figure(metric: Any, convert: Callable[[float], float]) -> Any:
    # Each metric has its own return code.
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return reason_of(pynvml.NVMLError(metric.nvmlReturn))
    return convert(metric.value) if math.isfinite(metric.value) and metric.value >= 0 else Reason.UNSUPPORTED


class NvLinkCounters:
    """The traffic over all links of one GPU, from its counters. Raises NVMLError if the GPU has no links."""

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self.links = self._fields(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)[0]
        if not self.links:
            raise pynvml.NVMLError(Code.NOT_SUPPORTED)
        self._before: tuple[float, list[int]] | None = None

    def read(self) -> Values:
        """The bytes per second received and sent since the last reading; None at the first."""
        counters = self._fields(
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        )
        now, before = time.monotonic(), self._before
        self._before = (now, counters)
        if before is None or now <= before[0]:
            return self.traffic(None, None)
        received, sent = (
            int((new - old) * KIB / (now - before[0])) if new >= old else None
            for new, old in zip(counters, before[1], strict=True)
        )
        return self.traffic(received, sent)

    def traffic(self, received: int | None, sent: int | None) -> Values:
        return {"nvlink": NvLink(self.links, received, sent)}

    def _fields(self, *fields: Any) -> list[int]:
        values = []
        for field in pynvml.nvmlDeviceGetFieldValues(self._gpu, list(fields)):
            if field.nvmlReturn != pynvml.NVML_SUCCESS:
                raise pynvml.NVMLError(field.nvmlReturn)
            wide = field.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            values.append(field.value.ullVal if wide else field.value.uiVal)
        return values


# ---- the instances of a GPU in MIG mode ----------------------------------------------------------


class Instances:
    """The GPM figures of all instances of a GPU in MIG mode. `read` raises NVMLError if the GPU is lost."""

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self._chip = Source(functools.partial(ask_for_gpm, gpu))  # asked once for all instances
        self._sources: dict[int, Source[Gpm]] = {}  # by the id of the GPU instance, the next one to read first
        self._known: dict[int | None, Values] = {}
        self._left = 0  # instances to read before the turn of the whole GPU

    @property
    def turn_of_the_whole(self) -> bool:
        """True if the next reading is that of the whole GPU, and no instance is read."""
        return self._left <= 0

    def read(self, listed: Sequence[MigInstance]) -> tuple[MigInstance, ...]:
        """The instances with their latest activity (GPM_SHARES). Each call reads one in turn, or the whole GPU."""
        self._follow({instance.gpu_instance for instance in listed if instance.gpu_instance is not None})
        if self.turn_of_the_whole:
            self._left = len(self._sources)
        elif self._sources:
            self._left -= 1
            instance = next(iter(self._sources))
            source = self._sources[instance] = self._sources.pop(instance)
            answer = source.ask(Gpm.read)
            shares = {} if isinstance(answer, Reason) else {key: answer[key] for key in GPM_SHARES}
            self._known[instance] = {key: value for key, value in shares.items() if not isinstance(value, Reason)}
        return tuple(replace(instance, **self._known.get(instance.gpu_instance, {})) for instance in listed)

    def close(self) -> None:
        """Release the driver's memory for GPM."""
        self._follow(set())

    def _follow(self, instances: set[int]) -> None:
        """Readers for new instances, none for those that are gone, or for a chip without GPM."""
        if instances and isinstance(self._chip.ask(lambda _: True), Reason):
            instances = set()
        for gone in self._sources.keys() - instances:
            reader = self._sources.pop(gone).reader
            self._known.pop(gone, None)
            if reader is not None:
                or_none(reader.close)
        for new in sorted(instances - self._sources.keys()):
            self._sources[new] = Source(functools.partial(Gpm, self._gpu, new))
