"""Rules about GPUs (that they exist, are allocated to the job and can train, and how many replicas they are for) and
several machines (strategy.kind=multi_worker; without it no task of a job trains alone).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from .. import plan
from ..finding import Finding, error, note, on_options, warning
from ..gpu import sole_holder
from ..interpreter import compatibility, installed, supported_versions
from ..interpreter.compatibility import dotted
from ..job import cluster, gpu_faults, machine_gpus
from ..job.machine_gpus import Machine, candidates, positions, training_gpus, used_by_tensorflow, visible_gpus
from ..options import OPTIONS, Options
from ..options.catalogue import About
from ..plan import KIND, MULTI_WORKER
from ..telemetry import chips
from ..telemetry.chips import BFLOAT16_CAPABILITY, FLOAT16_CAPABILITY
from ..units import size

KEY = "device.visible"
WITHIN_A_MACHINE = ("hierarchical_copy", "reduction_to_one_device")
_COMMUNICATION = "strategy.communication"
_RUN_OF_ITS_OWN = "measure one machine of it with strategy.kind=mirrored, and compare whole runs with gputui compare"
ON_THE_CPU = "device.visible=none trains on the CPU"
_OTHER = f"choose another GPU with {KEY}"
_WITH_CUDNN = ("cnn", "separable_cnn", "resnet50")  # gputui's models whose layers are cuDNN's


def replicas(options: Options, machine: Machine) -> int:
    workers = len(machine.cluster.workers) if machine.cluster else 1
    return plan.replicas(options.strategy, plan.devices(options, len(visible_gpus(options, machine))), workers)


def on_cpu(options: Options, machine: Machine) -> bool:
    """No GPU trains for certain: not if the driver fails, or if a MIG instance is named, which it may not know."""
    visible = options.device.visible
    stopped = machine.fault is not None and machine.fault.level == "error"
    names_instance = isinstance(visible, list) and any(str(name).startswith("MIG-") for name in visible)
    return visible == "none" or not (machine.missing or stopped or names_instance or visible_gpus(options, machine))


def share_a_gpu(options: Options, machine: Machine) -> bool:
    """Two replicas train on partitions of the same GPU."""
    gpu_of_each = positions(options, len(visible_gpus(options, machine)))
    return len(set(gpu_of_each)) < len(gpu_of_each)


# ---- rules --------------------------------------------------------------------------------------


def none_shown(options: Options, machine: Machine) -> Iterator[Finding]:
    """Report that a machine with GPUs would train on the CPU, or on other GPUs than the user means."""
    if options.device.visible == "none" or (options.device.visible == "all" and machine.on_cpu_by_variable):
        return
    if machine.fault and not machine.missing:
        yield _of_fault(machine.fault)
    elif old := gpu_faults.old_driver(machine.driver, machine.cuda):
        yield _of_fault(old)
    elif options.device.visible == "all":
        value = machine.visible_devices
        if value is None and machine.gpus and not machine.shown:
            yield error(KEY, gpu_faults.NO_INSTANCE, f"{gpu_faults.NEW_INSTANCE}; or {ON_THE_CPU}")
        # A misleading order does not matter if all GPUs train.
        all_train = value is None and options.strategy.kind in plan.SEVERAL_REPLICAS
        for fault in gpu_faults.of_visible_devices(value, machine.gpus):
            if not (fault.about == gpu_faults.ORDER and all_train):
                yield _of_fault(fault)


def _of_fault(fault: Finding) -> Finding:
    on_cpu = "" if fault.level != "error" or ON_THE_CPU in fault.remedy else f"; or {ON_THE_CPU}"
    return replace(fault, remedy=f"{fault.remedy}{on_cpu}", options=(KEY,))


def usable(options: Options, machine: Machine) -> Iterator[Finding]:
    """GPUs that cannot train, of different models, or whose memory is used; `free:2` waits for those that work."""
    visible, gpus = options.device.visible, training_gpus(options, machine)
    shown = machine.shown_by(",".join(map(str, visible))) if isinstance(visible, list) else machine.shown
    if visible != "none" and shown and not used_by_tensorflow(shown):
        message = f"TensorFlow has no code for {', '.join(map(str, shown))}: the chip is too old"
        yield error(KEY, message, f"use an older TensorFlow, or another GPU; or {ON_THE_CPU}")
    models = dict.fromkeys(gpu.name for gpu in gpus)
    if len(models) > 1 and options.strategy.kind in plan.SEVERAL_REPLICAS:
        message = f"replicas on different GPUs ({', '.join(map(str, models))}): each step waits for the slowest"
        yield warning(("strategy.kind", KEY), message, f"name GPUs of one model in {KEY}")
    for gpu in gpus if options.device.choice is None else ():
        if gpu.lost:
            yield error(KEY, f"GPU {gpu.index}: {gpu.lost}", f"{_OTHER}; dmesg may show why")
        elif gpu.prohibited:
            yield error(
                KEY, f"GPU {gpu.index}: its compute mode is PROHIBITED", f"as root: nvidia-smi -c DEFAULT; or {_OTHER}"
            )
        elif holder := sole_holder(gpu):
            message = f"{holder} has GPU {gpu.index} for itself: its compute mode is EXCLUSIVE_PROCESS"
            yield error(KEY, message, f"wait until it ends, or {_OTHER}")
        elif gpu.is_taken and gpu.memory_used_bytes and gpu.memory_total_bytes:
            taken = f"{size(gpu.memory_used_bytes)} of {size(gpu.memory_total_bytes)}"
            by = f" by {', '.join(process.title for process in gpu.processes[:3])}" if gpu.processes else ""
            yield warning(KEY, f"GPU {gpu.index}: {taken} are already in use{by}", _OTHER)


def missing_gpus(options: Options, machine: Machine) -> Iterator[Finding]:
    """Named GPUs; for a choice such as `free:2` too few, or shared ones without a limit of their memory."""
    visible, choice = options.device.visible, options.device.choice
    for name in () if isinstance(visible, str) else dict.fromkeys(visible):
        if not machine.missing and not machine.finds(name) and not str(name).startswith("MIG-"):
            reason = f"this machine has {len(machine.gpus)}" if machine.gpus else machine.no_gpu_reason
            yield error(KEY, f"there is no GPU {name} ({reason})",
                        "set it to all, none, or the numbers of existing GPUs")  # fmt: skip
    if isinstance(visible, list) and len(set(visible)) != len(visible):
        yield error(KEY, "names a GPU twice", "name each once")
    if isinstance(visible, list) and len({name[:4] if isinstance(name, str) else "" for name in visible}) > 1:
        yield error(KEY, "mixes indices and UUIDs; CUDA reads only those of the same kind as the first",
                    "use only indices, or only UUIDs")  # fmt: skip
    if choice is None or machine.missing:
        return
    if not machine.gpus:
        yield error(KEY, f"{choice} needs a GPU ({machine.no_gpu_reason})", "set it to all, and the CPU trains")
    elif len(have := candidates(choice, machine)) < choice.count:
        is_mig = choice.count > 1 and any(gpu.instance is not None for gpu in machine.parts)
        mig = "; CUDA shows one MIG instance to a process" if is_mig else ""
        what = f"{choice} needs {choice.kind}; this process may use {len(have)} such of {len(machine.parts)}{mig}"
        yield error(KEY, what, "ask for fewer, or for another kind")
    if choice.shared and not options.device.grows and options.device.memory_limit_mb is None:
        message = f"{choice} shares a GPU with others, but TensorFlow would take nearly all of its memory"
        yield error((KEY, "device.memory_growth"), message, "set memory_growth=auto, or a memory_limit_mb")


def allocation(options: Options, machine: Machine) -> Iterator[Finding]:
    """GPUs that are not allocated to this job. A choice such as `free:2` uses only allocated GPUs."""
    given, visible = machine.allocation, options.device.visible
    if given is None or visible == "none" or options.device.choice:
        return
    if visible == "all":
        beyond = [gpu.index for gpu in visible_gpus(options, machine) if not given.allows(gpu.index, machine.gpus)]
        if beyond:
            own = ",".join(given.names)
            message = f"{given}, but CUDA_VISIBLE_DEVICES does not hide the others"
            yield warning(KEY, message, f"set it to {own}" if own else "set it to none")
        return
    for name in dict.fromkeys(visible):
        if not given.allows(name, machine.gpus):
            change = "name only GPUs of this job, or set it to all" if given.names else "set it to none"
            yield error(KEY, f"GPU {name} is not allocated to this job: {given}", change)


# ---- what the GPUs support ------------------------------------------------------------------------


def precision(options: Options, machine: Machine) -> Iterator[Finding]:
    needed = {"mixed_float16": FLOAT16_CAPABILITY, "mixed_bfloat16": BFLOAT16_CAPABILITY}.get(options.precision.policy)
    for gpu in training_gpus(options, machine):
        if not needed or not (has := gpu.compute_capability) or tuple(has) >= needed:
            continue
        if needed == FLOAT16_CAPABILITY and has in chips.FAST_FLOAT16_WITHOUT_TENSOR_CORES:
            message = f"GPU {gpu.index} (compute capability {dotted(has)}) has no tensor cores: float16 gains little"
            yield warning("precision.policy", message, "compare with float32: gputui ab measures both")
        else:
            change = "set it to float32" if needed == FLOAT16_CAPABILITY else "set it to mixed_float16 or float32"
            message = f"it needs compute capability {dotted(needed)}, but GPU {gpu.index} has {dotted(has)}"
            yield error("precision.policy", message, change)
    if options.precision.policy == "mixed_float16" and on_cpu(options, machine):
        yield warning("precision.policy", "float16 is slower than float32 on a CPU",
                      "use mixed_bfloat16, which is faster on CPUs with AVX-512 BF16 or AMX")  # fmt: skip


def compiled(options: Options, machine: Machine) -> bool:
    """XLA compiles the training step on GPUs; for `auto` as trainer/setup/compiling.py decides, but for the layers."""
    gpus = training_gpus(options, machine)
    if not gpus or any(compatibility.xla_aborts(gpu.compute_capability) for gpu in gpus):
        return False
    if options.compile.xla != "auto":
        return options.compile.xla
    return options.strategy.kind == "single" and not options.train.deterministic


class Suited(NamedTuple):
    """A value of the option `key` that suits the GPUs, and why."""

    key: str
    value: Any
    why: str


def for_gpus(options: Options, machine: Machine) -> list[Suited]:
    """Return precision, TF32 and XLA as they suit the training GPU of the least compute capability; empty if there is
    none, or if that is not known.
    """
    gpus = [gpu for gpu in training_gpus(options, machine) if gpu.compute_capability]
    if not gpus:
        return []
    least = min(gpus, key=lambda gpu: gpu.compute_capability or ())
    capability = least.compute_capability or ()
    has = f"compute capability {dotted(capability)} has"
    policy = chips.best_policy(capability, least.name)
    why_policy = {
        "mixed_bfloat16": f"{has} tensor cores for bfloat16: half the memory, no loss scaling",
        "mixed_float16": f"{has} tensor cores for float16, not for bfloat16; the loss is scaled",
        "float32": f"{has} no tensor cores: other formats gain little",
    }
    tf32, why_tf32 = options.precision.tf32, f"{has} no TF32: without effect"
    if capability >= BFLOAT16_CAPABILITY:
        tf32, why_tf32 = True, "products that stay float32 use the tensor cores, with 10 bits of mantissa"
    xla, why_xla = (
        options.compile.xla,
        "auto leaves it off with a strategy or if deterministic; gputui ab measures it",
    )
    if any(compatibility.xla_aborts(gpu.compute_capability) for gpu in gpus):
        xla, why_xla = "auto", "XLA of this TensorFlow crashes on this chip, and auto leaves it off"
    elif compiled(options.with_values({"compile.xla": "auto"}), machine):
        xla, why_xla = xla or "auto", "compiles the step; with auto the run goes on without XLA if that fails"
    return [
        Suited("precision.policy", policy, why_policy[policy]),
        Suited("precision.tf32", tf32, why_tf32),
        Suited("compile.xla", xla, why_xla),
    ]


def chip(options: Options, machine: Machine) -> Iterator[Finding]:
    """Driver and XLA have no code for it."""
    for gpu in training_gpus(options, machine):
        capability = gpu.compute_capability
        if lacks := compatibility.lacks_code(capability) or compatibility.driver_lacks(capability, machine.cuda):
            yield error(KEY, f"GPU {gpu.index}: {lacks.what}", f"{lacks.remedy}, or {_OTHER}")
        if options.compile.xla is True and compatibility.xla_aborts(capability):
            built = dotted(installed.cuda_version() or (0, 0))
            crashes = f"crashes on GPU {gpu.index} (compute capability {dotted(capability or ())})"
            yield error("compile.xla", f"XLA of this TensorFlow, built with CUDA {built}, {crashes}",
                        "set it to auto or false: without XLA the GPU works")  # fmt: skip


def cudnn(options: Options, machine: Machine) -> Iterator[Finding]:
    """XLA fails at convolutions, which a user's model may have."""
    gpus, own = training_gpus(options, machine), options.workload.entry is not None
    has_convolutions = not own and options.workload.model in _WITH_CUDNN
    of_each = [gpu.compute_capability for gpu in gpus]
    if gpus and (old := compatibility.old_cudnn(of_each)):
        yield error(KEY, old.what, f"{old.remedy}; or set it to none to train on the CPU")
        return
    lacking = [gpu for gpu in gpus if compatibility.lacks_cudnn(gpu.compute_capability)]
    for gpu in lacking:
        chip = f"GPU {gpu.index} (compute capability {dotted(gpu.compute_capability or ())})"
        what = f"the installed cuDNN {dotted(installed.cudnn_version() or ())} has no code for {chip}: "
        yield on_options("error" if has_convolutions else "warning", KEY,
                         f"{what}convolutions and other layers crash",
                         f"{compatibility.right_cudnn([gpu.compute_capability])}, or {_OTHER}")  # fmt: skip
    if lacking or not (has_convolutions or own) or not compiled(options, machine):
        return
    if fails := compatibility.xla_fails(of_each):
        explicit = options.compile.xla is True
        level = ("error" if has_convolutions else "warning") if explicit else "warning" if has_convolutions else "note"
        is_active = "" if explicit else ": the training then begins again without XLA"
        yield on_options(level, "compile.xla", f"{fails.what}{is_active}", fails.remedy)


