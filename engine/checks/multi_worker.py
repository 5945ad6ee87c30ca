"""Checks what a training on several machines (strategy.kind: multi_worker) cannot do."""

from __future__ import annotations

from collections.abc import Iterator

from ..job.machine import Machine
from ..options import Options
from .finding import Finding, error

KIND = "multi_worker"
WITHIN_A_MACHINE = ("hierarchical_copy", "reduction_to_one_device")
_COMMUNICATION = "strategy.communication"


def devices(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Every worker takes all of its visible GPUs, or its CPU as one device."""
    if options.strategy.kind != KIND:
        return
    if options.strategy.devices != "all":
        change = "set it to all, and name GPUs in device.visible"
        yield error("strategy.devices", f"{KIND} takes all visible GPUs", change)
    if options.device.logical_devices > 1:
        message = f"{KIND} takes each GPU as a whole, and a CPU as one device"
        yield error("device.logical_devices", message, "set it to 1, or strategy.kind=mirrored to try a strategy here")


def communication(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Some ways of exchange are for one machine, one is for several."""
    kind, way = options.strategy.kind, options.strategy.communication
    if kind == KIND and way in WITHIN_A_MACHINE:
        yield error(_COMMUNICATION, f"{way} exchanges within one machine", "set it to auto, ring or nccl")
    if kind == "mirrored" and way == "ring":
        yield error(_COMMUNICATION, f"ring exchanges between machines (strategy.kind={KIND})", "set it to auto")
