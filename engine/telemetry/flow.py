"""Activity and traffic of one GPU from the best source that answers: GPM, else NVLink's counters and PCIe throughput.

A source that the chip, the driver or the administrator refuses is given up until the GPU is opened again; one that only
failed is asked again. How each source is read is in traffic.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .questions import PCIE, Handle, Values
from .reasons import Reason, or_none, reason_of
from .traffic import GPM_KEYS, Gpm, NvLink, ask_for_gpm

R = TypeVar("R")
T = TypeVar("T")
REFUSED = (Reason.UNSUPPORTED, Reason.NO_PERMISSION)


class Flow:
    """The figures of GPM as far as they are available, and `nvlink`; a fault that means a lost GPU is raised.

    `tells_pcie`: GPM reports the PCIe traffic, so that the question that blocks need not be asked.
    """

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self._gpm = Source(self._make_gpm)
        self._links = Source(lambda: NvLink(gpu))
        self.tells_pcie = self._gpm.ask(lambda _: True) not in REFUSED

    def read(self, fresh: bool = True) -> Values:
        """`fresh`: of now, else GPM's of the last reading, and the rest of now."""
        found = self._gpm.ask(Gpm.read if fresh else Gpm.last)
        values: Values = dict.fromkeys(GPM_KEYS, found) if isinstance(found, Reason) else dict(found)
        nvlink = self._nvlink(values.pop("nvlink_rx"), values.pop("nvlink_tx"))
        self.tells_pcie = not any(values[key] in REFUSED for key in PCIE.keys)
        if not self.tells_pcie:
            values = {key: value for key, value in values.items() if key not in PCIE.keys}
        return values | nvlink

    def _make_gpm(self) -> Gpm:
        ask_for_gpm(self._gpu)
        return Gpm(self._gpu)

    def close(self) -> None:
        """Release what the driver holds for GPM."""
        if self._gpm.reader is not None:
            or_none(self._gpm.reader.close)

    def _nvlink(self, received: int | Reason, sent: int | Reason) -> Values:
        """The NVLink traffic from GPM, or from the counters where GPM refuses."""
        if received in REFUSED or sent in REFUSED:
            found = self._links.ask(NvLink.read)
        elif Reason.ERROR in (received, sent):
            found = Reason.ERROR
        else:
            known = [None if isinstance(value, Reason) else value for value in (received, sent)]
            found = self._links.ask(lambda links: links.traffic(*known))
        return {"nvlink": found} if isinstance(found, Reason) else found


class Source(Generic[T]):
    """A reader that is made when it is first asked; `refused` is the reason where the source is given up."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.reader: T | None = None
        self.refused: Reason | None = None

    def ask(self, question: Callable[[T], R]) -> R | Reason:
        """The reader's answer, or the reason why there is none; raises the fault that means that the GPU is lost."""
        if self.refused is not None:
            return self.refused
        try:
            if self.reader is None:
                self.reader = self._make()
            return question(self.reader)
        except Exception as fault:
            reason = reason_of(fault)
            if reason is Reason.LOST:
                raise
            self.refused = reason if reason in REFUSED else None
            return reason
