"""The options, each declared once. Presets, `--set`, the form, the help, the documents and the schema use this
declaration. To add one: declare a field in one of the groups, and use it in one trainer function.
"""

from .catalogue import OptionInfo
from .groups import BY_KEY, ESSENTIALS, GROUPS, OPTIONS, PRIVATE, Options, is_private
from .hardware import Compile, Device, Precision, Strategy
from .input import Input
from .run import Notify, Run
from .synonyms import ARGUMENTS, argument_of, resolve_key
from .training import Train
from .workload import Workload

SCHEMA_VERSION = 1

__all__ = [
    "ARGUMENTS", "BY_KEY", "ESSENTIALS", "GROUPS", "OPTIONS", "PRIVATE", "SCHEMA_VERSION", "Compile", "Device", "Input",
    "Notify", "OptionInfo", "Options", "Precision", "Run", "Strategy", "Train", "Workload", "argument_of", "is_private",
    "resolve_key",
]  # fmt: skip
