"""Pins the trainer to the CPUs of the NUMA node that its GPUs are connected to. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import os

from ...options import Options
from ...telemetry import affinity, limits
from ...telemetry.training_gpus import training_gpus
from . import machine


def pin(options: Options) -> str:
    """Apply `device.numa` before TensorFlow counts the CPUs; returns what was done, or why nothing was."""
    if options.device.numa == "off":
        return "device.numa is off"
    if options.device.visible == "none":
        return "no GPU trains"
    if affinity.nodes() < 2:
        return "the machine has one NUMA node"
    gpus = training_gpus(options, machine.read())
    nodes = machine.cpus_beside([gpu.index for gpu in gpus])
    if not gpus or not all(nodes):
        return "the driver does not report which CPUs are close to the GPUs"
    if len(set(nodes)) > 1:
        return "the GPUs that train are on different NUMA nodes"
    return _pin(nodes[0], ", ".join(str(gpu.index) for gpu in gpus))


def _pin(beside: frozenset[int], gpus: str) -> str:
    allowed = os.sched_getaffinity(0)
    if not beside & allowed:
        return f"no usable CPU is on the NUMA node of GPU {gpus}"
    if allowed <= beside:
        return f"all usable CPUs are on the NUMA node of GPU {gpus}"
    near, usable = len(beside & allowed), limits.usable_cpus()
    if 2 * near < usable:  # too few to prepare the input
        return f"only {near} of the {usable} usable CPUs are on the NUMA node of GPU {gpus}"
    for thread in os.listdir("/proc/self/task"):  # TensorFlow may have been imported already
        with contextlib.suppress(OSError):  # the thread has ended, or the container forbids it
            os.sched_setaffinity(int(thread), beside & allowed)
    return f"on CPUs {affinity.in_words(beside & allowed)}, the NUMA node of GPU {gpus}"
