"""Creates the tf.distribute.Strategy from `strategy` and the existing devices.

Every device name is checked here, because MirroredStrategy over a missing device hangs forever in fit.
"""

from __future__ import annotations

from typing import assert_never

import tensorflow as tf

from ...options import Options
from ...options import Strategy as StrategyOptions
from ...plan import MULTI_WORKER
from ..common.faults import TrainerError
from .devices import Devices


def build(options: Options, devices: Devices) -> tf.distribute.Strategy | None:
    """The strategy of the options. None for `single`: then TensorFlow's default strategy trains on the first device."""
    requested = options.strategy
    if requested.kind == "single":
        return None
    names = _chosen(requested, devices)
    if requested.kind == "one_device":
        return tf.distribute.OneDeviceStrategy(names[0])
    if requested.kind == MULTI_WORKER:
        return devices.connected
    if requested.kind == "mirrored":
        return tf.distribute.MirroredStrategy(names, cross_device_ops=_communication(requested, devices))
    assert_never(requested.kind)  # a kind that is declared and not built fails the type check


def _chosen(requested: StrategyOptions, devices: Devices) -> list[str]:
    if requested.devices == "all":
        return list(devices.names)
    there = devices.by_position
    beyond = [position for position in requested.devices if position not in there]
    if beyond:
        available = len(there) if devices.available is None else devices.available
        raise TrainerError(
            "device",
            f"strategy.devices names {devices.kind} {beyond[0]}, but there are {available} (counted from 0)",
            "list fewer devices, or set device.logical_devices",
        )
    return [there[position] for position in requested.devices]


def _communication(requested: StrategyOptions, devices: Devices) -> tf.distribute.CrossDeviceOps | None:
    if requested.communication == "nccl":
        if devices.kind != "GPU":
            raise TrainerError("strategy", "strategy.communication=nccl needs GPUs", "set it to auto")
        return tf.distribute.NcclAllReduce()
    if requested.communication == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce()
    if requested.communication == "reduction_to_one_device":
        return tf.distribute.ReductionToOneDevice()
    return None
