"""Calls a function that may never return, in a separate thread, and waits only a given time for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Calls `call` in a new thread as soon as it is created. If the call hangs, its thread ends with the process."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._outcome: queue.Queue[T | Exception] = queue.Queue()
        self._call = call
        threading.Thread(target=self._put, name="background call", daemon=True).start()

    def _put(self) -> None:
        try:
            self._outcome.put(self._call())
        except Exception as fault:  # noqa: BLE001 - raised again where the result is read
            self._outcome.put(fault)

    def result(self, seconds: float) -> T:
        """Return what the call returned, or raise what it raised.

        Raises TimeoutError if it has not ended after `seconds`.
        """
        try:
            result = self._outcome.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if isinstance(result, Exception):
            raise result
        return result
