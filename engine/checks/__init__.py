"""Checks options against this machine before anything starts.

`__all__` has the names that other packages use.
"""

from __future__ import annotations

from ..job.machine_gpus import training_gpus, visible_gpus
from .all_checks import RULES, check, of_options, of_preset, on_screen
from .file_rules import of_packages, of_resumed, own_batch
from .gpu_checks import on_cpu, replicas
from .multi_worker import by_command, measured_alone, of_job, of_kind, of_remarks
from .option_finding import Finding

__all__ = [
    "RULES",
    "Finding",
    "by_command",
    "check",
    "measured_alone",
    "of_job",
    "of_kind",
    "of_options",
    "of_packages",
    "of_preset",
    "of_remarks",
    "of_resumed",
    "on_cpu",
    "on_screen",
    "own_batch",
    "replicas",
    "training_gpus",
    "visible_gpus",
]
