"""The engine's readings of GPUs and host, as events of the run, each in a thread of its own: a call of the driver may
take long or never return, and neither a screen, nor the host's readings, a stop or a heartbeat may wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ..gpu import Gpu
from ..runs.events import Event, GpuReadings, Warn
from ..runs.parsing import EventWriter
from .host import Host
from .nvml.connection import NO_GPU, Nvml
from .nvml.reasons import NvmlUnavailable
from .nvml.xid_errors import DriverError

SLOW_FIGURES_SECONDS = 10.0
DUTY = 0.5  # the greatest share of the time that the driver is kept busy with readings
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 5.0, 60.0
ALL_LOST_HINT = (
    "usual after the driver was updated or loaded again, and in a container that has lost its devices (restart it); "
    "the readings go on as soon as the driver answers again"
)


class StoppableThread(threading.Thread):
    """Works until `stop`. Its faults fail nothing else: standard error says why."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._done = threading.Event()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """Let it end, within `timeout_seconds`; while a call hangs, the thread still runs."""
        self._done.set()
        if self.is_alive():
            self.join(timeout_seconds)


class GpuReader(StoppableThread):
    """A thread that passes GpuReadings to `tell` every `interval_seconds`, or less often if the driver is slow. If
    there are no readings, it passes the reason once. It also passes warnings about lost GPUs and errors of GPUs.
    """

    def __init__(
        self, tell: Callable[[Event], None], interval_seconds: float, *, pcie: bool = False, own_pid: int | None = None,
        processes: bool = False,
    ) -> None:  # fmt: skip
        """`pcie` adds the PCIe traffic, `processes` full data of processes; `own_pid` marks the trainer's."""
        super().__init__("gpu-reader")
        self._all_of_processes = processes
        self._tell, self._asked_seconds, self._pcie, self._own_pid = tell, interval_seconds, pcie, own_pid
        self._calling_since: float | None = None
        self._told: set[str] = set()
        self._lost: set[int] = set()  # at the reading before
        self._overruns = 0
        self._errors: list[tuple[float, str, DriverError]] = []  # with the time of the steady clock, and the UUID
        self.interval_seconds = interval_seconds

    @property
    def stuck_seconds(self) -> float:
        """The seconds for which the present call of the driver has not returned; 0 if no call is in progress."""
        since = self._calling_since
        return time.monotonic() - since if since is not None else 0.0

    def errors_since(self, since: float, gpus: Collection[str]) -> list[str]:
        """The driver's errors about GPUs with these UUIDs since `since` (monotonic seconds), as lines of its log."""
        return [
            f"NVRM: Xid (GPU {error.gpu}): {error.title}" + (f"; it needs {error.needs}" if error.needs else "")
            for reported, uuid, error in self._errors
            if reported >= since and uuid in gpus
        ]

    def run(self) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        while not self._done.is_set():
            self._calling_since = time.monotonic()
            try:
                nvml = Nvml(pcie=self._pcie, own_pid=self._own_pid, processes=self._all_of_processes)
                missing = "" if nvml.count else NO_GPU
            except NvmlUnavailable as reason:
                nvml, missing = None, str(reason)
            finally:
                self._calling_since = None
            try:
                if nvml is not None and not missing:
                    self._sample(nvml)
            finally:
                if nvml is not None:
                    nvml.close()
            if missing:
                self._say_once(missing, GpuReadings(gpus=[], missing=missing))
                self._done.wait(retry_seconds)
                retry_seconds = min(LAST_RETRY_SECONDS, 2 * retry_seconds)

    def _sample(self, nvml: Nvml) -> None:
        slow_due = 0.0
        while not self._done.is_set():
            began = self._calling_since = time.monotonic()
            slow = began >= slow_due
            if slow:
                slow_due = began + SLOW_FIGURES_SECONDS
            readings = nvml.read(slow, self._stopping)
            errors = nvml.errors()
            self._calling_since = None
            seconds = time.monotonic() - began
            if self._done.is_set():
                return
            # Over half of the interval would keep the driver busy: it is lengthened.
            self.interval_seconds = max(self._asked_seconds, seconds / DUTY)
            self._overruns = self._overruns + 1 if self.interval_seconds > 1.2 * self._asked_seconds else 0
            if self._overruns >= 2:
                message = (
                    f"the NVIDIA driver takes {seconds:.1f} s for one reading of {len(readings)} GPU(s): they are read "
                    f"every {self.interval_seconds:.1f} s instead of {self._asked_seconds:g} s"
                )
                warning = Warn(kind="telemetry_slow", message=message, hint="training does not wait for it")
                self._say_once("slow", warning)
            self._say(GpuReadings(gpus=readings, interval_seconds=round(self.interval_seconds, 2)))
            self._report_lost(readings)
            self._report_errors(errors, readings)
            self._done.wait(max(0.0, self.interval_seconds - seconds))

    def _stopping(self) -> bool:
        self._calling_since = time.monotonic()  # the previous GPU has answered
        return self._done.is_set()

    def _report_lost(self, readings: Sequence[Gpu]) -> None:
        """Warn once of each lost GPU, at the second reading without it: then it is known whether all GPUs are lost."""
        lost = {gpu.index: gpu for gpu in readings if gpu.lost_since is not None}
        before, self._lost = self._lost, set(lost)
        if back := before - set(lost):
            are_all = len(back) == len(readings) > 1
            names = "all GPUs" if are_all else ", ".join(f"GPU {index}" for index in sorted(back))
            self._say(Warn(kind="gpu_back", message=f"{names} can be read again"))
        if len(lost) == len(readings) > 1:
            message = f"none of the GPUs answers any more: {readings[0].missing}"
            key = f"all lost {max(gpu.lost_since or 0.0 for gpu in readings)}"
            self._say_once(key, Warn(kind="gpu_lost", message=message, hint=ALL_LOST_HINT))
            return
        for index in sorted(before & set(lost)):
            gpu = lost[index]
            message = f"GPU {index} ({gpu.name or 'unknown'}): {gpu.missing}"
            hint = "dmesg shows more (look for Xid); the readings of the other GPUs go on"
            self._say_once(f"lost {index} {gpu.lost_since}", Warn(kind="gpu_lost", message=message, hint=hint))

    def _report_errors(self, errors: Sequence[DriverError], readings: Sequence[Gpu]) -> None:
        """Keep all, and warn once for each GPU and kind; again if Xid 154 says what the GPU needs."""
        gpus = {gpu.index: gpu for gpu in readings}
        for error in errors:
            gpu = gpus.get(-1 if error.gpu is None else error.gpu, Gpu())
            causes = [kept for kept in self._errors if error.follows(kept[2])]
            if causes:
                self._errors.remove(causes[-1])
                error = replace(causes[-1][2], needs=error.needs or causes[-1][2].needs)
            self._errors.append((time.monotonic(), gpu.uuid or "", error))
            if error.is_of_a_program:
                continue
            which = "a GPU" if error.gpu is None else f"GPU {error.gpu} ({gpu.name or 'unknown'})"
            message = f"{which}: the NVIDIA driver has reported Xid {error.title}"
            hint = "NVIDIA's list of Xid errors explains it, and dmesg has the full report"
            hint = f"the GPU needs {error.needs}" if error.needs else hint
            self._say_once(f"xid {error.gpu} {message} {hint}", Warn(kind="gpu_xid", message=message, hint=hint))

    def _say_once(self, key: str, event: Event) -> None:
        if key not in self._told and self._say(event):
            self._told.add(key)

    def _say(self, event: Event) -> bool:
        # If the disk is full, the event is lost.
        try:
            self._tell(event)
        except OSError:
            return False
        return True


