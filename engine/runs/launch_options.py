"""The options of a run as they were at its launch, read from its folder without pydantic."""

from __future__ import annotations

import sys
from typing import Any

from ..files import located_yaml
from ..files.reading import why
from ..files.values import harmless, harmless_in
from ..system import interpreter
from .run import Run


def options_of(run: Run) -> dict[str, Any]:
    """`group.name` -> value, as at the launch; empty where the preset cannot be read."""
    return read_options(run)[0]


def python_of(run: Run) -> str:
    """The Python in which the run was launched, whatever GPUTUI_PYTHON is now; people may have named another there."""
    given = options_of(run).get("run.python")
    return interpreter.file_of(str(given), str(run.path)) if given else sys.executable


def read_options(run: Run) -> tuple[dict[str, Any], str]:
    """The options, and the reason where they cannot be read."""
    try:
        preset = located_yaml.read(run.file("preset.yaml"))
    except located_yaml.YamlFault as fault:
        return {}, f"line {fault.line} of preset.yaml is damaged, so that its options are unknown: {fault.message}"
    except OSError as fault:
        return {}, f"preset.yaml cannot be read: {why(fault)}"
    groups = {name: located.value for name, located in preset.items() if isinstance(located.value, dict)}
    return {
        harmless(f"{group}.{name}"): harmless_in(located.value)
        for group, items in groups.items()
        for name, located in items.items()
    }, ""