def build(options: Options, machine: Machine) -> Iterator[Finding]:
    info = installed.build_info()
    if training_gpus(options, machine) and info and not (info.get("is_cuda_build") or info.get("is_rocm_build")):
        message = "the installed TensorFlow is built without CUDA: it cannot use this machine's GPUs"
        otherwise = "; or set it to none to train on the CPU" if supported_versions.HAS_CUDA else ""
        yield error("device.visible", message, f"{installed.with_cuda()}{otherwise}")


def memory(options: Options, machine: Machine) -> Iterator[Finding]:
    """Its limit and partitions, and options that do not go with them."""
    device = options.device
    for key in device.divided if device.allocator != "default" else ():
        yield error(("device.allocator", key),
                    "cuda_malloc_async supports neither a memory limit nor partitions of a GPU",
                    "set device.allocator=default")  # fmt: skip
    for key in device.divided if device.memory_growth is True and not on_cpu(options, machine) else ():
        yield error(("device.memory_growth", key),
                    "TensorFlow ignores memory growth when memory is limited or partitioned",
                    "set device.memory_growth=auto")  # fmt: skip
    for gpu in training_gpus(options, machine):
        total = gpu.memory_total_bytes or 0
        limit = (device.memory_limit_mb or 0) * 1024**2
        if total and limit * device.logical_devices > total:
            yield error("device.memory_limit_mb",
                        f"{device.logical_devices} x {size(limit)} is more than GPU {gpu.index} has ({size(total)})",
                        f"give at most {total // 1024**2 * 9 // 10 // device.logical_devices}")  # fmt: skip
    if device.logical_devices > 1 and on_cpu(options, machine):
        yield note("device.logical_devices",
            f"no GPU is used: the CPU is split into {device.logical_devices} logical devices, to try a strategy",
            "do not expect a speed-up")  # fmt: skip


