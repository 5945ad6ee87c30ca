"""The diagnosis: what limits the speed of a training, why, and what to do about it. The public functions are named
here.
"""

from __future__ import annotations

from .rules import BESIDE, RULES, VERDICT_LABELS
from .verdict import diagnose, of_run

__all__ = ["BESIDE", "RULES", "VERDICT_LABELS", "diagnose", "of_run"]