# ---- the host ------------------------------------------------------------------------------------


STUCK_SECONDS = 30.0


class Sampler(StoppableThread):
    """A thread that emits a `host` event every `interval_seconds`, and with a GpuReader the `gpu` events.
    `with_children`: the trainer's figures are those of all its descendants, too. `trainer_memory_share` is the
    trainer's share (0 to 1) of the memory at the last reading, None before the first.
    """

    def __init__(
        self, events: EventWriter, trainer_pid: int, interval_seconds: float, *, pcie: bool = False,
        network: bool = False, with_children: bool = False,
    ) -> None:  # fmt: skip
        super().__init__("sampler")
        self.trainer_memory_share: float | None = None
        self._events, self._interval_seconds = events, interval_seconds
        self._trainer_pid, self._network, self._with_children = trainer_pid, network, with_children
        self._gpus = GpuReader(events.emit, interval_seconds, pcie=pcie, own_pid=trainer_pid)

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """End both threads. The GpuReader closes NVML after its last call."""
        self._done.set()
        self._gpus.stop()
        super().stop(timeout_seconds)

    def driver_errors(self, seconds: float, gpus: Collection[str]) -> list[str]:
        """Of the last `seconds` about the GPUs with these UUIDs, as lines of the driver's log."""
        return self._gpus.errors_since(time.monotonic() - seconds, gpus)

    def run(self) -> None:
        self._gpus.start()
        host, warned = Host(self._trainer_pid, self._network, self._with_children), False
        while not self._done.wait(self._interval_seconds):
            reading = host.read()
            if reading.trainer_bytes is not None:
                self.trainer_memory_share = reading.trainer_bytes / reading.memory_total_bytes
            self._events.emit(reading)
            if not warned and self._gpus.stuck_seconds > STUCK_SECONDS:
                seconds = self._gpus.stuck_seconds
                message = f"the NVIDIA driver has not answered for {seconds:.0f} s: there are no new GPU readings"
                hint = "the training goes on; nvidia-smi probably hangs, too"
                self._events.emit(Warn(kind="telemetry_stuck", message=message, hint=hint))
                warned = True
