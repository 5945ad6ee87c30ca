"""The options, each declared once. Presets, `--set`, the form, the help, the documents and the schema use this
declaration.

To add an option: declare a field in one of the groups, and use it in one trainer function.
"""

from .catalogue import OptionInfo, by_key
from .groups import GROUPS, OPTIONS, Options
from .hardware import Compile, Device, Precision, Strategy
from .input import Input
from .run import Run
from .synonyms import resolve_key
from .training import Train
from .workload import Workload

SCHEMA_VERSION = 1

__all__ = [
    "GROUPS",
    "OPTIONS",
    "SCHEMA_VERSION",
    "Compile",
    "Device",
    "Input",
    "OptionInfo",
    "Options",
    "Precision",
    "Run",
    "Strategy",
    "Train",
    "Workload",
    "by_key",
    "resolve_key",
]
