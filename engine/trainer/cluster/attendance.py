"""Who is there while the workers meet, and the lines to them; one that is started again takes its place again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import lines
from .lines import Lines

Hello = Mapping[str, Any]


class Attendance:
    """What each worker has said of itself, by index; used by several threads."""

    def __init__(self, index: int, itself: Hello, others: Sequence[int]) -> None:
        self.heard: dict[int, Hello] = {index: itself}
        self.lines = Lines()
        self.ended: dict[int, float] = {}  # when workers were lost that had been there
        self._others = others
        self._lock = threading.Lock()
        self._left = False

    def missing(self) -> list[int]:
        """Those that are not there, or not any more."""
        with self._lock:
            self.ended |= dict.fromkeys(self.lines.drop_ended(), time.monotonic())
            return [index for index in self._others if not self.lines.both_ways(index)]

    def reached(self, index: int, hello: Hello, line: socket.socket) -> None:
        """Keep the line to the process that listens at a worker's address; raises ValueError after `leave`."""
        with self._lock:
            self._require_presence()
            if not self._is_known(index, hello):
                lines.drop(self.lines.answered, index)  # of one that was there before
            self.heard[index] = hello
            lines.keep(self.lines.called, index, line)

    def called_by(self, index: int, hello: Hello, line: socket.socket) -> None:
        """Keep the line of a worker that has called; raises ValueError where another one is there, and it calls again.

        It was started again, and the end of the one before has not been noticed yet; or two have one number.
        """
        with self._lock:
            self._require_presence()
            if index in self.lines.called and not self._is_known(index, hello):
                raise ValueError("another process")
            self.heard[index] = hello
            lines.keep(self.lines.answered, index, line)

    def leave(self) -> None:
        """Close all lines; none is kept any more."""
        with self._lock:
            self._left = True
            self.lines.close()

    def _is_known(self, index: int, hello: Hello) -> bool:
        return bool(self.heard.get(index, {}).get("process") == hello.get("process"))

    def _require_presence(self) -> None:
        if self._left:
            raise ValueError("this worker has left")
