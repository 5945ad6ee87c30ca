"""The NVIDIA driver as a whole: whether there is one, whether TensorFlow can use it, and whether it sees every GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ..finding import Finding
from ..interpreter import installed
from ..interpreter.compatibility import dotted
from ..job import gpu_faults
from ..telemetry import chips, resource_limits
from ..telemetry.nvml.connection import LIBRARY, LIBRARY_ALONE_MISSING
from ..telemetry.nvml.reasons import Code
from .libraries import CudaAnswer
from .nvml_query import NvmlAnswers

Bus = Sequence[str] | None


def findings(seen: NvmlAnswers, bus: Bus, confined: bool, cuda: CudaAnswer) -> Iterator[Finding]:
    """`bus`: the PCI addresses of all GPUs (None: not known); `confined`: some may be withheld on purpose."""
    if unreadable(seen):
        yield _unreadable(confined)
        if cuda.works and cuda.count:
            yield Finding("ok", "GPU", f"CUDA shows {cuda.count} GPU(s): training works, without readings of them")
        return
    if seen.reason:
        expected = gpu_faults.gpu_expected(seen.reason, seen.code, bus)
        if expected:
            yield _without(seen, bus, confined)
            return
        is_known = bus is not None and seen.code != Code.LIBRARY_NOT_FOUND
        what = f"no NVIDIA GPU in this machine; {seen.reason}" if is_known else seen.reason
        yield Finding("note", "GPU", what, "training runs on the CPU; gputui works, but GPU options have no effect")
        return
    yield from _version(seen)
    if seen.late_seconds is not None:
        answered = f"{len(seen.gpus)} of {seen.count} GPU(s) answered within {seen.late_seconds:.0f} s"
        yield Finding("warning", "driver", f"the driver is slow: {answered}", _quicker(seen))
    if not confined:
        yield from _left_out(seen, bus or [])


def present(seen: NvmlAnswers, bus: Bus, confined: bool = False) -> bool:
    """A driver whose GPUs TensorFlow should be able to use."""
    expected = gpu_faults.gpu_expected(seen.reason, seen.code, bus)
    without = seen.code == Code.LIBRARY_NOT_FOUND or gpu_faults.driver_withheld(seen.code, confined)
    return not seen.reason or unreadable(seen) or (expected and not without)


def unreadable(seen: NvmlAnswers) -> bool:
    """NVML's library is missing although there are device nodes. CUDA may work then."""
    return seen.code == Code.LIBRARY_NOT_FOUND and chips.has_device_nodes()


def _unreadable(confined: bool) -> Finding:
    what = f"{LIBRARY_ALONE_MISSING}: nothing is known of the GPUs"
    remedy = "install the driver's library, which comes with nvidia-smi"
    if (resource_limits.ROOT / chips.WSL_LIBRARIES / LIBRARY).exists():
        remedy = f"export LD_LIBRARY_PATH=/{chips.WSL_LIBRARIES}, where WSL has it"
    elif confined:
        given = os.environ.get("NVIDIA_DRIVER_CAPABILITIES")
        remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        remedy += f" (it is {given!r} now)" if given is not None else ""
    return Finding("warning", "driver", what, remedy)


def _without(seen: NvmlAnswers, bus: Bus, confined: bool) -> Finding:
    if seen.late_seconds is not None:
        return Finding("warning", "driver", seen.reason, _quicker(seen))
    return gpu_faults.of_driver(seen.reason, seen.code, bus, confined)


def _quicker(seen: NvmlAnswers) -> str:
    longer = "gputui doctor --deep waits longer; " if (seen.late_seconds or 0) < 10 else ""
    return f"{longer}nvidia-smi -pm 1 (as root) keeps the driver loaded, so that it answers faster"


def _version(seen: NvmlAnswers) -> Iterator[Finding]:
    built = installed.cuda_version()
    mine = f"NVIDIA driver {seen.driver}" + (f", CUDA {dotted(seen.cuda)}" if seen.cuda else "")
    if fault := gpu_faults.old_driver(seen.driver, seen.cuda):
        yield fault
    elif seen.cuda is None or built is None or seen.cuda >= built:
        newer = seen.cuda is not None and built is not None and seen.cuda[0] > built[0]
        fits = f": TensorFlow's own CUDA {dotted(built or ())} works with it" if newer else ""
        yield Finding("ok", "driver", f"{mine}{fits}")
    else:
        needs = f"{mine}: TensorFlow was built for CUDA {dotted(built)}"
        yield Finding("note", "driver", f"{needs}; chips for which it has machine code also work with this driver")


def _left_out(seen: NvmlAnswers, bus: Sequence[str]) -> Iterator[Finding]:
    """GPUs on the bus that the driver does not show."""
    if len(bus) <= seen.count:
        return
    shown = {(gpu.pci_bus_id or "").lower()[-len("0000:01:00.0") :] for gpu in seen.gpus}
    hidden = [address for address in bus if address not in shown]
    which = f" ({', '.join(hidden)})" if len(hidden) == len(bus) - seen.count else ""
    what = f"the driver shows {seen.count} of the {len(bus)} GPUs in this machine{which}"
    needs = gpu_faults.needs_of_chips(hidden) or "; a loose power cable is one possible cause"
    yield Finding("warning", "driver", what, f"dmesg | grep -i nvrm shows why{needs}")
