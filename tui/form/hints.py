"""The settings that a hint proposes: `try input.batch_size=16` sets an option that the form can be given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .state import INFO, to_value

SETTING = re.compile(r"\b(?P<key>[a-z]+\.[a-z0-9_]+)=(?P<text>[^\s,;()]+)")


def proposed(hint: str) -> Mapping[str, Any]:
    """The first choice of a hint: one setting, or several that are joined by `and`; a comma or `or` begins another."""
    for part in re.split(r"\bor\b|[,;]\s", hint):
        named = [(info, found["text"]) for found in SETTING.finditer(part) if (info := INFO.get(found["key"]))]
        if named:
            return {info.key: to_value(info, text.rstrip(".")) for info, text in named}
    return {}
