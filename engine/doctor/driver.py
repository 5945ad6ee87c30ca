"""The NVIDIA driver as a whole (is there one, can TensorFlow use it, does it see every GPU), and the host: processors,
memory, shared memory, room for runs, and the cluster it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from ..files.places import runs_folder
from ..finding import Finding
from ..interpreter import installed
from ..interpreter.compatibility import dotted
from ..job import cluster, gpu_faults
from ..telemetry import chips, resource_limits
from ..telemetry.nvml.connection import LIBRARY, LIBRARY_ALONE_MISSING
from ..telemetry.nvml.reasons import Code
from ..units import GIB, counted, size
from .libraries import CudaAnswer
from .nvml_query import NvmlAnswers

Bus = Sequence[str] | None


def findings(seen: NvmlAnswers, bus: Bus, confined: bool, cuda: CudaAnswer) -> Iterator[Finding]:
    """`bus`: the PCI addresses of all GPUs (None: not known); `confined`: some may be withheld on purpose."""
    if unreadable(seen):
        remedy = "install the driver's library, which comes with nvidia-smi"
        if (resource_limits.ROOT / chips.WSL_LIBRARIES / LIBRARY).exists():
            remedy = f"export LD_LIBRARY_PATH=/{chips.WSL_LIBRARIES}, where WSL has it"
        elif confined:
            given = os.environ.get("NVIDIA_DRIVER_CAPABILITIES")
            remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            remedy += f" (it is {given!r} now)" if given is not None else ""
        yield Finding("warning", "driver", f"{LIBRARY_ALONE_MISSING}: nothing is known of the GPUs", remedy)
        if cuda.works and cuda.count:
            yield Finding("ok", "GPU", f"CUDA shows {cuda.count} GPU(s): training works, without readings of them")
        return
    if seen.reason:
        if not gpu_faults.gpu_expected(seen.reason, seen.code, bus):
            is_known = bus is not None and seen.code != Code.LIBRARY_NOT_FOUND
            what = f"no NVIDIA GPU in this machine; {seen.reason}" if is_known else seen.reason
            yield Finding("note", "GPU", what, "training runs on the CPU; gputui works, but GPU options have no effect")
        elif seen.late_seconds is not None:
            yield Finding("warning", "driver", seen.reason, _quicker(seen))
        else:
            yield gpu_faults.of_driver(seen.reason, seen.code, bus, confined)
        return
    yield from _version(seen)
    if seen.late_seconds is not None:
        answered = f"{len(seen.gpus)} of {seen.count} GPU(s) answered within {seen.late_seconds:.0f} s"
        yield Finding("warning", "driver", f"the driver is slow: {answered}", _quicker(seen))
    if not confined and len(bus or ()) > seen.count:
        yield _left_out(seen, bus or ())


def present(seen: NvmlAnswers, bus: Bus, confined: bool = False) -> bool:
    """A driver whose GPUs TensorFlow should be able to use."""
    expected = gpu_faults.gpu_expected(seen.reason, seen.code, bus)
    without = seen.code == Code.LIBRARY_NOT_FOUND or gpu_faults.driver_withheld(seen.code, confined)
    return not seen.reason or unreadable(seen) or (expected and not without)


def unreadable(seen: NvmlAnswers) -> bool:
    """NVML's library is missing although there are device nodes. CUDA may work then."""
    return seen.code == Code.LIBRARY_NOT_FOUND and chips.has_device_nodes()


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


def _left_out(seen: NvmlAnswers, bus: Sequence[str]) -> Finding:
    """GPUs on the bus that the driver does not show."""
    shown = {(gpu.pci_bus_id or "").lower()[-len("0000:01:00.0") :] for gpu in seen.gpus}
    hidden = [address for address in bus if address not in shown]
    which = f" ({', '.join(hidden)})" if len(hidden) == len(bus) - seen.count else ""
    what = f"the driver shows {seen.count} of the {len(bus)} GPUs in this machine{which}"
    needs = gpu_faults.needs_of_chips(hidden) or "; a loose power cable is one possible cause"
    return Finding("warning", "driver", what, f"dmesg | grep -i nvrm shows why{needs}")


# ---- the host ------------------------------------------------------------------------------------


TENSORFLOW_BYTES = GIB  # memory of a process with TensorFlow and a small model


LOGIND, LINGER = Path("/etc/systemd"), Path("/var/lib/systemd/linger")


def host_findings(gpus: int = 0) -> Iterator[Finding]:
    mine, all_of_them = len(os.sched_getaffinity(0)), psutil.cpu_count() or 0
    cpus = counted(mine, "CPUs")
    what = cpus + (f" of {all_of_them}" if mine < all_of_them else "")
    quota = resource_limits.cpus()
    if quota is not None and quota < mine:
        what = f"{quota:g} of {cpus} (the container's limit)"
    if min(mine, quota or mine) < 2:
        yield Finding("note", "CPU", what, "at least two are needed to prepare input while the model trains")
    else:
        yield Finding("ok", "CPU", what)

    memory = resource_limits.memory()
    what = f"{size(memory.available)} of {size(memory.total)} free"
    if memory.total < psutil.virtual_memory().total:
        what += " (the container's limit)"
    if memory.available < TENSORFLOW_BYTES:
        yield Finding("warning", "memory", what, "TensorFlow alone needs about 1 GiB: end other programs first")
    else:
        yield Finding("ok", "memory", what)

    try:  # NCCL and worker processes exchange data there; containers get 64 MiB by default
        total = shutil.disk_usage("/dev/shm").total
    except OSError:
        yield Finding("note", "/dev/shm", "/dev/shm does not exist", "training on several GPUs may need it")
    else:
        remedy = "for training on several GPUs start the container with --shm-size=8g or --ipc=host"
        level = "ok" if total >= GIB else "warning" if gpus > 1 else "note"
        yield Finding(level, "/dev/shm", size(total), "" if level == "ok" else remedy)

    folder = runs_folder()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    what = f"{size(free)} free in {folder}"
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield Finding("error", "runs", f"cannot write to {place}", "set GPUTUI_HOME to a folder of your own")
    elif free < 64 * 1024**2:
        yield Finding("error", "runs", what, "free some space, or set GPUTUI_HOME to a folder on another disk")
    elif free < 5 * GIB:
        remedy = "checkpoints of a large model need more; set GPUTUI_HOME to keep runs on another disk"
        yield Finding("warning", "runs", what, remedy)
    else:
        yield Finding("ok", "runs", what)

    named, fault = cluster.read_or_reason(os.environ)  # to which a run that is started here would belong
    if fault:
        yield Finding("warning", "cluster", fault.what, fault.remedy)
    elif named is not None and len(named.workers) > 1:
        change = "strategy.kind=multi_worker trains on all of them; with another strategy a run is refused here"
        yield Finding("note", "cluster", f"this is {named}", change)
    yield from _logout()


def _logout() -> Iterator[Finding]:
    """systemd ends the processes of this user at logout."""
    files = [LOGIND / "logind.conf", *sorted((LOGIND / "logind.conf.d").glob("*.conf"))]
    ends = False
    for file in files:
        with contextlib.suppress(OSError, UnicodeError):
            for line in file.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "KillUserProcesses":
                    ends = value.strip().lower() in ("yes", "true", "on", "1")
    with contextlib.suppress(OSError, KeyError):
        if ends and not (LINGER / pwd.getpwuid(os.geteuid()).pw_name).exists():
            what = "this machine ends your processes when you log out (KillUserProcesses), also runs and the queue"
            yield Finding("warning", "logout", what, "loginctl enable-linger lets them go on")
