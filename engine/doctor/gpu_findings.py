"""Findings about driver and GPUs: what each one supports, what prevents or disturbs its use, copies between them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pynvml

from ..finding import Finding, errors
from ..gpu import TAKEN_BYTES, VISIBLE, EccErrors, GpuProcess, is_taken, sole_holder
from ..interpreter import compatibility, installed
from ..interpreter.compatibility import dotted
from ..job import gpu_faults
from ..job.machine_gpus import allocation_from, hides_all, least_multiprocessors
from ..system import proc
from ..telemetry import chips, resource_limits
from ..telemetry.chips import FLOAT16_CAPABILITY
from ..telemetry.nvml.connection import LIBRARY, LIBRARY_ALONE_MISSING
from ..telemetry.nvml.queries import EXCLUSIVE
from ..telemetry.nvml.reasons import Code, Reason
from ..units import counted, size
from .libraries import FABRIC, CudaAnswer
from .nvml_query import ExaminedGpu, NvmlAnswers

Bus = Sequence[str] | None
_RESET = "reset it when nothing runs on it (as root: nvidia-smi --gpu-reset)"
_TRANSLATES = "DMA"  # the type of an IOMMU group in the kernel: DMA, DMA-FQ; "identity" passes addresses through
HIDDEN = "no GPU"  # `about` of the finding that all GPUs are hidden on purpose
_HBM = re.compile(r"\b([GB]?[HB][12]00|GH200|GB\d00|A100|A30|V100S?|P100|TITAN V)\b")  # ECC takes nothing from HBM
_SLOWED = ("slowdown", "thermal", "brake")  # parts of the names of throttle reasons that mean a problem
_REMEDIES: dict[Reason | None, str] = {
    Reason.LOST: "dmesg may show why; leave this GPU out with device.visible until the machine has been restarted",
    Reason.NO_PERMISSION: "ls -l /dev/nvidia* shows who has access; leave this GPU out with device.visible",
}


# ---- the driver -----------------------------------------------------------------------------------


def driver_findings(seen: NvmlAnswers, bus: Bus, confined: bool, cuda: CudaAnswer) -> Iterator[Finding]:
    """`bus`: the PCI addresses of all GPUs (None: not known); `confined`: some may be withheld on purpose."""
    longer = "gputui doctor --deep waits longer; " if (seen.late_seconds or 0) < 10 else ""
    quicker = f"{longer}nvidia-smi -pm 1 (as root) keeps the driver loaded, so that it answers faster"
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
    elif seen.reason and gpu_faults.gpu_expected(seen.reason, seen.code, bus):
        if seen.late_seconds is not None:
            yield Finding("warning", "driver", seen.reason, quicker)
        else:
            yield gpu_faults.of_driver(seen.reason, seen.code, bus, confined)
    elif seen.reason:
        is_known = bus is not None and seen.code != Code.LIBRARY_NOT_FOUND
        what = f"no NVIDIA GPU in this machine; {seen.reason}" if is_known else seen.reason
        yield Finding("note", "GPU", what, "training runs on the CPU; gputui works, but GPU options have no effect")
    else:
        yield _version(seen)
        if seen.late_seconds is not None:
            answered = f"{len(seen.gpus)} of {seen.count} GPU(s) answered within {seen.late_seconds:.0f} s"
            yield Finding("warning", "driver", f"the driver is slow: {answered}", quicker)
        if bus and not confined and len(bus) > seen.count:  # the driver does not show all GPUs
            shown = {(gpu.pci_bus_id or "").lower()[-len("0000:01:00.0") :] for gpu in seen.gpus}
            hidden = [address for address in bus if address not in shown]
            which = f" ({', '.join(hidden)})" if len(hidden) == len(bus) - seen.count else ""
            what = f"the driver shows {seen.count} of the {len(bus)} GPUs in this machine{which}"
            needs = gpu_faults.needs_of_chips(hidden) or "; a loose power cable is one possible cause"
            yield Finding("warning", "driver", what, f"dmesg | grep -i nvrm shows why{needs}")


def present(seen: NvmlAnswers, bus: Bus, confined: bool = False) -> bool:
    """A driver whose GPUs TensorFlow should be able to use."""
    expected = gpu_faults.gpu_expected(seen.reason, seen.code, bus)
    without = seen.code == Code.LIBRARY_NOT_FOUND or gpu_faults.driver_withheld(seen.code, confined)
    return not seen.reason or unreadable(seen) or (expected and not without)


def unreadable(seen: NvmlAnswers) -> bool:
    """NVML's library is missing although there are device nodes. CUDA may work then."""
    return seen.code == Code.LIBRARY_NOT_FOUND and chips.has_device_nodes()


