"""One GPU: what is known of it for good, what it is asked when, and what became of its answers.

Separates the life of a GPU (there, refusing a question, lost, back again) from the questions themselves. Of every
figure the event holds a value, or a reason in `reasons`; those of CORE are then None, all others left out. One that is
left out without a reason was not asked for.
"""

from __future__ import annotations

import time
from typing import Any

import psutil
import pynvml

from .processes import described
from .questions import MEMORY, PCIE, QUESTIONS, Handle, Question, Values, text
from .reasons import Reason, or_none, reason_of, text_of
from .traffic import ACTIVITY, Gpm, NvLink

LOOK_AGAIN_SECONDS = 30.0  # for a GPU that is lost, or could not be opened
CORE = (
    "busy",
    "memory_used_bytes",
    "memory_total_bytes",
    "temperature_c",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "throttle",
    "pstate",
)


class _Lost(Exception):
    """The GPU no longer answers; the text says so for people."""


class Device:
    """A GPU by its NVML index; all its methods are called by one thread."""

    def __init__(self, index: int, *, pcie: bool = False, own_pid: int | None = None) -> None:
        self.index, self._own_pid = index, own_pid
        self._questions = (*QUESTIONS, PCIE) if pcie else QUESTIONS
        self._ways: dict[Question, int] = {}  # which generation of a question this driver answers
        self._refused: dict[Question, Reason] = {}  # until the next slow reading
        self._slow_values: Values = {}
        self._traffic: list[Gpm | NvLink] | None = None  # found at the first reading
        self._links: NvLink | None = None
        self._handle: Handle | None = None
        self._look_again, self._why = 0.0, Reason.NOT_ASKED
        self.facts: dict[str, Any] = {"index": index}
        self.missing = ""
        self.lost_since: float | None = None
        self._open()

    # ---- what is known for good ---------------------------------------------------------------

    def _open(self) -> None:
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        except Exception as fault:
            self._lose(reason_of(fault), text_of(fault))
            return
        self.missing, self.lost_since, self._slow_values, self._traffic = "", None, {}, None
        for key, ask in (("uuid", self._uuid), ("name", self._name), ("pci_bus_id", self._bus_id)):
            self.facts[key] = or_none(ask)

    def _uuid(self) -> str:
        return text(pynvml.nvmlDeviceGetUUID, self._handle)

    def _name(self) -> str:
        return text(pynvml.nvmlDeviceGetName, self._handle)

    def _bus_id(self) -> str:
        raw = pynvml.nvmlDeviceGetPciInfo(self._handle).busId
        return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)

    def identity(self) -> dict[str, Any]:
        """What does not change: index, uuid, name, pci_bus_id, compute_capability, memory_total_bytes."""
        if self._handle is None:
            return self.facts | {"missing": self.missing}
        capability = or_none(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(self._handle))
        total = (or_none(lambda: self._answer(MEMORY)) or {}).get("memory_total_bytes")
        return self.facts | {
            "compute_capability": tuple(capability) if capability else None,
            "memory_total_bytes": total if isinstance(total, int) and total else None,
        }

    def _find_traffic(self) -> list[Gpm | NvLink]:
        self._links = or_none(lambda: NvLink(self._handle))
        gpm = or_none(lambda: Gpm(self._handle))
        if gpm:  # it tells the traffic as well, for the whole time between two readings, and blocks nothing
            self._questions = QUESTIONS
        return [reader for reader in ([gpm] if gpm else [self._links]) if reader is not None]

    # ---- readings -----------------------------------------------------------------------------

    def read(self, slow: bool) -> dict[str, Any]:
        """The GPU now; `slow` asks as well what changes rarely or takes long."""
        if self._handle is None and time.monotonic() >= self._look_again:
            self._open()
        if self._handle is None:
            return self._nothing()
        try:
            values = self._values(slow)
        except _Lost as lost:
            self._lose(Reason.LOST, str(lost))
            return self._nothing()
        return self._event(values)

    def close(self) -> None:
        """Give back what the driver holds for this GPU."""
        for reader in self._traffic or []:
            if isinstance(reader, Gpm):
                or_none(reader.close)
        self._traffic = []

    def _values(self, slow: bool) -> Values:
        if self._traffic is None:
            self._traffic = self._find_traffic()
        if slow:
            self._refused = {}
            self._slow_values = {}
        values: Values = {}
        for question in self._questions:
            if question.slow and not slow:
                continue
            answers = self._answer(question)
            (self._slow_values if question.slow else values).update(answers)
        return self._slow_values | values | self._flow(self._traffic)

    def _answer(self, question: Question) -> Values:
        """Values or Reasons; a question that was refused is not put again before the next slow reading."""
        if question in self._refused:
            return dict.fromkeys(question.keys, self._refused[question])
        reason = Reason.UNSUPPORTED
        for way in range(self._ways.get(question, 0), len(question.ways)):
            try:
                values = question.ways[way](self._handle)
            except Exception as fault:
                reason = self._reason(fault)
                if reason is Reason.UNSUPPORTED:
                    continue
                break
            self._ways[question] = way
            return values
        if reason is not Reason.ERROR:  # an error may be gone a second later
            self._refused[question] = reason
        return dict.fromkeys(question.keys, reason)

    def _flow(self, readers: list[Gpm | NvLink]) -> Values:
        """Activity and traffic, from GPM or the NVLink counters."""
        values: Values = {} if any(isinstance(r, Gpm) for r in readers) else dict.fromkeys(ACTIVITY, _NO)
        for reader in readers:
            try:
                values |= reader.read()
            except Exception as fault:
                values |= dict.fromkeys(ACTIVITY if isinstance(reader, Gpm) else ("nvlink",), self._reason(fault))
        received, sent = values.pop("nvlink_rx", None), values.pop("nvlink_tx", None)
        if self._links is not None and received is not None:
            values |= self._links.traffic(received, sent)
        return values if "nvlink" in values or self._links is not None else values | {"nvlink": _NO}

    def _reason(self, fault: Exception) -> Reason:
        reason = reason_of(fault)
        if reason is Reason.LOST:
            raise _Lost(text_of(fault)) from None
        return reason

    # ---- what is told -------------------------------------------------------------------------

    def _event(self, values: Values) -> dict[str, Any]:
        if self._shares_memory(values):
            values |= _host_memory()
        known = {key: value for key, value in values.items() if not isinstance(value, Reason)}
        if "processes" in known:
            known["processes"] = described(known["processes"], self._own_pid)
        reasons = {
            key: str(value) for key, value in values.items() if isinstance(value, Reason) and value != Reason.NOT_ASKED
        }
        return self.facts | dict.fromkeys(CORE) | known | ({"reasons": reasons} if reasons else {})

    def _shares_memory(self, values: Values) -> bool:
        """GB10 and Jetson: GPU and host have one memory, of which NVML refuses to speak, or says zero."""
        return self._refused.get(MEMORY) is Reason.UNSUPPORTED or values.get("memory_total_bytes") == 0

    def _nothing(self) -> dict[str, Any]:
        event = self.facts | {"missing": self.missing, "reasons": {"*": str(self._why)}}
        return event | ({"lost_since": round(self.lost_since, 1)} if self.lost_since is not None else {})

    def _lose(self, why: Reason, message: str) -> None:
        if why is Reason.LOST and self.lost_since is None:
            self.lost_since = time.time()
        self._why, self.missing, self._handle = why, message, None
        self._traffic = None  # not closed: a lost GPU may not even answer that
        self._look_again = time.monotonic() + LOOK_AGAIN_SECONDS


_NO = Reason.UNSUPPORTED


def _host_memory() -> Values:
    memory = psutil.virtual_memory()
    return {
        "memory_used_bytes": memory.total - memory.available,
        "memory_total_bytes": memory.total,
        "memory_reserved_bytes": Reason.UNSUPPORTED,
        "shared_with_host": True,
    }