def per_gpu(options: Options, machine: Machine) -> Iterator[Finding]:
    """Queued runs with these options cannot share one GPU."""
    count, key = options.run.per_gpu, "run.per_gpu"
    if count == 1 or on_cpu(options, machine):
        return
    choice = options.device.choice
    if conflict := machine_gpus.why_not_shared(options, on_cpu=False):
        yield error((key, *conflict.options), conflict.what, f"set {conflict.remedy}, or {key}=1")
    elif choice is None or choice.shared or choice.count != 1:
        why = "the queue chooses the GPU that the runs share"
        yield error((key, "device.visible"), why, f"set device.visible=free:1, or {key}=1")
    else:
        try:
            machine_gpus.part_of_each(options, machine, count)
        except machine_gpus.TooSmall as fault:
            yield error(key, str(fault), f"set {key}=1")


def without_effect(options: Options, machine: Machine) -> Iterator[Finding]:
    """On a GPU because of another option, or because there is none."""
    device = options.device
    if device.gpu_thread_count != "auto" and device.gpu_thread_mode == "global":
        yield warning(("device.gpu_thread_count", "device.gpu_thread_mode"),
                      "it has no effect with gpu_thread_mode=global, which has no threads of its own for GPUs",
                      "set device.gpu_thread_mode=gpu_private, or device.gpu_thread_count=auto")  # fmt: skip
    if options.compile.xla_flags and options.compile.xla is False:
        yield warning(("compile.xla_flags", "compile.xla"), "XLA compiles nothing, so its flags have no effect",
                      "set compile.xla=true, or remove compile.xla_flags")  # fmt: skip
    for info in OPTIONS if on_cpu(options, machine) else ():
        about: About = info.about
        value = options.value(info.key)
        if about.gpu_only and value != info.default:
            yield note((info.key,), "does nothing without a GPU", "training continues without it")


