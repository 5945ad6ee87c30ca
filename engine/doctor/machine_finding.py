"""A finding of the doctor: one line that describes a part of the machine, and one line with the remedy."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("ok", "note", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """A finding about a part of the machine, which `about` names; `what` is the finding in one line.

    `level` is one of LEVELS. `remedy` says what to do, and is empty if nothing needs to be done.
    """

    level: str
    about: str
    what: str
    remedy: str = ""
