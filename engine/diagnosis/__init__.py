"""The diagnosis: what limits the speed of a training, why, and what to do about it. The public functions are named
here.
"""

from __future__ import annotations

from .rules import RULES, SUPPORTING, VERDICTS
from .verdict import diagnose, label, of_run

__all__ = ["RULES", "SUPPORTING", "VERDICTS", "diagnose", "label", "of_run"]
