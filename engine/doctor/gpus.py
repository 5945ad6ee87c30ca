"""The driver and its GPUs: what each is good for, and what keeps it from it. Asked in a thread: a driver may hang."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pynvml

from ..telemetry.nvml import NO_GPU, Nvml, NvmlUnavailable
from ..telemetry.patience import Asked
from ..telemetry.reasons import or_none
from . import libraries
from .finding import Finding, gib

PATIENCE_SECONDS, DEEP_PATIENCE_SECONDS = 2.0, 8.0
CALM = ("no NVIDIA driver", NO_GPU)  # a machine without a GPU is not a broken one
NOT_LISTED_BYTES = 1024**3  # more than the driver itself takes


@dataclass(frozen=True)
class Seen:
    """What NVML says; `reason` why there is nothing, `driver` and `cuda` are versions."""

    gpus: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    driver: str = ""
    cuda: tuple[int, int] | None = None


def ask() -> Asked[Seen]:
    """Start asking; `answer` waits for it."""
    return Asked(_look)


def answer(asked: Asked[Seen], deep: bool) -> Seen:
    seconds = DEEP_PATIENCE_SECONDS if deep else PATIENCE_SECONDS
    try:
        return asked.answer(seconds)
    except TimeoutError:
        return Seen(reason=f"the NVIDIA driver has not answered within {seconds:g} s")


def _look() -> Seen:
    try:
        nvml = Nvml()
    except NvmlUnavailable as reason:
        return Seen(reason=str(reason))
    try:
        facts = zip(nvml.identities(), nvml.read(), range(nvml.count), strict=False)
        gpus = [identity | reading | _settings(index) for identity, reading, index in facts]
        cuda = or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        driver = or_none(pynvml.nvmlSystemGetDriverVersion) or "of unknown version"
        version = (cuda // 1000, cuda % 1000 // 10) if cuda else None
        return Seen(gpus, "" if gpus else NO_GPU, str(driver), version)
    finally:
        nvml.close()


def _settings(index: int) -> dict[str, Any]:
    """What an administrator sets."""
    handle = or_none(lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return {}
    default = or_none(lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
    return {
        "persistence": or_none(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        "ecc": or_none(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        "power_default_w": default / 1000 if default else None,
    }


def findings(seen: Seen) -> Iterator[Finding]:
    """The driver first, then each GPU."""
    if seen.reason:
        yield _without(seen.reason)
        return
    yield from _driver(seen)
    lost = [gpu for gpu in seen.gpus if gpu.get("missing")]
    for gpu in lost:
        level = "error" if len(lost) == len(seen.gpus) else "warning"
        remedy = "dmesg tells more; leave it out with device.visible until the machine has been restarted"
        yield Finding(level, _name(gpu), gpu["missing"], remedy)
    well = [gpu for gpu in seen.gpus if gpu not in lost]
    yield from _together(finding for gpu in well for rule in RULES for finding in rule(gpu))


def _together(found: Iterable[Finding]) -> Iterator[Finding]:
    """What is true of several GPUs is said once."""
    numbers: dict[tuple[str, str, str], list[int]] = {}
    for finding in found:
        number = int(finding.about.removeprefix("GPU "))
        numbers.setdefault((finding.level, finding.what, finding.remedy), []).append(number)
    for (level, what, remedy), which in numbers.items():
        in_a_row = len(which) > 2 and which[-1] - which[0] == len(which) - 1
        named = f"{which[0]}-{which[-1]}" if in_a_row else ", ".join(map(str, which))
        yield Finding(level, f"GPU {named}", what, remedy)


def _without(reason: str) -> Finding:
    if reason.startswith(CALM):
        return Finding("note", "GPU", reason, "training runs on the CPU; gputui works, GPU options do nothing")
    if "not answered" in reason:
        remedy = "try gputui doctor --deep; nvidia-smi -pm 1 (as root) keeps the driver loaded and quick"
        return Finding("warning", "driver", reason, remedy)
    remedy = "see if nvidia-smi works; until it does, training runs on the CPU"
    return Finding("error", "driver", reason, remedy)


def _driver(seen: Seen) -> Iterator[Finding]:
    built = libraries.cuda_version()
    mine = f"NVIDIA driver {seen.driver}" + (f", CUDA {seen.cuda[0]}.{seen.cuda[1]}" if seen.cuda else "")
    if seen.cuda is None or built is None or seen.cuda >= built:
        yield Finding("ok", "driver", mine)
        return
    needs = f"{mine}: TensorFlow was built for CUDA {built[0]}.{built[1]}"
    if seen.cuda[0] < built[0]:
        yield Finding("error", "driver", needs, "update the driver; TensorFlow cannot use the GPUs with this one")
    else:
        yield Finding("warning", "driver", f"{needs}; code compiled at first use may fail", "update the driver")


# ---- one GPU ----------------------------------------------------------------------------------


def _worth(gpu: dict[str, Any]) -> Iterator[Finding]:
    total, capability = gpu["memory_total_bytes"], gpu["compute_capability"]
    size = "memory of unknown size" if total is None else gib(total)
    size += " shared with the host" if gpu.get("shared_with_host") else ""
    name = f"{gpu.get('name') or 'unnamed'}, {size}"
    if capability is None:
        yield Finding("ok", _name(gpu), name)
        return
    good_for, remedy = _precision(capability)
    yield Finding("ok", _name(gpu), f"{name}, compute capability {_dotted(capability)}: {good_for}", remedy)
    yield from _kernels(gpu, capability)


def _precision(capability: tuple[int, int]) -> tuple[str, str]:
    if capability >= (8, 0):
        return "bfloat16, float16 and TF32", "precision.policy=mixed_bfloat16 uses its tensor cores"
    if capability >= (7, 0):
        return "float16", "precision.policy=mixed_float16 uses its tensor cores"
    return "float32 only", ""


def _kernels(gpu: dict[str, Any], capability: tuple[int, int]) -> Iterator[Finding]:
    """Machine code of a chip runs on later ones of its generation; anything newer is compiled from PTX."""
    built = libraries.capabilities()
    if not built or any(major == capability[0] and minor <= capability[1] for major, minor in built):
        return
    if capability < min(built):
        what = f"TensorFlow has no code for compute capability {_dotted(capability)}"
        yield Finding("error", _name(gpu), what, "leave it out with device.visible, or use an older TensorFlow")
    else:
        what = "TensorFlow compiles its kernels for this chip at first use, which can take minutes"
        yield Finding("note", _name(gpu), what, "happens once: gputui keeps what was compiled (CUDA_CACHE_MAXSIZE)")


def _settings_found(gpu: dict[str, Any]) -> Iterator[Finding]:
    limit, default = gpu["power_limit_w"], gpu.get("power_default_w")
    if gpu.get("persistence") is False:
        remedy = "nvidia-smi -pm 1 (as root): each start is some seconds faster"
        yield Finding("note", _name(gpu), "persistence mode is off", remedy)
    if gpu.get("ecc") is False:
        yield Finding("note", _name(gpu), "ECC is off: memory errors are not noticed", "nvidia-smi -e 1 (as root)")
    if limit is not None and default is not None and limit < default - 1:
        what = f"the power limit is {limit:.0f} W, its default is {default:.0f} W"
        yield Finding("warning", _name(gpu), what, f"nvidia-smi -pl {default:.0f} (as root), where cooling allows it")
    if gpu.get("mig"):
        first = gpu["mig"][0]["uuid"]
        what = f"MIG is on, with {len(gpu['mig'])} instance(s); a training uses one of them"
        yield Finding("note", _name(gpu), what, f"choose it by name: device.visible={first}")


def _health(gpu: dict[str, Any]) -> Iterator[Finding]:
    broken = (gpu.get("ecc_errors") or {}).get("uncorrected")
    if broken:
        what = f"{broken} memory error(s) that could not be corrected"
        yield Finding("warning", _name(gpu), what, "reset it (nvidia-smi --gpu-reset); have it looked at if they recur")
    slow = [reason for reason in gpu["throttle"] or [] if "slowdown" in reason or "thermal" in reason]
    if slow:
        yield Finding("warning", _name(gpu), f"slowed down: {', '.join(slow)}", "look after its cooling and power")


def _taken(gpu: dict[str, Any]) -> Iterator[Finding]:
    used, total = gpu["memory_used_bytes"], gpu["memory_total_bytes"]
    if used is None or not total or gpu.get("shared_with_host") or used < NOT_LISTED_BYTES:
        return
    who = [f"{process['name'] or 'process'} {process['pid']}" for process in gpu.get("processes") or []]
    named = f" by {', '.join(who[:3])}{' ...' if len(who) > 3 else ''}" if who else ""
    level = "warning" if used > 0.1 * total else "note"
    remedy = "end them, or choose another GPU with device.visible"
    yield Finding(level, _name(gpu), f"{gib(used)} of {gib(total)} are taken already{named}", remedy)


RULES: tuple[Callable[[dict[str, Any]], Iterator[Finding]], ...] = (
    _worth,
    _settings_found,
    _health,
    _taken,
)


def _name(gpu: dict[str, Any]) -> str:
    return f"GPU {gpu['index']}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
