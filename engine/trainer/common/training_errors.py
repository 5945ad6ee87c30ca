"""The trainer's errors, with messages that a user can act on; any other exception is unexpected."""

from __future__ import annotations


class TrainerError(Exception):
    """A `message` for people, a `hint` on what to do, and a `kind` for programs, such as the views."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.hint = kind, message, hint


class DataError(TrainerError):
    """The data cannot be used in its present form. `message` says why, and `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("data", message, hint)