def xla(options: Options, machine: Machine) -> Iterator[Finding]:
    explicit = options.compile.xla is True
    smaller = _has_smaller_batch(options, machine)
    if smaller is not False if explicit else smaller and compiled(options, machine):
        yield on_options("warning" if explicit else "note", ("compile.xla", "input.drop_remainder"),
                         "XLA compiles once more for the last, smaller batch of the epoch",
                         "set input.drop_remainder=true")  # fmt: skip


def _has_smaller_batch(options: Options, machine: Machine) -> bool | None:
    """Return True if a step gets the last, smaller batch of an epoch; None if the samples are not counted."""
    if options.input.drop_remainder or options.input.one_batch:
        return False
    samples = plan.training_samples(options.workload, options.train)
    if samples is None:
        return None
    count = replicas(options, machine)
    batch = plan.global_batch(options, count)
    batches = plan.batches_per_pass(samples, batch, count)
    steps = options.train.epochs * plan.steps_per_epoch(options.train, batches)
    return plan.smaller_last_batch(samples, batch, batches) and steps >= batches


def strategy(options: Options, machine: Machine) -> Iterator[Finding]:
    kind, devices = options.strategy.kind, options.strategy.devices
    visible = len(visible_gpus(options, machine))
    available, is_known = plan.devices(options, visible), visible or on_cpu(options, machine)
    if kind == "single" and devices != "all":
        yield warning("strategy.devices", "single uses the first device only", "set strategy.kind")
    if kind != "single" and devices != "all":
        if len(set(devices)) != len(devices) or not devices:
            yield error("strategy.devices", "must name at least one device, each once", "set it to all")
        elif is_known and max(devices) >= available:
            yield error("strategy.devices", f"there is no device {max(devices)}; there are {available}, counted from 0",
                        "name fewer, or raise device.logical_devices")  # fmt: skip
    if is_known and kind == "mirrored" and plan.replicas(options.strategy, available) < 2:
        other, change = "device.logical_devices", "device.logical_devices=2 to try the strategy"
        if devices != "all":
            other, change = "strategy.devices", "name several devices in strategy.devices"
        yield warning(("strategy.kind", other), "mirrored over one device is no faster than single",
                      f"use strategy.kind=single, or {change}")  # fmt: skip
    way = options.strategy.communication
    if way == "nccl" and on_cpu(options, machine):
        yield error(_COMMUNICATION, "nccl works between GPUs only", "set it to auto")
    elif way == "nccl" and kind == "mirrored" and share_a_gpu(options, machine):
        yield error((_COMMUNICATION, "device.logical_devices"), "NCCL does not support two replicas on one GPU",
                    "set strategy.communication=auto, or device.logical_devices=1")  # fmt: skip
    if way != "auto" and kind not in plan.SEVERAL_REPLICAS:
        what = f"strategy {kind} exchanges no gradients, so this has no effect"
        yield warning(_COMMUNICATION, what, "set it to auto")
    if kind == MULTI_WORKER and way in WITHIN_A_MACHINE:
        yield error(_COMMUNICATION, f"{way} exchanges within one machine", "set it to auto, ring or nccl")
    if kind == "mirrored" and way == "ring":
        yield error(_COMMUNICATION, f"ring exchanges between machines (strategy.kind={MULTI_WORKER})", "set it to auto")


