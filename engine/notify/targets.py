"""Decides where a notice is sent: the options of the preset, and for what it does not give the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..files import located_yaml, places
from ..files.located_yaml import YamlFault
from ..options import BY_KEY, Notify, OptionInfo

GROUP = "notify"


class TargetFault(Exception):
    """The settings file cannot be used: file, line and reason."""


@dataclass(frozen=True)
class Targets:
    """A `command`, an address `url` with the `format` of its content, or both."""

    command: str = ""
    url: str = ""
    format: str = "text"
    when: str = "end"

    def wants(self, failed: bool) -> bool:
        """`failed`: it was a failure."""
        return bool(self.command or self.url) and (self.when == "end" or (self.when == "failure" and failed))


def option(name: str) -> OptionInfo:
    """Return the declaration of `notify.NAME`, which is also that of the setting with this key."""
    return BY_KEY[f"{GROUP}.{name}"]


def of_options(options: Mapping[str, Any]) -> Targets:
    """The options are by `group.name`. Raises TargetFault if the settings file is needed and has a fault there."""
    given = {info.name: options.get(f"{GROUP}.{info.name}") for info in fields(Notify)}
    if given["when"] == "never":
        return Targets(when="never")
    return Targets(**of_settings() | {name: str(value) for name, value in given.items() if value is not None})


def of_settings(path: Path | None = None) -> dict[str, str]:
    """What the settings file gives. Raises TargetFault."""
    path = path or places.settings_file()
    try:
        section = located_yaml.read_settings(path).get(GROUP)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise TargetFault(f"{path} cannot be read: {fault.strerror or fault}") from None
    except YamlFault as fault:
        raise TargetFault(f"{path}:{fault.line}: {fault.message}") from None
    located: Mapping[str, Any] = section.value if section and isinstance(section.value, dict) else {}
    values = {}
    for info in fields(Notify):
        if info.name not in located or located[info.name].value is None:
            continue
        value, choices = located[info.name].value, option(info.name).choices
        if not isinstance(value, str) or (choices and value not in choices):
            takes = f"one of {', '.join(choices)}" if choices else "a text"
            raise TargetFault(f"{path}:{located[info.name].line}: {GROUP}.{info.name} must be {takes}")
        values[info.name] = value
    return {name: value for name, value in values.items() if value}
