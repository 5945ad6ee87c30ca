"""The requests to stop that reach a command while it follows a run or a measurement, and the exit code of the run."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ...engine import runs as run_folders
from ...engine.process import resuming
from ...engine.runs import Run, RunError
from ...engine.runs.run import WAITING
from ...engine.system import stop_signals
from ..base.errors import TO_BE_RESUMED, exit_code

if TYPE_CHECKING:
    from ...engine.proof.folder import Proof

POLL_SECONDS = 0.1
AGAIN_SECONDS = 0.3  # a program that started this one, such as a launcher, may pass Ctrl-C on and so double it


class Presses:
    """Counts the requests to stop the run that reach this process as signals, which then do not end it. The requests
    are passed on even while the main thread is blocked. Each Ctrl-C at a terminal counts. Other signals (SIGTERM,
    run.stop_signal, a SIGINT that no person has sent) may come from a scheduler, which may repeat them. They count only
    if no request came before."""

    def __init__(self, stop_signal: str = "none") -> None:
        self.asked: list[Sequence[int]] = []  # for each that counts the signals to send
        self._pressed_at = -math.inf
        self._waiting: SimpleQueue[Sequence[int]] = SimpleQueue()  # whose `put` a signal handler may call
        signal.signal(signal.SIGINT, self._pressed)
        signal.signal(signal.SIGTERM, self._scheduler_signal)
        if stop_signal in stop_signals.BY_SCHEDULER:
            signal.signal(stop_signals.BY_SCHEDULER[stop_signal], self._scheduler_signal)

    @property
    def count(self) -> int:
        return len(self.asked)

    def ask(self, send: Callable[[Sequence[int]], None], begins: Callable[[], bool]) -> None:
        """Call `send` in a thread with the signal numbers of each request, earlier ones included, from now on. After a
        RunError, as before the process id is recorded, it is called again while the training `begins`."""

        def pass_on() -> None:
            while True:
                numbers, is_over = self._waiting.get(), False
                while not is_over:
                    try:
                        send(numbers)
                        is_over = True
                    except RunError:
                        is_over = not begins()
                        time.sleep(POLL_SECONDS)

        threading.Thread(target=pass_on, name="presses", daemon=True).start()

    def rounds(self, goes_on: Callable[[], bool], stopping: Callable[[str], None]) -> Iterator[None]:
        """Yield every POLL_SECONDS while `goes_on`. `stopping` gets for each request a text that says what the next
        Ctrl-C does; empty if no person has pressed Ctrl-C."""
        shown = 0
        while goes_on():
            yield
            if self.count > shown:
                shown += 1
                stopping("; press Ctrl-C again to end it at once" if run_folders.ASKED_BY_PERSON in self.asked else "")
            if goes_on():
                time.sleep(POLL_SECONDS)

    def _pressed(self, _number: int, frame: Any) -> None:
        if not _at_a_terminal():
            self._scheduler_signal(signal.SIGTERM, frame)
        elif time.monotonic() - self._pressed_at >= AGAIN_SECONDS:
            self._pressed_at = time.monotonic()
            self._count(run_folders.ASKED_BY_PERSON)

    def _scheduler_signal(self, number: int, _frame: Any) -> None:
        if not self.asked:
            self._count((number,))

    def _count(self, numbers: Sequence[int]) -> None:
        self.asked.append(numbers)
        self._waiting.put(numbers)


def _at_a_terminal() -> bool:
    """True if this process is in the foreground of a terminal and so receives the pressed keys."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def stop_in_queue(item: Run | Proof, name: str, what: str) -> bool:
    """Take a run or a measurement that waits out of the queue, or have Slurm ask it to stop; False if neither."""
    if not item.queue_file.exists():
        return False
    from ...engine.queue import entry_changes, slurm_queue  # only for what was queued

    entry_changes.wait_for_start(item.id)
    if item.state == WAITING:
        entry_changes.remove(item.id)
        print(f"{name} is taken out of the queue")
    elif slurm_queue.stop(item.id):
        print(f"{name} is asked to stop by Slurm; repeat the command to end {what} at once")
    else:
        entry_changes.end_for_good(item.id)
        return False
    return True


def code_of(run: Run, outcome: str | None) -> int:
    """Return the exit code of the command that trained the run, which has ended with the outcome."""
    if outcome in ("stopped", "timeout") and run.status.get("ended_by") and not resuming.why_not(run):
        return TO_BE_RESUMED
    return exit_code(outcome)