def _version(seen: NvmlAnswers) -> Finding:
    built = installed.cuda_version()
    mine = f"NVIDIA driver {seen.driver}" + (f", CUDA {dotted(seen.cuda)}" if seen.cuda else "")
    if fault := gpu_faults.old_driver(seen.driver, seen.cuda):
        return fault
    if seen.cuda is not None and built is not None and seen.cuda < built:
        needs = f"{mine}: TensorFlow was built for CUDA {dotted(built)}"
        return Finding("note", "driver", f"{needs}; chips for which it has machine code also work with this driver")
    newer = seen.cuda is not None and built is not None and seen.cuda[0] > built[0]
    fits = f": TensorFlow's own CUDA {dotted(built or ())} works with it" if newer else ""
    return Finding("ok", "driver", f"{mine}{fits}")


# ---- the GPUs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """What the rules about a GPU know of its machine; `cuda_works` is None if it is not known."""

    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    cuda_works: bool | None = None
    least: int = 0  # multiprocessors of a GPU that TensorFlow uses beside the others
    same_lanes: bool = False  # several GPUs have equally many PCIe lanes
    newer_beside: bool = False  # TensorFlow has code for one of the usable GPUs
    all_held: bool = False  # each of the usable GPUs has a process that excludes others


def findings(seen: NvmlAnswers, cuda_works: bool | None = None) -> Iterator[Finding]:
    """First of GPUs that cannot be used. `cuda_works` is the answer of the CUDA library, None if it is not known."""
    yield from hidden(seen, cuda_works)
    there = [gpu for gpu in seen.gpus if not gpu.missing]
    usable = [gpu for gpu in there if gpu.usable]
    lanes = [gpu.pcie_lanes for gpu in there]
    box = Box(
        seen.driver, seen.cuda, cuda_works, least_multiprocessors(gpu.multiprocessors for gpu in there),
        same_lanes=len(lanes) > 1 and len(set(lanes)) == 1, all_held=all(map(held, usable)),
        newer_beside=any(not compatibility.too_old(gpu.compute_capability) for gpu in usable),
    )  # fmt: skip
    yield from _together((gpu.index, finding) for gpu in there for rule in RULES for finding in rule(gpu, box))


def hidden(seen: NvmlAnswers, cuda_works: bool | None = None) -> Iterator[Finding]:
    """GPUs that CUDA does not show: unreadable, or in MIG mode without an instance. Errors if no usable one is left."""
    left = len(seen.gpus) < seen.count or any(gpu.usable for gpu in seen.gpus)
    level = "warning" if left and cuda_works is not False else "error"
    missing = [gpu for gpu in seen.gpus if gpu.missing]
    for gpu in missing:
        other = f"nvidia-smi -i {gpu.index} may show why; leave this GPU out with device.visible"
        yield Finding(level, f"GPU {gpu.index}", gpu.missing or "", _REMEDIES.get(gpu.why, other))
    empty = Finding(level, "GPU", gpu_faults.NO_INSTANCE, gpu_faults.NEW_INSTANCE)
    yield from _together((gpu.index, empty) for gpu in seen.gpus if gpu not in missing and not gpu.usable)


