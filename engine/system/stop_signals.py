"""The signals that ask a run to stop; held back from a new process until it listens for them.

Python needs tens of milliseconds before its first handler can be set, in which these signals would end the process
without a word. Held back they wait in the kernel. A signal mask is inherited: whoever starts a process holds them,
and the process lets them through when its handlers are there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def held() -> Iterator[None]:
    """Around the start of a process of ours that will call `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold() -> None:
    """Until `let_through`: what comes meanwhile waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def let_through() -> None:
    """The handlers are there: what has come in the meantime is delivered now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def set_defaults() -> None:
    """For a process that waits for work: a signal ends it at once, without a traceback."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    let_through()
