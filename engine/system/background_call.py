"""Calls a function that may never return, in a separate thread, and waits only a given time for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Begins when it is made; a thread whose call hangs is left behind and ends with the process."""

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
        """What it returned or raised; TimeoutError when it has not answered by then."""
        try:
            result = self._outcome.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if isinstance(result, Exception):
            raise result
        return result