def _together(findings: Iterable[tuple[int, Finding]]) -> Iterator[Finding]:
    """Each finding once, with the numbers of all its GPUs."""
    numbers: dict[Finding, list[int]] = {}
    for number, finding in findings:
        numbers.setdefault(finding, []).append(number)
    for finding, which in numbers.items():
        in_a_row = len(which) > 2 and which[-1] - which[0] == len(which) - 1
        named = f"{which[0]}-{which[-1]}" if in_a_row else ", ".join(map(str, which))
        yield replace(finding, about=f"GPU {named}")


# ---- one GPU ----------------------------------------------------------------------------------


def _worth(gpu: ExaminedGpu, box: Box) -> Iterator[Finding]:
    total, capability = gpu.memory_total_bytes, gpu.compute_capability
    memory = "memory of unknown size" if total is None else size(total)
    memory += " shared with the host" if gpu.shared_with_host else ""
    name = f"{gpu.name or 'unnamed'}, {memory}"
    if capability is None:
        yield Finding("ok", "GPU", name)
        return
    policy, good_for = chips.best_policy(capability, gpu.name), "float32 only"
    if policy != "float32":
        good_for = "bfloat16, float16 and TF32" if policy == "mixed_bfloat16" else "float16"
    elif capability >= FLOAT16_CAPABILITY or capability in chips.FAST_FLOAT16_WITHOUT_TENSOR_CORES:
        good_for = "float32, and float16 without tensor cores"
    left_out = (count := gpu.multiprocessors) is not None and count < box.least
    if left_out:
        few = f"it has {counted(count, 'multiprocessors')}, fewer than {box.least}"
        why = f"TensorFlow does not use it if there are larger GPUs: {few}"
        obstacles = [Finding("note", "GPU", why, "to train on it, name it alone in device.visible")]
    else:
        obstacles = list(_obstacles(box, capability))
    usable = policy != "float32" and not left_out and all(finding.level == "note" for finding in obstacles)
    what = f"{name}, compute capability {dotted(capability)}: {good_for}"
    yield Finding("ok", "GPU", what, f"precision.policy={policy} uses its tensor cores" if usable else "")
    yield from obstacles


def _obstacles(box: Box, capability: tuple[int, int]) -> Iterator[Finding]:
    """Kernels of TensorFlow, cuDNN or XLA cannot run on the GPU, or are compiled at first use."""
    if lacks := compatibility.lacks_code(capability):
        yield lacks
        return
    newest, too_old = installed.newest_target(), compatibility.too_old(capability)
    if too_old:
        what = f"TensorFlow has no code for compute capability {dotted(capability)}"
        if box.newer_beside:
            yield Finding("note", "GPU", f"{what}, and uses only the others")
        else:
            yield Finding("error", "GPU", what, "use an older TensorFlow; device.visible=none trains on the CPU")
    elif newest is not None and capability[0] > newest[0]:
        what = "TensorFlow compiles its kernels for this chip at first use, which can take minutes"
        yield Finding("note", "GPU", what, "this happens once: the driver keeps the compiled kernels")
    if compatibility.xla_aborts(capability):
        cuda = dotted(installed.cuda_version() or ())
        what = f"it works only without XLA, which crashes: this TensorFlow is built with CUDA {cuda}"
        yield Finding("note", "GPU", what, "leave compile.xla at auto or false")
    if not too_old and (lacks := compatibility.driver_lacks(capability, box.driver_cuda)):
        yield lacks
    if not too_old and compatibility.lacks_cudnn(capability):
        version = dotted(installed.cudnn_version() or ())
        what = f"cuDNN {version} has no code for compute capability {dotted(capability)}: convolutions crash"
        yield Finding("error", "GPU", what, compatibility.right_cudnn([capability]))


