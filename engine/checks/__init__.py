"""Checks options against this machine before anything starts. The functions that other packages use are named here."""

from __future__ import annotations

from .finding import Finding
from .gpus import on_cpu, replicas, training_gpus, visible_gpus
from .rules import RULES, check, of_job, of_preset

__all__ = ["RULES", "Finding", "check", "of_job", "of_preset", "on_cpu", "replicas", "training_gpus", "visible_gpus"]
