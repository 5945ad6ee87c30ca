"""Checks: what is wrong with options on this machine, told before anything starts. What others use is named here."""

from __future__ import annotations

from .finding import Finding
from .rules import RULES, check, of_job, of_preset, training_gpus

__all__ = ["RULES", "Finding", "check", "of_job", "of_preset", "training_gpus"]
