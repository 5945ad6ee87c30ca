"""The GPUs that TensorFlow sees and the GPUs that train, according to the options."""

from __future__ import annotations

from collections.abc import Sequence

from ..interpreter import installed
from ..options import Options, gpu_choice
from ..options.gpu_choice import GpuChoice
from ..plan import SEVERAL_REPLICAS
from ..telemetry import chips
from .machine_gpus import Gpu, Machine


def used_by_tensorflow(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return those of `gpus`, the GPUs that CUDA shows, that TensorFlow uses.

    It ignores GPUs that are older than all for which it was built, and GPUs with few multiprocessors, such as a display
    card, if there is a larger one (gpu_device.cc, GetValidDeviceIds).
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

    If device.visible leaves the choice to gputui (`free:2`), return the first candidates, at most that number. The GPUs
    are chosen only when the run starts.
    """
    visible = options.device.visible
    if visible == "none":
        return []
    if choice := gpu_choice.parse(visible):
        return candidates(choice, machine)[: choice.count]
    shown = machine.shown if visible == "all" else machine.shown_by(",".join(map(str, visible)))
    return used_by_tensorflow(shown)


def candidates(choice: GpuChoice, machine: Machine) -> list[Gpu]:
    """Return the GPUs and MIG instances from which the choice is made: those that this process may use, of the kind of
    the choice, working, and allocated to this job.

    A choice of several GPUs has no instances, as CUDA shows one instance to a process.
    """
    given = machine.allocation
    allowed = (
        gpu for gpu in machine.parts if given is None or given.allows(gpu.instance or gpu.index, machine.devices)
    )
    usable = (gpu for gpu in used_by_tensorflow(list(allowed)) if not (gpu.lost or gpu.prohibited))
    usable = (gpu for gpu in usable if choice.count == 1 or not gpu.instance)
    return [gpu for gpu in usable if choice.allows(gpu.name, gpu.memory_total_bytes)]


def training_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """Return the visible GPUs on which a replica of the model trains, each once. With the strategies `single` and
    `one_device` it is one GPU.
    """
    gpus = visible_gpus(options, machine)
    return [gpus[position] for position in dict.fromkeys(positions(options, len(gpus))) if position < len(gpus)]


def positions(options: Options, gpus: int) -> list[int]:
    """Return for each replica the position (from 0) of its GPU among the `gpus` visible GPUs.

    A position in strategy.devices that does not exist is returned, too.
    """
    strategy, parts = options.strategy, options.device.logical_devices
    chosen = range(gpus * parts) if strategy.devices == "all" or strategy.kind == "single" else strategy.devices
    gpu_of_each = [device // parts for device in chosen]
    return gpu_of_each if strategy.kind in SEVERAL_REPLICAS else gpu_of_each[:1]
