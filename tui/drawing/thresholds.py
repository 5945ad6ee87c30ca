"""How heavily a device is loaded, in the three levels of nvitop: light, moderate, heavy.

The colour of a level says how much, not that something is wrong: what is wrong has a sign and the colour of an alarm.
Every threshold of the screens stands here with its source. From the first value of a pair on a load is moderate, from
the second one on it is heavy.
"""

from __future__ import annotations

# nvitop 1.7, nvitop/tui/library/device.py: GPU_UTILIZATION_THRESHOLDS, which it applies to power of the limit, too,
# and MEMORY_UTILIZATION_THRESHOLDS, in percent.
BUSY = POWER = (0.10, 0.75)
MEMORY = (0.10, 0.80)
# nvitop has none for temperatures. 83 °C is the lowest "GPU Max Operating Temp" that `nvidia-smi -q -d TEMPERATURE`
# reports for NVIDIA's data centre GPUs (V100 83, A100 85, H100 87); 65 °C is usual under load.
TEMPERATURE_C = (65.0, 83.0)

LEVELS = ("light", "moderate", "heavy")


def level(value: float | None, thresholds: tuple[float, float]) -> str:
    """The name of the level of a load, which is also the name of its style; "value" if the load is unknown."""
    if value is None:
        return "value"
    return LEVELS[sum(value >= threshold for threshold in thresholds)]


def busy(share: float | None) -> str:
    return level(share, BUSY)


def memory(used: float | None, total: float | None) -> str:
    return level(used / total if used is not None and total else None, MEMORY)


def power(watts: float | None, limit: float | None) -> str:
    return level(watts / limit if watts is not None and limit else None, POWER)


def temperature(celsius: float | None) -> str:
    return level(celsius, TEMPERATURE_C)
