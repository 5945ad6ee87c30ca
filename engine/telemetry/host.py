"""Readings of the host and of the training's processes. A figure that this kernel or container does not provide is
None. Rates and shares are means since the previous reading; rates are None at the first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from ..runs.events import HostReading
from ..system import proc
from . import resource_limits

T = TypeVar("T")


class Host:
    """Readings of the host for the trainer with this process id. One thread must make all of them, as psutil keeps the
    last reading of each. `network` adds the traffic of all interfaces except the loopback, `with_children` what all
    descendants of the trainer use.
    """

    def __init__(self, trainer_pid: int, network: bool = False, with_children: bool = False) -> None:
        self._engine = psutil.Process()
        self._trainer: Any = _or_none(lambda: psutil.Process(trainer_pid))  # without one, what is asked of it is None
        self._shares: dict[str, Callable[[], float]] = {
            "cpu": lambda: psutil.cpu_percent() / 100,
            "io_wait": lambda: round(float(psutil.cpu_times_percent().iowait) / 100, 3),  # processors wait for the disk
            "engine_cpu": lambda: round(self._engine.cpu_percent() / 100, 3),
            "trainer_cpu": lambda: self._trainer.cpu_percent() / 100,
        }
        self._children = Children(trainer_pid)
        self._network, self._with_children = network, with_children
        self._counters: dict[str, tuple[float, int]] = {}
        for ask in self._shares.values():
            _or_none(ask)  # each of these compares with its previous call

    def read(self) -> HostReading:
        memory = resource_limits.memory()
        shares = {name: _or_none(ask) for name, ask in self._shares.items()}
        trainer_bytes = _or_none(lambda: int(self._trainer.memory_info().rss))
        others = self._others_cpu(shares["cpu"], shares["engine_cpu"], shares["trainer_cpu"])
        if self._with_children and shares["trainer_cpu"] is not None and trainer_bytes is not None:
            shares["trainer_cpu"] += self._children.last_cores
            trainer_bytes += self._children.bytes()
        return HostReading(
            **shares,
            others_cpu=others,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            engine_bytes=self._engine.memory_info().rss,
            trainer_bytes=trainer_bytes,
            # Without reads from the page cache.
            trainer_read_bytes_per_second=self._rate("read", lambda: int(self._trainer.io_counters().read_bytes)),
            network_rx_bytes_per_second=self._rate("rx", lambda: _traffic("bytes_recv")) if self._network else None,
            network_tx_bytes_per_second=self._rate("tx", lambda: _traffic("bytes_sent")) if self._network else None,
        )

    def _others_cpu(self, cpu: float | None, engine: float | None, trainer: float | None) -> float | None:
        # The share of all processors that programs outside of the training use; `engine` and `trainer` are in cores.
        if cpu is None or engine is None or trainer is None:
            return None
        own = (engine + trainer + self._children.cores()) / (psutil.cpu_count() or 1)
        return round(max(0.0, cpu - own), 3)

    def _rate(self, name: str, counter: Callable[[], int]) -> float | None:
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
        self.last_cores = 0.0

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
        self.last_cores = cores
        return cores

    def bytes(self) -> int:
        """The memory of those that the last call of `cores` has seen; pages that they share count for each."""
        total = 0
        for process in self._known.values():
            with contextlib.suppress(psutil.Error):
                total += int(process.memory_info().rss)
        return total
