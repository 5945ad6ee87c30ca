"""Runs the trainer beside its GPUs: on the CPUs of the NUMA node that these are connected to. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import os

from ...checks.gpus import training_gpus
from ...options import Options
from ...telemetry import affinity, limits, machine


def pin(options: Options) -> str:
    """Follow `device.numa`, before TensorFlow counts the CPUs for its threads; says what was done, or why nothing."""
    if options.device.numa == "off":
        return "device.numa is off"
    if options.device.visible == "none":
        return "no GPU trains"
    if affinity.nodes() < 2:
        return "the machine has one NUMA node"
    gpus = training_gpus(options, machine.read())
    nodes = affinity.beside([gpu.index for gpu in gpus])
    if not gpus or not all(nodes):
        return "the driver does not tell which CPUs are beside the GPUs"
    if len(set(nodes)) > 1:
        return "the GPUs that train are on different NUMA nodes"
    return _pin(nodes[0], ", ".join(str(gpu.index) for gpu in gpus))


def _pin(beside: frozenset[int], gpus: str) -> str:
    allowed = os.sched_getaffinity(0)
    if not beside & allowed:
        return f"none of the CPUs that may be used is beside GPU {gpus}"
    if allowed <= beside:
        return f"all CPUs that may be used are beside GPU {gpus}"
    near, usable = len(beside & allowed), limits.usable_cpus()
    if 2 * near < usable:  # too few to prepare the input
        return f"only {near} of the {usable} CPUs that may be used are beside GPU {gpus}"
    for thread in os.listdir("/proc/self/task"):  # TensorFlow may have been imported already
        with contextlib.suppress(OSError):  # the thread has ended, or the container forbids it
            os.sched_setaffinity(int(thread), beside & allowed)
    return f"on CPUs {affinity.in_words(beside & allowed)}, beside GPU {gpus}"
