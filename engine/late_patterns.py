"""Regular expressions that are compiled at their first use: the first paint of the form needs few of them."""

from __future__ import annotations

import re
from typing import Any, cast


class _Late:
    """Takes a pattern's place, and gets each of its methods from the compiled pattern at the method's first use."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._given), name)
        setattr(self, name, method)
        return method


def late(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return an object with the attributes and methods of `re.compile(pattern, flags)`."""
    return cast(re.Pattern[str], _Late(pattern, flags))
