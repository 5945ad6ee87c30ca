"""Checks options against this machine before anything starts. The functions that other packages use are named here."""

from __future__ import annotations

from .finding import Finding
from .rules import RULES, check, of_job, of_preset, replicas, training_gpus

__all__ = ["RULES", "Finding", "check", "of_job", "of_preset", "replicas", "training_gpus"]
