"""Calls functions that may never return, in a separate thread, and waits only a given time for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

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
        except Exception as fault:  # noqa: BLE001 - raised again by `result`
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


class BackgroundCalls:
    """Makes calls one after another, all in the same thread, which begins with the first call.

    A call that hangs keeps the thread, which ends with the process.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._late: queue.SimpleQueue[Any] | None = None  # gets the outcome of a call that has not ended in time
        self._has_begun = False

    def result(self, call: Callable[[], T], seconds: float) -> T:
        """Return what `call` returned, or raise what it raised.

        Raises TimeoutError if it has not ended after `seconds`, or at once while an earlier call has not ended.
        """
        if self._late is not None and self._late.empty():
            raise TimeoutError("an earlier call has not been answered")
        outcome: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        self._late = outcome
        self._calls.put((call, outcome))
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._work, name="background calls", daemon=True).start()
        try:
            result = outcome.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        self._late = None
        if isinstance(result, Exception):
            raise result
        return result

    def _work(self) -> None:
        while True:
            call, outcome = self._calls.get()
            try:
                outcome.put(call())
            except Exception as fault:  # noqa: BLE001 - raised again by `result`
                outcome.put(fault)
