"""Runs the trainer beside its GPUs: on the CPUs of the NUMA node that these are connected to. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import os

from ...options import Options
from ...telemetry import affinity
from ...telemetry.machine import Gpu, visible_gpus


def pin(options: Options) -> str:
    """Follow `device.numa`, before TensorFlow counts the CPUs for its threads; says what was done, or why nothing."""
    if options.device.numa == "off":
        return "device.numa is off"
    if options.device.visible == "none":
        return "no GPU trains"
    if affinity.nodes() < 2:
        return "the machine has one NUMA node"
    gpus = _training(options, visible_gpus())
    nodes = affinity.beside([gpu.index for gpu in gpus])
    if not gpus or not all(nodes):
        return "the driver does not tell which CPUs are beside the GPUs"
    if len(set(nodes)) > 1:
        return "the GPUs that train are on different NUMA nodes"
    return _pin(nodes[0], ", ".join(str(gpu.index) for gpu in gpus))


def _training(options: Options, gpus: tuple[Gpu, ...]) -> list[Gpu]:
    strategy, parts = options.strategy, options.device.logical_devices
    if strategy.kind == "mirrored":
        named = range(len(gpus) * parts) if strategy.devices == "all" else strategy.devices
        chosen = sorted({place // parts for place in named})
    else:
        chosen = [0]
        if strategy.kind == "one_device" and strategy.devices != "all":
            chosen = [strategy.devices[0] // parts]
    return [gpus[place] for place in chosen if place < len(gpus)]


def _pin(beside: frozenset[int], gpus: str) -> str:
    allowed = os.sched_getaffinity(0)
    if not beside & allowed:
        return f"none of the CPUs that may be used is beside GPU {gpus}"
    if allowed <= beside:
        return f"all CPUs that may be used are beside GPU {gpus}"
    for thread in os.listdir("/proc/self/task"):  # TensorFlow may have been imported already
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), beside & allowed)
    return f"on CPUs {affinity.in_words(beside & allowed)}, beside GPU {gpus}"
