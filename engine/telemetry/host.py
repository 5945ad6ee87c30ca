"""Readings of the host and of the training's processes. A figure that this kernel or container does not provide is
None. Rates and shares are means since the previous reading; rates are None at the first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

from ..runs.events import HostReading
from ..system import proc
from . import resource_limits

T = TypeVar("T")


class Host:
    """Readings of the host for the trainer with this process id. One thread must make all of them, as psutil keeps the
    last reading of each. `network` adds the traffic of all interfaces except the loopback.
    """

    def __init__(self, trainer_pid: int, network: bool = False) -> None:
        self._engine = psutil.Process()
        self._trainer = _or_none(lambda: psutil.Process(trainer_pid))
        self._children = Children(trainer_pid)
        self._network = network
        self._counters: dict[str, tuple[float, int]] = {}
        for ask in (self._cpu, self._io_wait, self._engine_cpu, self._trainer_cpu):
            _or_none(ask)  # each of these compares with its previous call

    def read(self) -> HostReading:
        memory = resource_limits.memory()
        cpu, engine, trainer = (_or_none(ask) for ask in (self._cpu, self._engine_cpu, self._trainer_cpu))
        return HostReading(
            cpu=cpu,
            others_cpu=self._others_cpu(cpu, engine, trainer),
            io_wait=_or_none(self._io_wait),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            engine_bytes=self._engine.memory_info().rss,
            engine_cpu=engine,
            trainer_bytes=_or_none(lambda: int(self._trainer.memory_info().rss) if self._trainer else None),
            trainer_cpu=trainer,
            # Without reads from the page cache.
            trainer_read_bytes_per_second=self._rate(
                "read", lambda: int(self._trainer.io_counters().read_bytes) if self._trainer else None
            ),
            network_rx_bytes_per_second=self._rate("rx", lambda: _traffic("bytes_recv")) if self._network else None,
            network_tx_bytes_per_second=self._rate("tx", lambda: _traffic("bytes_sent")) if self._network else None,
        )

    def _cpu(self) -> float:
        return psutil.cpu_percent() / 100

    def _io_wait(self) -> float:
        # The share of the time in which processors were idle because they waited for the disk.
        return round(float(psutil.cpu_times_percent().iowait) / 100, 3)

    def _others_cpu(self, cpu: float | None, engine: float | None, trainer: float | None) -> float | None:
        # The share of all processors that programs outside of the training use; `engine` and `trainer` are in cores.
        if cpu is None or engine is None or trainer is None:
            return None
        own = (engine + trainer + self._children.cores()) / (psutil.cpu_count() or 1)
        return round(max(0.0, cpu - own), 3)

    def _engine_cpu(self) -> float:
        return round(self._engine.cpu_percent() / 100, 3)

    def _trainer_cpu(self) -> float | None:
        return self._trainer.cpu_percent() / 100 if self._trainer else None

    def _rate(self, name: str, counter: Callable[[], int | None]) -> float | None:
        now, value, before = time.monotonic(), _or_none(counter), self._counters.get(name)
        if value is None:
            return None
        self._counters[name] = (now, value)
        if before is None or value < before[1] or now <= before[0]:
            return None
        return round((value - before[1]) / (now - before[0]))


def _traffic(counter: str) -> int:
    return sum(getattr(nic, counter) for name, nic in psutil.net_io_counters(pernic=True).items() if name != "lo")


def _or_none(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (psutil.Error, OSError, AttributeError, ValueError, NotImplementedError):
        return None


# ---- the processes that a training has started ---------------------------------------------------


class Children:
    """All descendants of the process with the id `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, psutil.Process] = {}

    def cores(self) -> float:
        """The cores that all use on average since the last call; a process is counted from its second call on."""
        processes = {}
        for pid in proc.below(self._pid):
            with contextlib.suppress(psutil.Error):
                processes[pid] = self._known.get(pid) or psutil.Process(pid)
        self._known = processes
        cores = 0.0
        for process in processes.values():
            with contextlib.suppress(psutil.Error):
                cores += float(process.cpu_percent()) / 100
        return cores
