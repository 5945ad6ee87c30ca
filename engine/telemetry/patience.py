"""Ask something that may never answer: in a thread of its own, waited for only so long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Asked(Generic[T]):
    """It is asked when this is made; a thread whose call hangs is left behind and ends with the process."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._answers: queue.Queue[T | Exception] = queue.Queue()
        self._ask = ask
        threading.Thread(target=self._put, name="patience", daemon=True).start()

    def _put(self) -> None:
        try:
            self._answers.put(self._ask())
        except Exception as fault:
            self._answers.put(fault)

    def answer(self, seconds: float) -> T:
        """What it returned or raised; TimeoutError when it has not answered by then."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer
