"""Sets the number of TensorFlow's threads from the options, or from the container's CPU limit."""

from __future__ import annotations

import tensorflow as tf

from ...options import Device
from ...telemetry import limits


def configure(device: Device) -> None:
    """`auto` is TensorFlow's default, one thread per CPU of its affinity mask, within a container's CPU limit."""
    auto = limits.usable_cpus() if limits.cpus_limited() else None
    inter = auto if device.inter_op_threads == "auto" else device.inter_op_threads
    intra = auto if device.intra_op_threads == "auto" else device.intra_op_threads
    if inter is not None:
        tf.config.threading.set_inter_op_parallelism_threads(inter)
    if intra is not None:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
