"""The options, each declared once. Presets, `--set`, the form, the help, the documents and the schema use this
declaration.

To add an option: declare a field in one of the groups, and use it in one trainer function.
"""

import dataclasses
from collections.abc import Mapping
from typing import get_type_hints

from .catalogue import Group, OptionInfo, by_key, catalogue
from .hardware import Compile, Device, Precision, Strategy
from .input import Input
from .run import Run
from .synonyms import resolve_key
from .training import Train
from .workload import Workload

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Options:
    """All option groups with every value resolved."""

    # The order of the form and of the documents: what most people change first comes first.
    precision: Precision = dataclasses.field(default_factory=Precision)
    compile: Compile = dataclasses.field(default_factory=Compile)
    input: Input = dataclasses.field(default_factory=Input)
    strategy: Strategy = dataclasses.field(default_factory=Strategy)
    device: Device = dataclasses.field(default_factory=Device)
    workload: Workload = dataclasses.field(default_factory=Workload)
    train: Train = dataclasses.field(default_factory=Train)
    run: Run = dataclasses.field(default_factory=Run)

    @property
    def bytes_to_device(self) -> bool:
        """True if uint8 images are copied to the device and become floats there (input.cast is `device`).

        False with heavy augmentation and for the transformer's tokens, which need floats earlier.
        """
        given = self.input
        return given.cast == "device" and given.augment != "heavy" and self.workload.model != "transformer"


GROUPS: Mapping[str, type[Group]] = get_type_hints(Options)
OPTIONS: tuple[OptionInfo, ...] = catalogue(GROUPS)

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
