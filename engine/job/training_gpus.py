"""The GPUs that TensorFlow may see and those that train, by the options."""

from __future__ import annotations

from collections.abc import Sequence

from ..interpreter import installed
from ..options import Options, gpu_choice
from ..options.gpu_choice import GpuChoice
from ..plan import SEVERAL_REPLICAS
from ..telemetry import chips
from .machine_gpus import Gpu, Machine


def used_by_tensorflow(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that TensorFlow uses, of the GPUs that CUDA shows; it ignores those that are too small or too
    old.

    As in gpu_device.cc, GetValidDeviceIds: a display card is not used together with a larger GPU.
    """
    least = chips.least_multiprocessors(gpu.multiprocessors for gpu in gpus)
    oldest = min(installed.capabilities(), default=(0, 0))
    return [
        gpu
        for gpu in gpus
        if (gpu.multiprocessors is None or gpu.multiprocessors >= least)
        and (gpu.compute_capability is None or tuple(gpu.compute_capability) >= oldest)
    ]


def visible_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """Return the GPUs that TensorFlow sees and uses, in its order; empty if device.visible is none.

    If device.visible leaves the choice to gputui, return as many GPUs of the kind that it names; which are chosen is
    only known when the run starts.
    """
    visible = options.device.visible
    if visible == "none":
        return []
    if choice := gpu_choice.parse(visible):
        return candidates(choice, machine)[: choice.count]
    shown = machine.shown if visible == "all" else machine.shown_by(",".join(map(str, visible)))
    return used_by_tensorflow(shown)


def candidates(choice: GpuChoice, machine: Machine) -> list[Gpu]:
    """Return the GPUs of this process from which the choice is made: of its kind, working, allocated to its job, and
    not in MIG mode.
    """
    given = machine.allocation
    allowed = (gpu for gpu in machine.shown if given is None or given.allows(gpu.index, machine.devices))
    usable = (gpu for gpu in used_by_tensorflow(list(allowed)) if not (gpu.mig or gpu.lost or gpu.prohibited))
    return [gpu for gpu in usable if choice.allows(gpu.name, gpu.memory_total_bytes)]


def training_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """Return the visible GPUs on which a replica of the model trains; one GPU for the strategies `single` and
    `one_device`.
    """
    gpus = visible_gpus(options, machine)
    return [gpus[position] for position in dict.fromkeys(positions(options, len(gpus))) if position < len(gpus)]


def positions(options: Options, gpus: int) -> list[int]:
    """Return the index of each replica's GPU among the visible GPUs; `gpus` is the number of visible GPUs."""
    strategy, parts = options.strategy, options.device.logical_devices
    chosen = range(gpus * parts) if strategy.devices == "all" or strategy.kind == "single" else strategy.devices
    gpu_of_each = [device // parts for device in chosen]
    return gpu_of_each if strategy.kind in SEVERAL_REPLICAS else gpu_of_each[:1]
