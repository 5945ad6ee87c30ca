"""Reads one GPU: its properties that never change, its figures, and whether it is lost or back again. A figure with
neither a value nor a reason in `reasons` was not asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pynvml

from ...gpu import Gpu, GpuProcess, MigInstance
from .. import resource_limits
from ..gpu_processes import described
from . import queries
from .gpm_nvlink import REFUSED, Flow, Instances, Source
from .reasons import Code, Reason, or_none, reason_of, text_of

_FIRST_MICROSECONDS = 1_000_000  # how far the first question goes back


class Work:
    """The use of a GPU by each of its processes, from the driver's samples, and for how long each has been idle. `read`
    raises NVMLError if the driver does not report it, as in MIG mode.
    """

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._newest = time.time_ns() // 1000 - _FIRST_MICROSECONDS  # the driver's time of a sample
        self._first: dict[int, float] = {}  # when each process was first looked at, by the steady clock
        self._worked: dict[int, float] = {}  # when it worked last

    def read(self) -> dict[int, float]:
        """The greatest share (0 to 1) of the chip's time in a sample since the last call, by process id."""
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
        """Called if the driver has not answered: nothing is known about the time before."""
        self._first, self._worked = {}, {}

    def of(self, processes: Sequence[GpuProcess], used: Mapping[int, float]) -> tuple[GpuProcess, ...]:
        """The processes with their `use` (the result of `read`), and for how long it has been 0."""
        now, pids = time.monotonic(), {process.pid for process in processes}
        self._first = {pid: self._first.get(pid, now) for pid in pids}
        self._worked = {pid: at for pid, at in self._worked.items() if pid in pids} | dict.fromkeys(
            used.keys() & pids, now
        )
        return tuple(
            replace(
                process,
                use=used.get(process.pid, 0.0),
                idle_seconds=round(now - self._worked.get(process.pid, self._first[process.pid]), 1),
                idle_at_least=process.pid not in self._worked,
            )
            for process in processes
        )


LOOK_AGAIN_SECONDS = 30.0  # longest time between two attempts to open a GPU that is lost, or could not be opened


class Lost(Exception):
    """The GPU no longer answers; the text says so for the user."""


