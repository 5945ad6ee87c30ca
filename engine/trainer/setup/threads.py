"""Gives TensorFlow as many threads as the options say, or as the container's CPU limit leaves."""

from __future__ import annotations

import tensorflow as tf

from ...options import Device
from ...telemetry import limits


def configure(device: Device) -> None:
    """`auto` is TensorFlow's own number, one for each CPU that it may run on; it knows no limit of a container."""
    auto = limits.usable_cpus() if limits.cpus_limited() else None
    inter = auto if device.inter_op_threads == "auto" else device.inter_op_threads
    intra = auto if device.intra_op_threads == "auto" else device.intra_op_threads
    if inter is not None:
        tf.config.threading.set_inter_op_parallelism_threads(inter)
    if intra is not None:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
