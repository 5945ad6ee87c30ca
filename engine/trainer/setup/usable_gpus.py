"""Finds which of the GPUs that TensorFlow lists it would use: it leaves out a display card beside a larger GPU.

TensorFlow applies its rule (GetValidDeviceIds in tensorflow/core/common_runtime/gpu/gpu_device.cc) when it opens its
devices, and only to the visible ones. gputui has to choose those before.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ...system import installed
from ...telemetry import chips
from ...telemetry.gpus import Machine
from . import cuda_driver, training_gpus


def usable(gpus: Sequence[tf.config.PhysicalDevice], machine: Machine) -> list[int]:
    """The indexes of the GPUs that TensorFlow would use if all were visible; unknown properties count as sufficient."""
    oldest = min(installed.capabilities(), default=(0, 0))
    able = [place for place, gpu in enumerate(gpus) if (_capability(gpu) or oldest) >= oldest]
    counts = {place: _multiprocessors(place, machine) for place in able}
    least = chips.least_multiprocessors(counts.values())
    return [place for place, count in counts.items() if count is None or count >= least]


def _multiprocessors(place: int, machine: Machine) -> int | None:
    count = cuda_driver.multiprocessors(place)
    if count is not None:
        return count
    known = training_gpus.before_opening(place, machine)
    return known.multiprocessors if known else None


def _capability(gpu: tf.config.PhysicalDevice) -> tuple[int, int] | None:
    found: tuple[int, int] | None = tf.config.experimental.get_device_details(gpu).get("compute_capability")
    return found