class GpuQuery:
    """One GPU by its NVML index. One thread must call all methods. The arguments are those of Nvml."""

    def __init__(self, index: int, *, pcie: bool = False, own_pid: int | None = None, processes: bool = False) -> None:
        self.index, self._own_pid, self._pcie, self._all_of_processes = index, own_pid, pcie, processes
        self._ways: dict[queries.Question, int] = {}  # the index of the variant of a question that this driver answers
        self._refused: dict[queries.Question, Reason] = {}  # until the next slow reading
        self._slow_values: queries.Values = {}
        self._flow: Flow | None = None  # found at the first reading
        self._instances: Instances | None = None
        self._work: Source[Work] | None = None
        self._fault = ""  # the last one, for people
        self.handle: queries.Handle | None = None  # of NVML; None while the GPU is lost or could not be opened
        self._look_again, self.why, self._failures = 0.0, Reason.NOT_ASKED, 0
        self.facts = Gpu(index)
        self.missing = ""
        self.lost_since: float | None = None
        self._open()

    @property
    def is_retry_due(self) -> bool:
        """True if the GPU is lost or could not be opened, and the next reading will try to open it."""
        return self.handle is None and time.monotonic() >= self._look_again

    # ---- identity ------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
            self._lose(reason_of(fault), text_of(fault))
            return
        self._refused, self._slow_values = {}, {}
        self.facts = replace(self.facts, **{key: value for key, value in queries.names(self.handle).items() if value})

    def identity(self) -> Gpu:
        """What never changes, and what matters to a training that starts now: memory, mode, processes."""
        if self.handle is None:
            return self._nothing()
        mode = or_none(lambda: pynvml.nvmlDeviceGetComputeMode(self.handle))
        memory = or_none(lambda: self.answer(queries.MEMORY)) or {}
        total, used = memory.get("memory_total_bytes"), memory.get("memory_used_bytes")
        mig = (or_none(lambda: self.answer(queries.MIG)) or {}).get("mig")
        return replace(
            self.facts,
            **queries.chip(self.handle),
            memory_total_bytes=total if isinstance(total, int) and total else None,
            memory_used_bytes=used if isinstance(used, int) else None,
            mig=mig if isinstance(mig, tuple) else None,
            exclusive=mode in queries.EXCLUSIVE,
            prohibited=mode == pynvml.NVML_COMPUTEMODE_PROHIBITED,
            processes=described(or_none(lambda: queries.computing(self.handle)) or [], self._own_pid),
        )

    # ---- readings -----------------------------------------------------------------------------

    def read(self, slow: bool) -> Gpu:
        """Return a reading of the GPU. `slow` includes the figures that change rarely or take long to read."""
        if self.is_retry_due:
            self._open()
        if self.handle is None:
            return self._nothing()
        try:
            if slow:
                self._refused, self._slow_values = {}, {}
            self._flow = self._flow or Flow(self.handle)
            flow = self._flow.read(self._instances is None or self._instances.turn_of_the_whole)
            of_mig = queries.MIG_PROCESSES if self._all_of_processes else queries.MIG
            questions = [of_mig if each is queries.MIG else each for each in queries.QUESTIONS]
            questions += [queries.PCIE] if self._pcie and not self._flow.tells_pcie else []
            watched = (queries.PROCESSES, queries.MIG_PROCESSES) if self._all_of_processes else ()
            values: queries.Values = {}
            failed = []
            for question in questions:
                if question in watched or not question.slow or question.keys[0] not in self._slow_values:
                    answer = self.answer(question)
                    if (first := answer[question.keys[0]]) not in REFUSED:
                        failed.append(first is Reason.ERROR)
                    (self._slow_values if question.slow else values).update(answer)
            # A GPU that has fallen off the bus may never report "lost": it is lost if every question fails that the
            # driver does not refuse by itself, and if there were several, as some platforms allow only few.
            if len(failed) > 1 and all(failed):
                raise Lost(f"the GPU no longer answers ({self._fault})")
            values = self._slow_values | values | flow
            mig, processes = values.get("mig"), values.get("processes")
            if isinstance(mig, tuple) and mig:
                self._instances = self._instances or Instances(self.handle)
                values["mig"] = self._instances.read(mig)
            if self._all_of_processes and isinstance(processes, tuple) and processes:
                self._work = self._work or Source(lambda: Work(self.handle))
                used = self._work.ask(Work.read)
                if (work := self._work.reader) is not None and not isinstance(used, Reason):
                    values["processes"] = work.of(processes, used)
                else:
                    values["process_use"] = used
                    if work is not None:
                        work.forget()
        except (Lost, pynvml.NVMLError) as lost:  # of NVML's faults, only the loss of the GPU is raised
            self._lose(Reason.LOST, str(lost) if isinstance(lost, Lost) else text_of(lost))
            return self._nothing()
        self.missing, self.lost_since, self._failures = "", None, 0
        if self._refused.get(queries.MEMORY) is Reason.UNSUPPORTED or values.get("memory_total_bytes") == 0:
            memory = resource_limits.memory()
            values |= {
                "memory_used_bytes": memory.total - memory.available,
                "memory_total_bytes": memory.total,
                "memory_reserved_bytes": Reason.UNSUPPORTED,
                "shared_with_host": True,
            }
        figures = {key: value for key, value in values.items() if not isinstance(value, Reason)}
        if "processes" in figures:
            figures["processes"] = self._described(figures["processes"])
        if figures.get("mig"):
            parts: Sequence[MigInstance] = figures["mig"]
            figures["mig"] = tuple(replace(part, processes=self._described(part.processes)) for part in parts)
        reasons = {
            key: str(value)
            for key, value in values.items()
            if isinstance(value, Reason)
            and value is not Reason.NOT_ASKED
            and not (value is Reason.UNSUPPORTED and key in queries.RARE)
        }
        return replace(self.facts, **figures, reasons=reasons or None)

    def glance(self) -> dict[str, Any]:
        """Return load and used memory alone, by the names of Gpu, in a tenth of the time. Empty if it does not answer,
        of which `read` says why."""
        try:
            values = self.answer(queries.BUSY) | self.answer(queries.MEMORY) if self.handle is not None else {}
        except Lost:
            values = {}
        names = ("busy", "memory_used_bytes")
        return {name: values[name] for name in names if not isinstance(values.get(name, Reason.LOST), Reason)}

    def close(self) -> None:
        """Release the driver's memory for GPM samples, which the next reading allocates again."""
        for reader in (self._flow, self._instances):
            if reader is not None:
                reader.close()
        self._flow = self._instances = None

    def answer(self, question: queries.Question) -> queries.Values:
        """A question that was refused is not asked again before the next slow reading. Raises Lost."""
        if question in self._refused:
            return dict.fromkeys(question.keys, self._refused[question])
        reason = Reason.UNSUPPORTED
        for way in range(self._ways.get(question, 0), len(question.ways)):
            try:
                values = question.ways[way](self.handle)
            except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
                reason, self._fault = reason_of(fault), text_of(fault)
                if reason is Reason.LOST:
                    raise Lost(self._fault) from None
                if reason is Reason.UNSUPPORTED:
                    continue
                break
            self._ways[question] = way
            return values
        if reason is not Reason.ERROR:  # an error may have passed a second later
            self._refused[question] = reason
        return dict.fromkeys(question.keys, reason)

    # ---- the answers as a GPU ------------------------------------------------------------------

    def _described(self, processes: Sequence[GpuProcess] | None) -> tuple[GpuProcess, ...] | None:
        return None if processes is None else described(processes, self._own_pid, self._all_of_processes)

    def _nothing(self) -> Gpu:
        since = None if self.lost_since is None else round(self.lost_since, 1)
        return replace(self.facts, missing=self.missing, lost_since=since, reasons={"*": str(self.why)})

    def _lose(self, why: Reason, message: str) -> None:
        if why is Reason.LOST or self.lost_since is None:  # a lost GPU stays lost, whatever opening it again reports
            self.why, self.missing = why, message
        if why is Reason.LOST and self.lost_since is None:
            self.lost_since = time.time()
        # Not closed: a lost GPU may not even answer that.
        self.handle = self._flow = self._instances = self._work = None
        self._failures += 1
        self._look_again = time.monotonic() + min(LOOK_AGAIN_SECONDS, 2.0**self._failures)
