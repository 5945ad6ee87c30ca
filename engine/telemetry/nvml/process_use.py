"""Which of a GPU's processes work, by the driver's samples, and since when the others do not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

from .reasons import Code

_FIRST_MICROSECONDS = 1_000_000  # how far the first question goes back


class Work:
    """The use of a GPU by each of its processes, from the driver's samples, and for how long the other processes have
    been idle.

    `read` raises NVMLError if the driver does not report this, as for a GPU in MIG mode.
    """

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._newest = time.time_ns() // 1000 - _FIRST_MICROSECONDS  # the driver's time of a sample
        self._first: dict[int, float] = {}  # when each process was first looked at, by the steady clock
        self._worked: dict[int, float] = {}  # when it worked last

    def read(self) -> dict[int, float]:
        """Return the share of the time in which each process has used the chip since the last call, by process id.

        Processes that have not used it are not in the result.
        """
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._gpu, self._newest)
        except pynvml.NVMLError as fault:
            if fault.value not in (pynvml.NVML_SUCCESS, Code.NOT_FOUND):  # nobody has used it
                raise
            samples = []
        used: dict[int, float] = {}
        for sample in samples:
            parts = (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
            self._newest = max(self._newest, int(sample.timeStamp))
            if any(parts) and max(parts) <= 100:  # some drivers return samples that were never filled
                used[int(sample.pid)] = max(used.get(int(sample.pid), 0.0), sample.smUtil / 100)
        return used

    def forget(self) -> None:
        """Forget the earlier samples, as after a question without an answer nothing is known about the time before."""
        self._first, self._worked = {}, {}

    def of(self, processes: Sequence[Mapping[str, Any]], used: Mapping[int, float]) -> list[dict[str, Any]]:
        """Return the processes with `use`, and `idle_seconds`: the time since their use was last above 0.

        `idle_at_least` is True if a process has not worked since it was first seen; it may have been idle before that,
        too.
        """
        now, pids = time.monotonic(), {process["pid"] for process in processes}
        self._first = {pid: self._first.get(pid, now) for pid in pids}
        self._worked = {pid: at for pid, at in self._worked.items() if pid in pids} | dict.fromkeys(
            used.keys() & pids, now
        )
        return [dict(process) | self._idle(process["pid"], now, used) for process in processes]

    def _idle(self, pid: int, now: float, used: Mapping[int, float]) -> dict[str, Any]:
        since = self._worked.get(pid, self._first[pid])
        return {
            "use": used.get(pid, 0.0),
            "idle_seconds": round(now - since, 1),
            "idle_at_least": pid not in self._worked,
        }