# ---- several machines -----------------------------------------------------------------------------


def of_kind(kind: object, machine: Machine) -> Iterator[Finding]:
    """About other tasks and machines for a run with the strategy `kind`."""
    if kind != MULTI_WORKER:
        yield from machine.job
    elif machine.cluster_fault:
        yield machine.cluster_fault
    elif machine.cluster is None and machine.job_id:
        message = f"this is the Slurm job's batch script or shell, which runs once (job {machine.job_id})"
        yield error(KIND, message, "start one task on each node: srun gputui --preset P")
    elif machine.cluster is None:
        yield error(KIND, "nothing names the machines to train on", cluster.HOW)
    else:
        yield note(KIND, f"this is {machine.cluster}", "its run goes on only while all workers do")


def others(options: Options, machine: Machine) -> Iterator[Finding]:
    return of_kind(options.strategy.kind, machine)


def measured_alone(kind: str) -> str:
    """Return why a proof or a search cannot measure the strategy `kind`; empty if it can."""
    why = f"strategy.kind=multi_worker: its trials would have to be started on all machines; {_RUN_OF_ITS_OWN}"
    return why if kind == MULTI_WORKER else ""


def by_command(kind: object) -> list[Finding]:
    """A training on several machines cannot be started from a screen."""
    change = "save the preset, and start it on every machine: gputui --preset P; gputui resume RUN resumes it there"
    message = "a training on several machines is started by its command, not from a screen"
    return [error(KIND, message, change)] if kind == MULTI_WORKER else []


