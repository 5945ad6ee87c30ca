"""Figures that are differences of two readings: GPM (from Hopper on) and the NVLink counters of older chips.

GPM reports activity, PCIe and NVLink traffic with one pair of calls and without blocking; two of its samples must be at
least 100 ms apart. Which of the two sources is read is decided in flow.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pynvml

from .questions import Handle, Values
from .reasons import Code, Reason, reason_of

GPM_SECONDS = 0.1
ALL_LINKS = 2**32 - 1
MIB, KIB = 1024**2, 1024

# Numbers of the metrics, from nvml.h, "nvmlGpmMetricId_t"; an outdated `pynvml` has no names for them.
_SHARES = {
    "sm_active": 2,
    "tensor_active": 5,
    "dram_active": 10,
}
_RATES = {  # MiB/s
    "pcie_rx_bytes_per_second": 21,
    "pcie_tx_bytes_per_second": 20,
    "nvlink_rx": 60,
    "nvlink_tx": 61,
}
GPM_SHARES = tuple(_SHARES)
GPM_KEYS = (*_SHARES, *_RATES)


def ask_for_gpm(gpu: Handle) -> None:
    """Raise NVMLError (not supported) where the chip has no performance metrics."""
    if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
        raise pynvml.NVMLError(Code.NOT_SUPPORTED)


class Gpm:
    """The performance metrics of one GPU that has them, or of a GPU instance of it by its id."""

    def __init__(self, gpu: Handle, instance: int | None = None) -> None:
        self._instance = instance
        self._gpu, self._last = gpu, dict.fromkeys(GPM_KEYS, Reason.NOT_ASKED)
        self._older, self._newer = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        self._taken: float | None = None
        self._wanted = _SHARES | _RATES
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version, self._request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(self._wanted)
        for position, metric in enumerate(self._wanted.values()):
            self._request.metrics[position].metricId = metric

    def last(self) -> Values:
        """The means of the last reading."""
        return self._last

    def read(self) -> Values:
        """Means of each of GPM_KEYS since the last reading; when that is too recent, the same means again."""
        now = time.monotonic()
        if self._taken is not None and now - self._taken < GPM_SECONDS:
            return self._last
        self._older, self._newer = self._newer, self._older
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._gpu, self._newer)
        else:
            pynvml.nvmlGpmMigSampleGet(self._gpu, self._instance, self._newer)
        if self._taken is not None:
            self._last = self._between()
        self._taken = now
        return self._last

    def close(self) -> None:
        for sample in (self._older, self._newer):
            pynvml.nvmlGpmSampleFree(sample)

    def _between(self) -> Values:
        self._request.sample1, self._request.sample2 = self._older, self._newer
        pynvml.nvmlGpmMetricsGet(self._request)
        raw = dict(zip(self._wanted, self._request.metrics, strict=False))
        shares = {key: _figure(raw[key], lambda percent: round(min(percent, 100.0) / 100, 3)) for key in _SHARES}
        return shares | {key: _figure(raw[key], lambda mib: int(mib * MIB)) for key in _RATES}


def _figure(metric: Any, convert: Callable[[float], float]) -> Any:
    """The metric's value, or the reason why it has none; each metric has its own return code."""
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return reason_of(pynvml.NVMLError(metric.nvmlReturn))
    return convert(metric.value) if math.isfinite(metric.value) and metric.value >= 0 else Reason.UNSUPPORTED


class NvLink:
    """Traffic over all links of one GPU, from its counters; raises NVMLError where the GPU has no links."""

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self.links = self._fields(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)[0]
        if not self.links:
            raise pynvml.NVMLError(Code.NOT_SUPPORTED)
        self._before: tuple[float, list[int]] | None = None

    def read(self) -> Values:
        """Bytes per second since the last reading; None at the first."""
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
        return {"nvlink": {"links": self.links, "rx_bytes_per_second": received, "tx_bytes_per_second": sent}}

    def _fields(self, *fields: Any) -> list[int]:
        found = []
        for field in pynvml.nvmlDeviceGetFieldValues(self._gpu, list(fields)):
            if field.nvmlReturn != pynvml.NVML_SUCCESS:
                raise pynvml.NVMLError(field.nvmlReturn)
            wide = field.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            found.append(field.value.ullVal if wide else field.value.uiVal)
        return found
