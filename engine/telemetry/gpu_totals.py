"""Totals and means of the readings of GPUs: energy, power, clocks, and the time that power and heat cost. The driver
counts energy and slowed time without gaps, so that two readings give the exact sum between them, also over a training
of seconds. If it has no such counters, the figures are estimated from the power and the reasons for low clocks in the
readings. A figure that is not known is None. Shares are 0 to 1.
"""

from __future__ import annotations

from operator import attrgetter

from ..figures import GPU
from ..gpu import Gpu

WORKS = 0.5  # an idle GPU lowers its clock
JOULES_PER_WH = 3600
_WORKING = ("sm_clock_mhz", "max_sm_clock_mhz")  # whose means are those of a GPU that works
_UNITS = {GPU[key].unit for key in ("busy", "power_w", "temperature_c", "sm_clock_mhz", "pcie_rx_bytes_per_second")}
_MEANT = tuple(key for key, figure in GPU.items() if figure.unit in _UNITS and key not in _WORKING)
_MEANT_OF_CHIP = tuple(key for key in _MEANT if not key.startswith("nvlink_"))
_of_chip = attrgetter(*_MEANT_OF_CHIP)  # five times as fast as Gpu.value for each
MEANS = (*_MEANT, *_WORKING)  # the figures of a reading that have a mean
# If there is no counter: the reasons in a reading (nvml/queries.py, THROTTLE_REASONS) that stand for it.
_REASONS = {
    "slowed_by_power_seconds": ("power cap",),
    "slowed_by_heat_seconds": ("software thermal", "hardware thermal", "hardware slowdown"),
    "slowed_by_board_limit_seconds": ("board limit",),
    "slowed_by_reliability_limit_seconds": ("reliability limit",),
    "slowed_by_sync_boost_seconds": ("sync boost",),
}
CAUSES = tuple(key.removeprefix("slowed_by_").removesuffix("_seconds") for key in _REASONS)


class GpuTotals:
    """Adds up readings of GPUs in the order of time; after `pause` the time until each GPU's next reading does not
    count. Power and energy are None in MIG mode: NVML reports them for the whole GPU, which others may use, too.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, Gpu]] = {}
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._shared = False  # a GPU in MIG mode is among them
        self._seen: set[str] = set()
        self._counted: set[str] = set()  # whose energy the driver counts

    def pause(self) -> None:
        self._last.clear()

    def take(self, t: float, gpu: Gpu) -> None:
        """Add a reading of one GPU; `t` is its time in seconds."""
        name = gpu.key
        self._seen.add(name)
        self._shared |= gpu.in_mig_mode
        for key, value in zip(_MEANT_OF_CHIP, _of_chip(gpu), strict=True):
            self._add(key, value)
        if gpu.nvlink is not None:
            self._add("nvlink_rx_bytes_per_second", gpu.nvlink.rx_bytes_per_second)
            self._add("nvlink_tx_bytes_per_second", gpu.nvlink.tx_bytes_per_second)
        if gpu.busy is None or gpu.busy >= WORKS:
            self._add("sm_clock_mhz", gpu.sm_clock_mhz)
            if gpu.sm_clock_mhz is not None and gpu.max_sm_clock_mhz:
                self._add("max_sm_clock_mhz", gpu.max_sm_clock_mhz)
                self._add("clock_share", min(1.0, gpu.sm_clock_mhz / gpu.max_sm_clock_mhz))
        else:
            self._add("idle sm_clock_mhz", gpu.sm_clock_mhz)
        if gpu.throttle is not None:
            for key, names in _REASONS.items():
                self._add(f"sampled {key}", float(any(name in gpu.throttle for name in names)))
        if (before := self._last.get(name)) is not None and t > before[0]:
            self._between(name, t - before[0], before[1], gpu)
        self._last[name] = (t, gpu)

    def _between(self, name: str, seconds: float, before: Gpu, now: Gpu) -> None:
        for key in ("energy_j", *_REASONS):
            first, second = getattr(before, key), getattr(now, key)
            if first is not None and second is not None and second >= first:  # else the driver was loaded again
                grown = second - first
                self._add(key, grown if key == "energy_j" else min(grown, seconds), seconds)
                if key == "energy_j":
                    self._counted.add(name)
        if before.power_w is not None and now.power_w is not None:
            self._add("sampled energy_j", (before.power_w + now.power_w) / 2 * seconds, seconds)

    def _add(self, key: str, value: float | None, weight: float = 1.0) -> None:
        if value is not None:
            self._sums[key] = self._sums.get(key, 0.0) + value
            self._weights[key] = self._weights.get(key, 0.0) + weight

    # ---- figures --------------------------------------------------------------------------------

    def figures(self) -> dict[str, float | None]:
        """The figures of a run about the work of its GPUs, by their keys in figures.declared."""
        return {
            "gpu_busy_mean": self.mean("busy"),
            "gpu_power_mean_w": self.power_w,
            "sm_clock_mean_mhz": self.mean("sm_clock_mhz"),
            "slowed_by_power": self.slowed_by("power"),
            "slowed_by_heat": self.slowed_by("heat"),
        }

    def mean(self, key: str) -> float | None:
        """Of one of MEANS, `clock_share` or `idle sm_clock_mhz`, or the growth of a counter per second."""
        return self._sums[key] / self._weights[key] if self._weights.get(key) else None

    @property
    def counts_energy(self) -> bool:
        """True if the driver has counted the energy of all GPUs between two readings; False without readings."""
        return bool(self._seen) and self._counted == self._seen

    @property
    def energy_wh(self) -> float | None:
        """Of all GPUs together: by the driver's counters, or else estimated from readings of the power."""
        joules = self._sums.get("energy_j" if self.counts_energy else "sampled energy_j")
        return None if joules is None or self._shared else joules / JOULES_PER_WH

    @property
    def power_w(self) -> float | None:
        """The mean of one GPU, from the same source as the energy."""
        return None if self._shared else self.mean("energy_j") if self.counts_energy else self.mean("power_w")

    @property
    def watts(self) -> float | None:
        """The mean power of all GPUs together in W; None if not known, or if a GPU is in MIG mode."""
        return None if self.power_w is None else self.power_w * len(self._seen)

    def slowed_by(self, cause: str) -> float | None:
        """The share of the time (0 to 1) in which one of CAUSES has lowered the clock."""
        key = f"slowed_by_{cause}_seconds"
        counted = self.mean(key)
        return min(1.0, counted) if counted else self.mean(f"sampled {key}")  # some drivers count nothing but 0
