"""Opens, reads and closes NVML through `pynvml`, the module of nvidia-ml-py. One thread must do all three, and NVML
must not be called after `close`, or in a forked child.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

import pynvml

from ...gpu import Gpu
from ...system.child_process import BackgroundCall
from .. import chips
from .gpu_reader import GpuQuery
from .reasons import Code, NvmlUnavailable, or_none, text_of
from .xid_errors import DriverError, DriverErrors

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must not make gputui hang
NO_GPU = "the NVIDIA driver sees no GPU"
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_ALONE_MISSING = f"the NVIDIA driver's {LIBRARY} is missing"  # its device nodes are there


class Nvml:
    """A connection to NVML; NvmlUnavailable if it cannot be opened. `pcie` adds the PCIe traffic to the readings, and
    `processes` full data of all processes, of which `own_pid` is marked.
    """

    def __init__(self, *, pcie: bool = False, own_pid: int | None = None, processes: bool = False) -> None:
        self._pid, self._open = os.getpid(), False
        self._errors: DriverErrors | None = None
        try:
            pynvml.nvmlInit()
        except Exception as fault:  # noqa: BLE001 - loading a broken library can raise any exception
            # NVMLLibraryMismatchError is no NVMLError.
            raise _unavailable(fault) from None
        self._open = True
        try:
            self.count = int(pynvml.nvmlDeviceGetCount())
            self.devices = [
                GpuQuery(index, pcie=pcie, own_pid=own_pid, processes=processes) for index in range(self.count)
            ]
        except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
            self.devices = []
            self.close()
            raise _unavailable(fault) from None

    def read(self, slow: bool = True, stopping: Callable[[], bool] = lambda: False) -> list[Gpu]:
        """Each GPU by index; `slow` adds figures that change rarely or take long. As soon as `stopping()`, the others
        are not read. Raises NvmlUnavailable after `close`.
        """
        readings: list[Gpu] = []
        if self._mine() and all(device.is_retry_due for device in self.devices):
            # After the driver was loaded again, the old connection gets no answers.
            if self._errors is not None:
                self._errors.close()
                self._errors = None
            with contextlib.suppress(Exception):
                pynvml.nvmlShutdown()
            with contextlib.suppress(Exception):  # each GPU then says why it cannot be opened
                pynvml.nvmlInit()
        for device in self._mine():
            if stopping():
                break
            readings.append(device.read(slow))
        return readings

    def errors(self) -> list[DriverError]:
        """The errors that the driver has reported since the last call; the first call begins to collect them."""
        if self._errors is None:
            self._errors = DriverErrors([(device.index, device.handle) for device in self._mine()])
        return self._errors.read()

    def close(self) -> None:
        if not self._open or os.getpid() != self._pid:
            return
        for device in self.devices:
            device.close()
        if self._errors is not None:
            self._errors.close()
        self._open = False
        with contextlib.suppress(Exception):
            pynvml.nvmlShutdown()

    def _mine(self) -> list[GpuQuery]:
        if not self._open or os.getpid() != self._pid:
            raise NvmlUnavailable("NVML is closed" if not self._open else "an open NVML does not survive a fork")
        return self.devices


def of_driver() -> tuple[str, tuple[int, int] | None]:
    """Its version (empty: unknown), and the newest CUDA that it supports, such as (12, 4). NVML must be open."""
    cuda = or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    version = or_none(pynvml.nvmlSystemGetDriverVersion) or ""
    return str(version), (cuda // 1000, cuda % 1000 // 10) if cuda else None


def _unavailable(fault: Exception) -> NvmlUnavailable:
    code = getattr(fault, "value", None)
    alone = code == Code.LIBRARY_NOT_FOUND and chips.has_device_nodes()
    return NvmlUnavailable(LIBRARY_ALONE_MISSING if alone else text_of(fault), code)


# ---- one reading, for which nobody waits longer than 10 s --------------------------------------------


def readings(processes: bool = False) -> list[Gpu]:
    """Each GPU by index, read once. Raises NvmlUnavailable, also if the driver does not answer within 10 s."""

    def read() -> list[Gpu]:
        with contextlib.closing(Nvml(processes=processes)) as nvml:
            return nvml.read()

    try:
        return BackgroundCall(read).result(PATIENCE_SECONDS)
    except TimeoutError as late:
        raise NvmlUnavailable(str(late)) from None


_BITS = 64


def cpus_near(indexes: Sequence[int]) -> list[frozenset[int]]:
    """The CPUs of the NUMA node of each GPU (NVML's index); empty if the driver does not say within 10 s."""
    words = -(-max(os.sysconf("SC_NPROCESSORS_CONF"), 1) // _BITS)

    def masks() -> list[Iterable[int]]:
        with contextlib.closing(Nvml()) as nvml:
            return [pynvml.nvmlDeviceGetCpuAffinity(nvml.devices[index].handle, words) for index in indexes]

    try:
        answers = BackgroundCall(masks).result(PATIENCE_SECONDS)
    except (pynvml.NVMLError, NvmlUnavailable, TimeoutError, OSError):
        return [frozenset()] * len(indexes)
    return [
        frozenset(
            place * _BITS + bit for place, word in enumerate(mask) for bit in range(_BITS) if int(word) >> bit & 1
        )
        for mask in answers
    ]
