"""The profile of a proof, read back from its proof.json; for the views, which take it as it is or as a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..profile import phrases, reports
from ..profile.reports import ProfileReport


def report(proof: Mapping[str, Any]) -> ProfileReport | None:
    """None where there is none, or none of today's form."""
    try:
        return reports.from_plain(proof["profile"]) if proof.get("profile") else None
    except (LookupError, TypeError, ValueError):
        return None


def in_brief(proof: Mapping[str, Any]) -> list[str]:
    """What the profile says, in a few lines; or why it says nothing."""
    known = report(proof)
    if known is not None:
        return phrases.in_brief(known)
    going_on = proof.get("state") == "running" and not proof.get("profile_missing")
    return ["it is being read" if going_on else f"no profile: {proof.get('profile_missing') or 'it was not read'}"]
