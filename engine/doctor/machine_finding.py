"""A finding of the doctor: one line that says what was found, and one that says what to do."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("ok", "note", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """A finding about a part of the machine. `about` names the part; `remedy` is empty if nothing needs to be done."""

    level: str
    about: str
    what: str
    remedy: str = ""
