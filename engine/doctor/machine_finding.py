"""A finding of the doctor: one line that describes a part of the machine, and one line with the remedy."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("ok", "note", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """A finding about a part of the machine, which `about` names. `level` is one of LEVELS.

    `remedy` is empty if nothing needs to be done.
    """

    level: str
    about: str
    what: str
    remedy: str = ""
