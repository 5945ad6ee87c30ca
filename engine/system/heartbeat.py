"""The heartbeat of a trainer: two bytes of memory that it shares with its engine, which watches them for a hang."""

from __future__ import annotations

import mmap
import os

VARIABLE = "GPUTUI_HEARTBEAT"  # environment variable of a trainer: the file descriptor of the shared memory
_BEATS, _USER_CODE, _BYTES = 0, 1, 2


class TrainerHeartbeat:
    """A counter that changes when the devices have completed work, and a flag while user code runs (this object is its
    context). Without a descriptor of shared memory both are in ordinary memory.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory: mmap.mmap | bytearray = bytearray(_BYTES)
        if descriptor is not None:
            self._memory = mmap.mmap(descriptor, _BYTES)

    @classmethod
    def inherited(cls, text: str | None) -> TrainerHeartbeat:
        """The shared memory has the descriptor `text`, as the engine has passed it."""
        if not text:
            return cls()
        descriptor = int(text)
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> None:
        self._memory[_USER_CODE] = 1

    def __exit__(self, *fault: object) -> None:
        self._memory[_USER_CODE] = 0
        self.beat()

    def beat(self) -> None:
        """The devices have completed work for which the host has waited."""
        self._memory[_BEATS] = (self._memory[_BEATS] + 1) % 256

    @property
    def count(self) -> int:
        return self._memory[_BEATS]

    @property
    def in_user_code(self) -> bool:
        return bool(self._memory[_USER_CODE])


def create_shared() -> tuple[TrainerHeartbeat, int | None]:
    """Return it with the descriptor for the trainer; None if the system has no such memory."""
    if not hasattr(os, "memfd_create"):
        return TrainerHeartbeat(), None
    descriptor = os.memfd_create("gputui-heartbeat")
    os.ftruncate(descriptor, _BYTES)
    return TrainerHeartbeat(descriptor), descriptor
