"""How often a training says where it stands: a few times a second, and once a second what memory it takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence

import tensorflow as tf

from .run_figures import Moment
from .run_report import RunReport

PULSE_SECONDS = 0.25
SLOW_PULSE_SECONDS = 1.0
SLOW_AFTER_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class Pulses:
    """Knows when the next pulse is due, and writes its events; with `slows_down` there are fewer after a minute."""

    def __init__(self, report: RunReport, device_names: Sequence[str], slows_down: bool) -> None:
        self._report, self._device_names = report, device_names
        self._young_seconds = SLOW_AFTER_SECONDS if slows_down else math.inf
        self._next_pulse = self._next_memory = 0.0

    def due(self, now: float) -> bool:
        return now >= self._next_pulse

    def pulse(self, moment: Moment) -> None:
        """Write progress, and memory where that is due, and plan the next pulse."""
        now = time.perf_counter()
        young = self._report.elapsed < self._young_seconds
        self._next_pulse = now + (PULSE_SECONDS if young else SLOW_PULSE_SECONDS)
        self._report.pulse(moment)
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            self._report.memory(peak_bytes(self._device_names))

    def first_step_done(self) -> None:
        """Write the memory of the first step, and count the peaks of GPUs anew: in it cuDNN tries its algorithms."""
        on_gpus = [name for name in self._device_names if "GPU:" in name]
        self._report.memory(peak_bytes(on_gpus), first_step=True)
        for name in on_gpus:
            with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
                tf.config.experimental.reset_memory_stats(_short(name))

    def out_of_turn(self, moment: Moment) -> None:
        """Write both now: an epoch has ended, or the training."""
        self._report.pulse(moment)
        self._report.memory(peak_bytes(self._device_names))


def peak_bytes(device_names: Sequence[str]) -> dict[str, dict[str, int]]:
    """TensorFlow's own current and peak bytes of each device that keeps count of them."""
    found = {}
    for name in device_names:
        short = _short(name)
        try:
            info = tf.config.experimental.get_memory_info(short)
        except (ValueError, RuntimeError, tf.errors.OpError):
            continue
        if info["peak"]:  # the CPU's allocator does not count small tensors: 0 means that nothing was counted
            found[short] = {"current_bytes": int(info["current"]), "peak_bytes": int(info["peak"])}
    return found


def _short(name: str) -> str:
    """TensorFlow's name of a device, as its functions about memory take it."""
    return name.split("device:")[-1]
