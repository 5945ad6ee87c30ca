"""Being asked to stop: by a signal, by the engine through its pipe, or by the engine's death.

Separates the asking (any thread, any time, also while TensorFlow sits in C++) from the stopping, which the
training loop does between two executions. Before the first step nothing can be lost, and a stop is immediate; later,
whoever cannot stop in time is ended with `os._exit`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import IO

GRACE_SECONDS = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(Exception):
    """Raised in the training loop; `reason` is `stopped` or `timeout`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StopSwitch:
    """Set once by whoever asks first; `check` raises in the loop when it is set."""

    def __init__(self) -> None:
        self.reason = ""
        self.at_once = True  # until a step has been trained
        self.leave_result: Callable[[str], None] = lambda reason: None

    def listen(self, lifeline: IO[str]) -> None:
        """Block the signals in all threads and wait for them in one; watch the engine's pipe in another."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._wait_for_signals, name="signals", daemon=True).start()
        threading.Thread(target=self._watch_engine, args=(lifeline,), name="lifeline", daemon=True).start()

    def request(self, reason: str, deadline: bool = False) -> None:
        """Ask for a stop; with `deadline` the process ends itself when the loop does not answer."""
        self.reason = self.reason or reason
        if self.at_once:
            self._leave()
        if deadline:
            timer = threading.Timer(GRACE_SECONDS, self._leave)
            timer.daemon = True
            timer.start()

    def check(self) -> None:
        if self.reason:
            raise StopRequested(self.reason)

    def _wait_for_signals(self) -> None:
        while True:
            signal.sigwait(_SIGNALS)
            self.request("stopped")

    def _watch_engine(self, lifeline: IO[str]) -> None:
        for line in lifeline:
            self.request("timeout" if line.strip() == "timeout" else "stopped")
        # End of file: the engine is gone, and with it whoever would end a hung training.
        self.request("stopped", deadline=True)

    def _leave(self) -> None:
        """End the process from any thread, whatever the main one is doing."""
        self.leave_result(self.reason)
        os._exit(0)
