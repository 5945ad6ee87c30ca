"""What a diagnosis without a verdict says to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WITHOUT_VERDICT = "no change is proposed; gputui tune (T in the form) tries changes without a diagnosis"


def next_step(diagnosis: Mapping[str, Any]) -> str:
    """Nothing where there is a verdict or a remedy."""
    return "" if diagnosis.get("verdict") != "undecided" or diagnosis.get("remedies") else WITHOUT_VERDICT
