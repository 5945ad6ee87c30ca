"""A preset with resolved options (`Preset`), and the problems of a preset that cannot be used (`PresetError`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import options as opts
from ..files.values import brief, printable

SWEEP = "sweep"  # the entry with the options of `gputui sweep`, which a run ignores
TOP_LEVEL = ("schema_version", "description", "extends", *opts.GROUPS, SWEEP)
LIST = "tag:yaml.org,2002:seq"


@dataclass(frozen=True)
class Problem:
    """`place` is a file or `--set`; `line` is None if the place has no lines."""

    place: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.place}:{self.line}" if self.line is not None else self.place
        named = not self.key or self.place.startswith(f"--set {self.key}=")
        return printable(f"{where}: {self.message}" if named else f"{where}: {brief(self.key)}: {self.message}")


class PresetError(Exception):
    """It has at least one problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Preset:
    """Every option has a value, and all paths are absolute."""

    name: str
    options: opts.Options
    description: str = ""
    origins: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)  # place and line of what was set
    file: Path | None = None  # None if none was read
    sweep: Mapping[str, Any] = field(default_factory=dict)  # for engine/sweep/swept_values.py
    run_name: str = ""  # of the run that is started with it

    def to_yaml(self) -> str:
        """Every value explicit, each on a line of its own."""
        import yaml  # not needed for the first paint

        class Dumper(yaml.SafeDumper):
            """Writes each list on one line."""

        Dumper.add_representer(list, lambda dumper, value: dumper.represent_sequence(LIST, value, flow_style=True))
        head = {"schema_version": opts.SCHEMA_VERSION, "description": self.description}
        body = head | asdict(self.options)
        return yaml.dump(body, Dumper=Dumper, sort_keys=False, default_flow_style=False, width=110, allow_unicode=True)

    def changed_as_yaml(self) -> str:
        """The values that differ from the defaults, which other versions of gputui mostly know, too."""
        import yaml  # the same

        body: dict[str, Any] = {"description": self.description}
        for key, value in self.changed().items():
            group, _, name = key.partition(".")
            body.setdefault(group, {})[name] = value
        return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)

    def changed(self) -> dict[str, Any]:
        """The values that differ from the defaults, by key."""
        values = self.options.values()
        return {key: value for key, value in values.items() if value != opts.BY_KEY[key].default}
