"""Signs that a trainer gives its engine in shared memory, without an event: work has ended, a user's code runs."""

from __future__ import annotations

import mmap
import os

VARIABLE = "GPUTUI_SIGNS"  # environment variable of a trainer: the descriptor of the memory
_WORK, _USERS_CODE, _BYTES = 0, 1, 2


class Signs:
    """Two bytes: a count that changes whenever the devices have ended work, and whether a user's code runs.

    A process whose signs nobody reads gives them in memory of its own. To give one costs less than a microsecond.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory: mmap.mmap | bytearray = bytearray(_BYTES)
        if descriptor is not None:
            self._memory = mmap.mmap(descriptor, _BYTES)

    @classmethod
    def inherited(cls, text: str | None) -> Signs:
        """Those whose descriptor the engine has passed to this process as `text`, if it has."""
        if not text:
            return cls()
        descriptor = int(text)
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> None:
        """A user's code begins: how long it takes is unknown, and says nothing of the devices."""
        self._memory[_USERS_CODE] = 1

    def __exit__(self, *fault: object) -> None:
        self._memory[_USERS_CODE] = 0
        self.work_ended()

    def work_ended(self) -> None:
        """The host has waited for the devices, and they have done what they were given."""
        self._memory[_WORK] = (self._memory[_WORK] + 1) % 256

    @property
    def count(self) -> int:
        return self._memory[_WORK]

    @property
    def in_users_code(self) -> bool:
        return bool(self._memory[_USERS_CODE])


def shared() -> tuple[Signs, int | None]:
    """New signs, and the descriptor to pass on; None where the system has no such memory."""
    if not hasattr(os, "memfd_create"):
        return Signs(), None
    descriptor = os.memfd_create("gputui-signs")
    os.ftruncate(descriptor, _BYTES)
    return Signs(descriptor), descriptor
