"""Low clocks of training GPUs: figures, causes, remedies. A chip at its default power limit lowers its clock under full
load by design (an L4 or T4 to half); a lowered limit, set clocks and low clocks without a reason are faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .. import figures
from ..gpu import Gpu
from ..runs.events import Remedy
from ..telemetry.gpu_totals import GpuTotals
from .measurements import HOT, LOWERED, POWER_EXPLAINS, Measurements


def measured(gpus: Sequence[Gpu], totals: GpuTotals) -> dict[str, Any]:
    """Return the clock figures of the training GPUs, from last readings and sums, as fields of Measurements."""
    limits = [(gpu.power_limit_w, gpu.power_limit_default_w) for gpu in gpus
              if gpu.power_limit_w is not None and gpu.power_limit_default_w]  # fmt: skip
    lowest = min(limits, key=lambda pair: pair[0] / pair[1], default=(None, None))
    set_by = [word for gpu in gpus for word in gpu.clocks_set_by or ()]
    return {
        "clock_share": totals.mean("clock_share"),
        "sm_clock_mhz": totals.mean("sm_clock_mhz"),
        "max_sm_clock_mhz": totals.mean("max_sm_clock_mhz"),
        "power_capped": totals.slowed_by("power"),
        "power_limit_w": lowest[0],
        "power_limit_default_w": lowest[1],
        "clocks_set_by": tuple(dict.fromkeys(set_by)),
        "gpu_indexes": tuple(gpu.index for gpu in gpus),
    }


def limit_is_low(s: Measurements) -> bool:
    """Return True if the power limit was set clearly (5 %) below the default. False if one of them is unknown."""
    limit, default = s.power_limit_w, s.power_limit_default_w
    return limit is not None and default is not None and limit < LOWERED * default


def is_held(s: Measurements) -> bool:
    """Return True if the GPU works, and a low clock has a removable cause (not heat or the default power limit)."""
    works = s.on_gpu and s.gpu_works and (s.throttled or 0.0) < HOT
    return works and (limit_is_low(s) or (s.power_capped or 0.0) < POWER_EXPLAINS)


def is_capped(s: Measurements) -> bool:
    """Return True if the GPU works with a power limit clearly below the default, which explains a low clock."""
    return s.on_gpu and s.gpu_works and limit_is_low(s)


def cause(s: Measurements) -> str:
    """Return the cause of the low clock: a lowered power limit, or clocks that were set. Empty if unknown."""
    if limit_is_low(s):
        return f"power limit {_watts(s.power_limit_w)} of {_watts(s.power_limit_default_w)}"
    return f"set: {', '.join(s.clocks_set_by)}" if s.clocks_set_by else ""


def evidence(s: Measurements) -> str:
    """Return the end of a sentence about the clock, with `{}` for its value. Empty if the highest clock is unknown."""
    if s.max_sm_clock_mhz is None:
        return ""
    most = figures.measurement("max_sm_clock_mhz").text(s.max_sm_clock_mhz)
    held = ""
    if (s.power_capped or 0.0) >= POWER_EXPLAINS and not limit_is_low(s):
        default = f" of {_watts(s.power_limit_w)}, the default," if s.power_limit_w else ""
        held = f"; its power limit{default} holds it there, which is usual at full load"
    return f"its clock is {{}} of at most {most}{held}"


def remedies(s: Measurements) -> Iterator[Remedy]:
    gpus = ",".join(map(str, s.gpu_indexes))
    command = f"nvidia-smi -i {gpus}" if gpus else "nvidia-smi"
    if limit_is_low(s):
        yield Remedy(
            "device",
            {},
            f"the power limit is {_watts(s.power_limit_w)}, and the default {_watts(s.power_limit_default_w)}: "
            f"as root {command} -pl {round(s.power_limit_default_w or 0)}, unless somebody has lowered it on purpose",
        )
    elif s.clocks_set_by:
        yield Remedy(
            "device",
            {},
            f"somebody has set the clocks ({', '.join(s.clocks_set_by)}): as root {command} -rac resets "
            f"application clocks, and {command} -rgc releases locked ones",
        )
    else:
        yield Remedy(
            "device",
            {},
            f"the driver gives no reason for the low clock: as root {command} -rgc releases locked clocks; "
            f"{command} -q -d CLOCK,POWER,PERFORMANCE shows its limits",
        )


def _watts(value: float | None) -> str:
    return figures.measurement("power_limit_w").text(value)
