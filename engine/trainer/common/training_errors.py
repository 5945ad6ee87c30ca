"""The trainer's errors, with messages that a user can act on; any other exception is unexpected."""

from __future__ import annotations

import re

from ...files.writing import without_nodes

_NO_MESSAGE = re.compile(  # lines of TensorFlow and Keras that say where in a graph
    r"^ *(File |in user code:|Detected at node|Stack trace for op|Arguments received by|<stack traces unavailable>"
    r"|Traceback \(most recent|\d+ root error\(s\) found)|Graph execution error|\[\[\{\{node"
)


def first_line(fault: BaseException, most: int = 240) -> str:
    """Return the first line of an exception's text that says what is wrong, in at most so many characters."""
    lines = (without_nodes(line).strip() for line in str(fault).splitlines() if not _NO_MESSAGE.search(line))
    line = next(filter(None, lines), "no message")
    return line if len(line) <= most else line[:most] + "..."


class TrainerError(Exception):
    """A `message` for people, a `hint` on what to do, and a `kind` for programs, such as the views."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.hint = kind, message, hint


class DataError(TrainerError):
    """The data cannot be used in its present form. `message` says why, and `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("data", message, hint)