def _settings_and_health(gpu: ExaminedGpu, _box: Box) -> Iterator[Finding]:
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    if gpu.persistence is False:
        remedy = "nvidia-smi -pm 1 (as root) makes each start some seconds faster"
        yield Finding("note", "GPU", "persistence mode is off", remedy)
    if gpu.ecc is False:
        remedy = "nvidia-smi -e 1 (as root) switches it on"
        if not _HBM.search(gpu.name or ""):
            remedy += "; on a card with GDDR memory ECC costs bandwidth and some of the memory"
        yield Finding("note", "GPU", "ECC is off: memory errors are not detected", remedy)
    if limit is not None and default is not None and limit < default - 1:
        what = f"the power limit is {limit:.0f} W, its default is {default:.0f} W"
        remedy = f"nvidia-smi -pl {default:.0f} (as root) restores it, where cooling allows"
        yield Finding("warning", "GPU", what, remedy)
    if gpu.instances:
        first = gpu.instances[0].uuid
        what = f"MIG is on, with {len(gpu.instances)} instance(s); a run uses one of them"
        yield Finding("note", "GPU", what, f"choose it by name: device.visible={first}")
    broken = (gpu.ecc_errors or EccErrors()).uncorrected
    if broken:
        what = f"{broken} memory error(s) that could not be corrected"
        yield Finding("warning", "GPU", what, "reset it (nvidia-smi --gpu-reset); have it looked at if they recur")
    slow = [reason for reason in gpu.throttle or [] if any(word in reason for word in _SLOWED)]
    if slow:
        yield Finding("warning", "GPU", f"slowed down: {', '.join(slow)}", "check its cooling and power supply")


def _taken(gpu: ExaminedGpu, _box: Box) -> Iterator[Finding]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is None or not total or gpu.shared_with_host or used < TAKEN_BYTES:
        return
    processes: Sequence[GpuProcess] = gpu.processes or ()
    computing = [process for process in processes if process.computes]
    who = [process.title for process in computing or processes]
    by = f" by {', '.join(who[:3])}{' ...' if len(who) > 3 else ''}" if who else ""
    level = "warning" if is_taken(used, total) else "note"
    if computing:
        remedy = "end them"
    else:
        remedy = "its display needs them" if processes else "nvidia-smi may show by whom (a display takes some, too)"
    remedy += "; device.visible can choose another GPU"
    yield Finding(level, "GPU", f"{size(used)} of {size(total)} are already in use{by}", remedy)


def _compute_mode(gpu: ExaminedGpu, box: Box) -> Iterator[Finding]:
    reset = "as root: nvidia-smi -c DEFAULT"
    if gpu.compute_mode == pynvml.NVML_COMPUTEMODE_PROHIBITED:
        yield Finding("error", "GPU", "its compute mode is PROHIBITED: CUDA cannot use it", reset)
    elif gpu.compute_mode in EXCLUSIVE:
        message, remedy = "its compute mode is EXCLUSIVE_PROCESS: only one process can use it", f"{reset} lets several"
        if not (holder := held(gpu)):
            yield Finding("note", "GPU", message, remedy)
        else:
            level = "error" if box.all_held else "warning"
            yield Finding(level, "GPU", f"{message}, and {holder} does now", f"wait until it ends, or {remedy}")


def held(gpu: ExaminedGpu) -> str:
    """The process that uses the GPU alone in exclusive mode."""
    return sole_holder(replace(gpu, processes=gpu.holders, exclusive=gpu.compute_mode in EXCLUSIVE))


def _lanes(gpu: ExaminedGpu, box: Box) -> Iterator[Finding]:
    now, most = gpu.pcie_lanes or (0, 0)
    if 0 < now < most:
        message = f"PCIe uses {now} of {most} lanes: copies take {most / now:g} times as long"
        if "Laptop" in (gpu.name or "") or box.same_lanes:
            yield Finding("note", "GPU", message, "usual for laptops, and boards that divide lanes among cards")
        else:
            yield Finding("warning", "GPU", message, "reseat the card, or try another slot")


def _fabric(gpu: ExaminedGpu, box: Box) -> Iterator[Finding]:
    state, works = gpu.fabric, box.cuda_works
    if state in (None, pynvml.NVML_GPU_FABRIC_STATE_COMPLETED) or works is False:  # CUDA's own error says it
        return
    remedy = FABRIC.remedy.format(driver=box.driver or "of an unknown version")
    if works:
        yield Finding("warning", "GPU", f"{FABRIC.what}: there is no NVLink between the GPUs", remedy)
    else:
        yield Finding("error", "GPU", f"CUDA cannot start: {FABRIC.what}", remedy)


