"""The signals that ask a run to stop, and the time that it has then; blocks them until a process has its handlers.

Python needs tens of milliseconds before its first handler can be set, and until then such a signal would end the
process. A blocked signal waits in the kernel, also one that is ignored until a handler is installed. The signal mask is
inherited: the parent blocks the signals around the start, and the child unblocks them when its handlers are installed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 30.0  # a training that was asked to stop and has not ended by then is ended by force
# Says that it is a person who asks, beside SIGTERM. Schedulers send SIGTERM and SIGINT to all processes of a job, as
# often as they like; nobody else sends this one, and a process that does not know it ignores it.
BY_PERSON = signal.SIGURG
# Those that run.stop_signal may name. A scheduler may send one to all processes of a job.
BY_SCHEDULER = {"SIGUSR1": signal.SIGUSR1, "SIGUSR2": signal.SIGUSR2}
_BLOCKED = (*NUMBERS, BY_PERSON, *BY_SCHEDULER.values())


@contextmanager
def held() -> Iterator[None]:
    """Block the signals around the start of a process that will call `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold() -> None:
    """Block the signals until `let_through`; those that arrive meanwhile wait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)


def let_through() -> None:
    """Unblock the signals once the handlers are installed; those that waited are delivered now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def set_defaults() -> None:
    """Let a signal end this process at once and without a traceback, for a process that waits for work."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    let_through()
