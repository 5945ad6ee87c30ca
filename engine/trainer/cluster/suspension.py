"""Notices that this process was suspended, by SIGSTOP or a debugger: then the other workers have gone on without it."""

from __future__ import annotations

import threading
import time

LOOK_SECONDS = 1.0
LEAST_SECONDS = 5.0
IDLE = 0.1  # of one core: a thread may also wait long for one that computes and holds Python's lock
LATELY_SECONDS = 120.0


class SuspensionWatch(threading.Thread):
    """Looks at the clock every second; a look that comes much too late, without computing meanwhile, is told."""

    def __init__(self) -> None:
        super().__init__(name="suspension", daemon=True)
        self._found: tuple[float, float] | None = None  # how long it was suspended, and when it went on

    def run(self) -> None:
        while True:
            began, cpu = time.monotonic(), time.process_time()
            time.sleep(LOOK_SECONDS)
            passed = time.monotonic() - began
            if passed > LEAST_SECONDS and time.process_time() - cpu < IDLE * passed:
                self._found = passed, time.monotonic()

    @property
    def seconds(self) -> float | None:
        """How long it was suspended, where it has gone on lately."""
        if self._found is None or time.monotonic() - self._found[1] > LATELY_SECONDS:
            return None
        return self._found[0]