def _links_and_memory(gpu: ExaminedGpu, _box: Box) -> Iterator[Finding]:
    """No active link is normal without a bridge; behind NVLink switches all should be active."""
    active, count = gpu.nvlinks or (0, 0)
    if 0 < active < count:
        level = "note" if gpu.fabric is None else "warning"
        message = f"{active} of {count} NVLinks are active"
        remedy = "nvidia-smi nvlink --status shows which; cards with fewer bridges have fewer links"
        yield Finding(level, "GPU", message, remedy)
    if gpu.repair:
        yield Finding("warning", "GPU", f"{gpu.repair} failed and will be replaced at the next reset", _RESET)
    if gpu.unrepaired:
        message = "a failed row of its memory could not be replaced"
        yield Finding("warning", "GPU", message, "replace the GPU; until then leave it out with device.visible")
    if gpu.licensed is False:
        message = "this virtual GPU has no licence: the driver slows it down, and later CUDA stops working"
        yield Finding("warning", "GPU", message, "systemctl status nvidia-gridd shows why")


def hides(gpu: ExaminedGpu, box: Box) -> list[Finding]:
    """Errors of compute mode and NVLink switches that prevent CUDA from using the GPU at all."""
    return errors([*_compute_mode(gpu, box), *_fabric(gpu, box)])


RULES: tuple[Callable[[ExaminedGpu, Box], Iterator[Finding]], ...] = (
    _worth, _settings_and_health, _taken, _compute_mode, _lanes, _fabric, _links_and_memory,
)  # fmt: skip


# ---- copies between GPUs -------------------------------------------------------------------------


def iommu_findings(seen: NvmlAnswers, bus: Sequence[str]) -> Iterator[Finding]:
    """Several GPUs copy over PCIe, and an IOMMU translates their addresses (`bus`)."""
    there = [gpu for gpu in seen.gpus if gpu.usable]
    linked = all((gpu.nvlinks or (0, 0))[0] for gpu in there)
    asked = all(gpu.compute_mode is not None for gpu in there)
    groups = (resource_limits.ROOT / "sys/bus/pci/devices" / address / "iommu_group/type" for address in bus)
    translated = any(proc.text(group).startswith(_TRANSLATES) for group in groups)
    if len(there) < 2 or linked or not asked or not translated:
        return
    what = "the IOMMU translates the GPUs' addresses: copies between them without NVLink can be slow, wrong, or hang"
    yield Finding("warning", "GPU", what, "boot with iommu=pt, or set NCCL_P2P_DISABLE=1 (slower, but safe)")


# ---- which GPUs CUDA shows to a process ---------------------------------------------------------


def choice_findings(seen: NvmlAnswers) -> Iterator[Finding]:
    """Report faults of CUDA_VISIBLE_DEVICES, and that a launcher has allocated only some of the GPUs."""
    value, every = os.environ.get(VISIBLE), all_gpus(seen)
    if seen.count and hides_all(value):
        yield Finding("note", HIDDEN, f"{VISIBLE}={value!r} hides all GPUs: the CPU trains", "unset it to use them")
        return
    faults = list(gpu_faults.of_visible_devices(value, every))
    yield from (replace(fault, about="GPU") for fault in faults)
    given = allocation_from(os.environ, seen.count)
    if given is None or not seen.count or any(fault.about != gpu_faults.ORDER for fault in faults):
        return
    if all(given.allows(gpu.index, every) for gpu in every):
        return
    if value is not None:
        yield Finding("note", "GPU", str(given), "device.visible=all uses these; other GPUs are refused")
    else:
        remedy = f"export {VISIBLE}={','.join(given.names)}, or set device.visible to these"
        yield Finding("warning", "GPU", f"{given}, but all {seen.count} are visible to CUDA", remedy)


def all_gpus(seen: NvmlAnswers) -> list[ExaminedGpu]:
    """One that has not answered has only its `index`."""
    return [*seen.gpus, *(ExaminedGpu(index) for index in range(len(seen.gpus), seen.count))]
