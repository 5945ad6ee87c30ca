"""The options, each declared once. Presets, `--set`, the form, the help, the documents and the schema derive from here.

To add an option: declare a field in one of the groups, and use it in one trainer function.
"""

from __future__ import annotations

from pydantic import Field

from .catalogue import OptionInfo, by_key, catalogue
from .data import Input, Workload
from .field import Group
from .hardware import Compile, Device, Precision, Strategy
from .synonyms import resolve_key
from .training import Run, Train

SCHEMA_VERSION = 1


class Options(Group):
    """All option groups with every value resolved."""

    workload: Workload = Field(default_factory=Workload)
    device: Device = Field(default_factory=Device)
    precision: Precision = Field(default_factory=Precision)
    compile: Compile = Field(default_factory=Compile)
    input: Input = Field(default_factory=Input)
    strategy: Strategy = Field(default_factory=Strategy)
    train: Train = Field(default_factory=Train)
    run: Run = Field(default_factory=Run)

    @property
    def bytes_to_device(self) -> bool:
        """Whether uint8 images become floats on the device; heavy augmentation and tokens need floats earlier."""
        wanted = self.input
        return wanted.cast == "device" and wanted.augment != "heavy" and self.workload.model != "transformer"


OPTIONS: tuple[OptionInfo, ...] = catalogue(Options)

__all__ = [
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
