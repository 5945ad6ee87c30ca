"""All option groups together, and the flat list of their options."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from .catalogue import Group, OptionInfo, catalogue
from .hardware import Compile, Device, Precision, Strategy
from .input import Input
from .run import Notify, Run
from .training import Train
from .workload import Workload


@dataclass(frozen=True)
class Options:
    """All options of a run, in their groups. Every option has its final value: defaults and presets are already
    applied.
    """

    # The order of the form and of the documents: what most people change first comes first.
    precision: Precision = dataclasses.field(default_factory=Precision)
    compile: Compile = dataclasses.field(default_factory=Compile)
    input: Input = dataclasses.field(default_factory=Input)
    strategy: Strategy = dataclasses.field(default_factory=Strategy)
    device: Device = dataclasses.field(default_factory=Device)
    workload: Workload = dataclasses.field(default_factory=Workload)
    train: Train = dataclasses.field(default_factory=Train)
    run: Run = dataclasses.field(default_factory=Run)
    notify: Notify = dataclasses.field(default_factory=Notify)

    def value(self, key: str) -> Any:
        """Return the value of the option `group.name`."""
        group, name = key.split(".")
        return getattr(getattr(self, group), name)

    def values(self) -> dict[str, Any]:
        """Return all values by `group.name`."""
        return {key: self.value(key) for key in BY_KEY}

    def with_values(self, changes: Mapping[str, Any]) -> "Options":
        """Return the options with other values by `group.name`, which are not checked."""
        options = self
        for key, value in changes.items():
            group, name = key.split(".")
            changed: dict[str, Any] = {group: dataclasses.replace(getattr(options, group), **{name: value})}
            options = dataclasses.replace(options, **changed)
        return options

    @property
    def bytes_to_device(self) -> bool:
        """uint8 images become floats on the device: not if an augmentation or the transformer needs floats."""
        given = self.input
        return given.cast == "device" and given.only_moves and self.workload.model != "transformer"


GROUPS: Mapping[str, type[Group]] = get_type_hints(Options)
OPTIONS: tuple[OptionInfo, ...] = catalogue(GROUPS)
BY_KEY: Mapping[str, OptionInfo] = {info.key: info for info in OPTIONS}
# The options that the form shows first, in the order in which a person sets them.
ESSENTIALS = tuple(sorted((info for info in OPTIONS if info.about.essential), key=lambda info: info.about.essential))
PRIVATE = frozenset(name for name, group in GROUPS.items() if group.private)


def is_private(key: str) -> bool:
    """Return True if the option `group.name` belongs to a group that is private (Group.private)."""
    return key.partition(".")[0] in PRIVATE
