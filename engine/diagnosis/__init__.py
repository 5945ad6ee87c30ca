"""The diagnosis: what holds a training back, why, and what to do about it. What others use is named here."""

from __future__ import annotations

from .rules import BESIDE, ENOUGH_STEPS, RULES, VERDICT_LABELS, diagnose, of_run

__all__ = ["BESIDE", "ENOUGH_STEPS", "RULES", "VERDICT_LABELS", "diagnose", "of_run"]