def workers(options: Options, machine: Machine) -> Iterator[Finding]:
    """Each worker uses all of its visible GPUs, or its CPU as one device. NCCL must see all GPUs of a node to find
    every NVLink between them (github.com/NVIDIA/nccl/issues/1066).
    """
    if options.strategy.kind != MULTI_WORKER:
        return
    if options.workload.is_script:
        change = "set strategy.kind=mirrored, or write a function build"
        yield error((KIND, "workload.entry"), "a script trains on one machine", change)
    if options.run.on_oom != "stop":
        yield error(("run.on_oom", KIND),
                    "one worker whose memory has run out cannot go on alone: all have to begin again together",
                    "set run.on_oom=stop")  # fmt: skip
    here = len(machine.cluster.on_this_host) if machine.cluster else 0
    if here > 1 and not on_cpu(options, machine):
        message = f"{here} workers share this host, and each sees only its own GPUs: NCCL may not find their NVLinks"
        yield warning(KIND, message, "start one worker on each node (srun --ntasks-per-node=1) for all its GPUs")
    if options.strategy.devices != "all":
        change = "set it to all, and name GPUs in device.visible"
        yield error("strategy.devices", f"{MULTI_WORKER} takes all visible GPUs", change)
    if options.device.logical_devices > 1:
        message = f"{MULTI_WORKER} takes each GPU as a whole, and a CPU as one device"
        yield error("device.logical_devices", message, "set it to 1, or strategy.kind=mirrored to try a strategy here")
