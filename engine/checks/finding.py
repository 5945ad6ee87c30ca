"""What a check of options has found: an error, a warning or a note, with the options it is about and what to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """An `error` refuses the launch; a `warning` and a `note` are said. `options` are the keys it is about."""

    level: str
    options: tuple[str, ...]
    message: str
    change: str

    def __str__(self) -> str:
        return f"{', '.join(self.options)}: {self.message}; {self.change}"


def error(key: str, message: str, change: str) -> Finding:
    return Finding("error", (key,), message, change)
