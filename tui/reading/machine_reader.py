"""The present state of the GPUs and the host, without a run: the engine's readers in, snapshots out.

Asking the driver may take long or hang and has a thread of its own (engine/telemetry/sampler.py).

Deferred imports: NVML and psutil are loaded in the thread that reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue

from ...engine import runs
from ...engine.runs import Run
from ...engine.runs.events import Event
from ...engine.runs.parsing import dated
from . import LOOKED_AT
from .run.snapshot import Snapshot
from .run.store import Store

READ_SECONDS = 1.0
TAKE_SECONDS = 0.1


class MachineReader:
    """Reads the machine for one viewer. `run` is a run that is running on this machine, None if there is none."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.stuck_seconds = 0.0
        self._told: SimpleQueue[tuple[float, Event]] = SimpleQueue()

    def follow(self, leaving: threading.Event) -> Iterator[Snapshot]:
        """Yield snapshots until `leaving` is set. Ends when the driver has been released, or if it does not answer."""
        from ...engine.telemetry.host import Host
        from ...engine.telemetry.sampler import GpuReader
        from .gpu_leases import with_leases

        # A run on another machine has no trainer here.
        self.run = next((run for run in runs.all_runs()[:LOOKED_AT] if run.liveness.trainer), None)
        trainer = self.run.process("trainer") if self.run else None
        pid = trainer.pid if trainer else None
        # Reading the traffic keeps the driver busy: it is read only if no training could be delayed.
        reader = GpuReader(self._tell, READ_SECONDS, pcie=pid is None, own_pid=pid, processes=True)
        reader.start()
        host, store, due = Host(pid or NOBODY), Store(), 0.0
        try:
            while not leaving.wait(TAKE_SECONDS):
                if time.monotonic() >= due:
                    due = time.monotonic() + READ_SECONDS
                    self._tell(host.read())
                self.stuck_seconds = reader.stuck_seconds
                if events := list(self._events()):
                    store.feed(events)
                    now = store.snapshot()
                    yield replace(now, gpus=with_leases(now.gpus))
        finally:
            reader.stop()

    def _tell(self, event: Event) -> None:
        self._told.put((time.time(), event))

    def _events(self) -> Iterator[Event]:
        """Yield the readings since the last call as events of a run."""
        while True:
            try:
                t, event = self._told.get_nowait()
            except Empty:
                return
            yield dated(event, t)


NOBODY = -1  # a process id that no process has
