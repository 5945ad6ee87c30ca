"""A finding of a check: an error, a warning or a note, with the options that it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """An `error` refuses the launch; a `warning` or a `note` is only shown. `options` are the keys of the options
    concerned.
    """

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        return f"{', '.join(self.options)}: {self.message}; {self.change}"


def error(key: str, message: str, change: str) -> Finding:
    return Finding("error", (key,), message, change)
