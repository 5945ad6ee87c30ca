"""The engine's readings of GPUs and host, written as events of the run.

Of two threads one waits for the NVIDIA driver (reader.py); this one reads the host and reports when the other hangs.
Neither delays a stop or a heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from ..runs.event_writer import EventWriter
from ..runs.events import Warn
from .host import Host
from .reader import GpuReader

STUCK_SECONDS = 30.0


class Sampler(threading.Thread):
    """Emits a `host` event every `interval_seconds` and lets a GpuReader emit the `gpu` events."""

    def __init__(
        self,
        events: EventWriter,
        trainer_pid: int,
        interval_seconds: float,
        *,
        pcie: bool = False,
        network: bool = False,
    ) -> None:
        super().__init__(name="sampler", daemon=True)
        self.trainer_memory_share: float | None = None
        self._events, self._interval_seconds = events, interval_seconds
        self._done = threading.Event()
        self._trainer_pid, self._network = trainer_pid, network
        self._gpus = GpuReader(events.emit, interval_seconds, pcie=pcie, own_pid=trainer_pid)

    def stop(self) -> None:
        """Let the readings in progress end; NVML is closed by its own thread, after its last call."""
        self._done.set()
        self._gpus.stop()
        if self.is_alive():
            self.join(timeout=2)

    def driver_errors(self, seconds: float, gpus: Collection[str]) -> list[str]:
        """The errors of these GPUs that the driver has reported in the last seconds, as its log has them."""
        return self._gpus.errors_since(time.monotonic() - seconds, gpus)

    def run(self) -> None:
        self._gpus.start()
        host, warned = Host(self._trainer_pid, self._network), False
        while not self._done.wait(self._interval_seconds):
            reading = host.read()
            if reading.trainer_bytes is not None:
                self.trainer_memory_share = reading.trainer_bytes / reading.memory_total_bytes
            self._events.emit(reading)
            if not warned and self._gpus.stuck_seconds > STUCK_SECONDS:
                self._events.emit(_stuck(self._gpus.stuck_seconds))
                warned = True


def _stuck(seconds: float) -> Warn:
    return Warn(
        kind="telemetry_stuck",
        message=f"the NVIDIA driver has not answered for {seconds:.0f} s: there are no new GPU readings",
        hint="the training goes on; nvidia-smi probably hangs, too",
    )
