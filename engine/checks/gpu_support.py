"""Checks whether the GPUs that train support the options, with this driver and the installed packages."""

from __future__ import annotations

from collections.abc import Iterator

from ..interpreter import compatibility, installed, supported_versions
from ..interpreter.compatibility import dotted
from ..job.machine import Gpu, Machine
from ..job.training_gpus import training_gpus
from ..options import Options
from ..telemetry import chips
from ..telemetry.chips import BFLOAT16_CAPABILITY, FLOAT16_CAPABILITY
from .gpus import on_cpu
from .option_finding import Finding, error

_WITH_CUDNN = ("cnn", "separable_cnn", "resnet50")  # gputui's models whose layers are cuDNN's
_OTHER_GPU = "choose another GPU with device.visible"


def precision(options: Options, machine: Machine) -> Iterator[Finding]:
    needed = {"mixed_float16": FLOAT16_CAPABILITY, "mixed_bfloat16": BFLOAT16_CAPABILITY}.get(options.precision.policy)
    for gpu in training_gpus(options, machine):
        if needed and gpu.compute_capability and tuple(gpu.compute_capability) < needed:
            yield _too_old(gpu, gpu.compute_capability, needed)
    if options.precision.policy == "mixed_float16" and on_cpu(options, machine):
        yield Finding(
            "warning",
            ("precision.policy",),
            "float16 is slower than float32 on a CPU",
            "use mixed_bfloat16, which is faster on CPUs with AVX-512 BF16 or AMX",
        )


def _too_old(gpu: Gpu, capability: tuple[int, int], needed: tuple[int, int]) -> Finding:
    if needed == FLOAT16_CAPABILITY and capability in chips.FAST_FLOAT16_WITHOUT_TENSOR_CORES:
        message = f"GPU {gpu.index} (compute capability {dotted(capability)}) has no tensor cores: float16 gains little"
        return Finding("warning", ("precision.policy",), message, "compare with float32: gputui ab measures both")
    return error(
        "precision.policy",
        f"it needs compute capability {dotted(needed)}, but GPU {gpu.index} has {dotted(capability)}",
        "set it to float32" if needed == FLOAT16_CAPABILITY else "set it to mixed_float16 or float32",
    )


def compiled(options: Options, machine: Machine) -> bool:
    """Return True if XLA compiles the training step on GPUs, according to the options and chips.

    For `auto` the rules are those of trainer/setup/xla.py, which also considers the layers.
    """
    gpus = training_gpus(options, machine)
    if options.compile.xla != "auto":
        return options.compile.xla and bool(gpus)
    single = options.strategy.kind == "single" and not options.train.deterministic
    return single and bool(gpus) and not any(compatibility.xla_aborts(gpu.compute_capability) for gpu in gpus)


def xla_on_the_chip(options: Options, machine: Machine) -> Iterator[Finding]:
    if options.compile.xla is not True:
        return
    for gpu in training_gpus(options, machine):
        if compatibility.xla_aborts(gpu.compute_capability):
            built = dotted(installed.cuda_version() or (0, 0))
            yield error(
                "compile.xla",
                f"XLA of this TensorFlow, built with CUDA {built}, crashes on GPU {gpu.index} "
                f"(compute capability {dotted(gpu.compute_capability or ())})",
                "set it to auto or false: without XLA the GPU works",
            )


def cudnn(options: Options, machine: Machine) -> Iterator[Finding]:
    gpus = training_gpus(options, machine)
    if gpus and (message := compatibility.old_cudnn()):
        change = compatibility.right_cudnn(gpu.compute_capability for gpu in gpus)
        yield error("device.visible", message, f"{change}; or set it to none to train on the CPU")
        return
    lacking = [gpu for gpu in gpus if compatibility.lacks_cudnn(gpu.compute_capability)]
    for gpu in lacking:
        version = dotted(installed.cudnn_version() or ())
        yield Finding(
            "error" if _has_convolutions(options) else "warning",
            ("device.visible",),
            f"the installed cuDNN {version} has no code for GPU {gpu.index} (compute capability "
            f"{dotted(gpu.compute_capability or ())}): convolutions and other layers crash",
            f"{compatibility.right_cudnn([gpu.compute_capability])}, or {_OTHER_GPU}",
        )
    if not lacking and compiled(options, machine) and (message := compatibility.xla_fails()):
        yield from _convolutions(options, gpus, message)


def _convolutions(options: Options, gpus: list[Gpu], message: str) -> Iterator[Finding]:
    """Yield a finding with `message`, which says that XLA fails at convolutions, if the model has convolutions or may
    have some.
    """
    has_convolutions = _has_convolutions(options)
    if not has_convolutions and options.workload.entry is None:
        return
    explicit = options.compile.xla is True
    level = ("error" if has_convolutions else "warning") if explicit else "warning" if has_convolutions else "note"
    goes_on = "" if explicit else ": the training then begins again without XLA"
    change = compatibility.for_xla(gpu.compute_capability for gpu in gpus)
    yield Finding(level, ("compile.xla",), f"{message}{goes_on}", change)


def _has_convolutions(options: Options) -> bool:
    """Return True if the model is gputui's and has layers of cuDNN; False for a user's model, of which this is not
    known.
    """
    return options.workload.entry is None and options.workload.model in _WITH_CUDNN


def driver(options: Options, machine: Machine) -> Iterator[Finding]:
    for gpu in training_gpus(options, machine):
        if message := compatibility.driver_lacks(gpu.compute_capability, machine.cuda):
            yield error(
                "device.visible", f"GPU {gpu.index}: {message}", f"{compatibility.newer_driver()}, or {_OTHER_GPU}"
            )


def build(options: Options, machine: Machine) -> Iterator[Finding]:
    info = installed.build_info()
    if training_gpus(options, machine) and info and not (info.get("is_cuda_build") or info.get("is_rocm_build")):
        message = "the installed TensorFlow is built without CUDA: it cannot use this machine's GPUs"
        otherwise = "; or set it to none to train on the CPU" if supported_versions.HAS_CUDA else ""
        yield error("device.visible", message, f"{installed.with_cuda()}{otherwise}")
