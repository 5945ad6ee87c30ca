"""The engine's sampling thread: one reading of GPUs and host every so often, as events.

A thread of its own, because a slow NVML call must not delay a stop or a heartbeat.
"""

from __future__ import annotations

import threading

import psutil

from ..events import EventWriter, GpuReadings, HostReading
from .nvml import Nvml, NvmlUnavailable


class Sampler(threading.Thread):
    """Emits a `gpu` and a `host` event every `interval_seconds`; without GPUs the reason, once."""

    def __init__(self, events: EventWriter, trainer_pid: int, interval_seconds: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.trainer_memory_share: float | None = None
        self._events, self._interval_seconds = events, interval_seconds
        self._done = threading.Event()
        self._engine = psutil.Process()
        self._trainer = psutil.Process(trainer_pid)

    def stop(self) -> None:
        """Let the reading in flight end; NVML is closed by its own thread, after its last call."""
        self._done.set()
        self.join(timeout=5)

    def run(self) -> None:
        nvml = self._open()
        psutil.cpu_percent()
        try:
            while not self._done.wait(self._interval_seconds):
                if nvml is not None:
                    self._events.emit(GpuReadings(gpus=nvml.read()))
                self._events.emit(self._host())
        finally:
            if nvml is not None:
                nvml.close()

    def _open(self) -> Nvml | None:
        try:
            nvml = Nvml()
        except NvmlUnavailable as reason:
            self._events.emit(GpuReadings(gpus=[], missing=str(reason)))
            return None
        if nvml.count == 0:
            self._events.emit(GpuReadings(gpus=[], missing="the NVIDIA driver sees no GPU"))
        return nvml

    def _host(self) -> HostReading:
        memory = psutil.virtual_memory()
        trainer_bytes, trainer_cpu = self._trainer_use()
        if trainer_bytes is not None:
            self.trainer_memory_share = trainer_bytes / memory.total
        return HostReading(
            cpu=psutil.cpu_percent() / 100,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            engine_bytes=self._engine.memory_info().rss,
            trainer_bytes=trainer_bytes,
            trainer_cpu=trainer_cpu,
        )

    def _trainer_use(self) -> tuple[int | None, float | None]:
        try:
            return self._trainer.memory_info().rss, self._trainer.cpu_percent() / 100
        except psutil.Error:
            return None, None
