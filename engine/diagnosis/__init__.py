"""The diagnosis: what limits the speed of a training, why, and what to do about it."""

from __future__ import annotations

from .rules import RULES, SUPPORTING, VERDICTS
from .verdict import SteadyVerdict, diagnose, label, of_run

__all__ = ["RULES", "SUPPORTING", "VERDICTS", "SteadyVerdict", "diagnose", "label", "of_run"]
