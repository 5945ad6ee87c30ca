"""Writes "busy" at the right end of the first line if a key has had no effect yet after 0.3 s. As the application's
thread may be the one that is busy, a thread of its own writes directly to the terminal. Waits for a driver of Textual
that shows that keys are waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LATE_SECONDS = 0.3
ANSWER_SECONDS = 0.03  # a key gets no answer sooner: an answer is for the keys before
TEXT = " busy "


class BusyMark:
    """The mark of one terminal. `write` writes a control sequence to it, and `width` returns its columns. Nothing is
    written before `start` and after `stop`, when the terminal belongs to the shell or to an editor."""

    def __init__(self, write: Callable[[str], None], width: Callable[[], int]) -> None:
        self._write, self._width = write, width
        self._changed = threading.Condition()
        self._due: float | None = None  # when the mark is to be written; None: no key is unanswered
        self._latest = 0.0  # when the latest key came
        self._shown = self._may_write = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._changed:
            self._may_write = True

    def stop(self) -> None:
        with self._changed:
            self._may_write, self._due, self._shown = False, None, False

    def key_came(self) -> None:
        """Record a key; it is unanswered until `answered` is called. Called in any thread."""
        with self._changed:
            self._latest = time.monotonic()
            if not self._may_write or self._due is not None or self._shown:
                return
            self._due = self._latest + LATE_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="busy mark", daemon=True)
                self._thread.start()
            self._changed.notify()

    def answered(self) -> bool:
        """Record that all keys so far had their painted effect. True if the mark is shown: paint the first line."""
        with self._changed:
            shown, self._shown, self._due = self._shown, False, None
            if self._may_write and time.monotonic() - self._latest < ANSWER_SECONDS:
                self._due = self._latest + LATE_SECONDS
                self._changed.notify()
            return shown

    def _watch(self) -> None:
        with self._changed:
            while True:
                if self._due is None:
                    self._changed.wait()
                elif (seconds := self._due - time.monotonic()) > 0:
                    self._changed.wait(seconds)
                else:
                    self._due, self._shown = None, True
                    self._write(mark(self._width()))


def mark(columns: int) -> str:
    """Return the sequence that writes the mark and leaves the cursor and its colours as they are."""
    return f"\x1b7\x1b[1;{max(1, columns - len(TEXT) + 1)}H\x1b[0;7m{TEXT}\x1b[0m\x1b8"
