"""Resolves presets: YAML files -> options, in the order defaults < extends < the file < --set.

Every value keeps its origin (file and line, or --set), so that every error names its place. YAML is read safely by
files/located_yaml.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from .. import options as opts
from ..files import located_yaml
from ..files.located_yaml import Located, YamlFault, printable, shorten
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..files.preset_names import SUFFIXES, available
from ..files.values import brief
from ..options.catalogue import did_you_mean, nearest
from ..options.synonyms import keys_of, option_meant
from . import paths

TOP_LEVEL = ("schema_version", "description", "extends", *opts.Options.model_fields)
MAX_CHAIN = 20
ENTRY = "workload.entry"
_KNOWN = opts.by_key(opts.OPTIONS)


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a preset: the place (a file or `--set`), the line (None for --set), the key."""

    place: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.place}:{self.line}" if self.line is not None else self.place
        return brief(printable(f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"))


class PresetError(Exception):
    """A preset that cannot be used; `problems` has at least one entry."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Preset:
    """A resolved preset with absolute paths. `origins` gives for each key that is not the default the place that set
    it.
    """

    name: str
    options: opts.Options
    description: str = ""
    origins: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)

    def to_yaml(self) -> str:
        """The preset with every value explicit, readable by `resolve` again."""
        head = {"schema_version": opts.SCHEMA_VERSION, "description": self.description}
        body = head | self.options.model_dump(mode="json")
        return yaml.safe_dump(body, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)

    def changed(self) -> dict[str, Any]:
        """The options that differ from the defaults: key -> value."""
        return {
            key: value
            for key, info in _KNOWN.items()
            if (value := getattr(getattr(self.options, info.group), info.name)) != info.default
        }


@dataclass
class _Layers:
    """The values so far, with the place of each."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    description: str = ""
    bases: dict[str, str] = field(default_factory=dict)  # by key: the folder of the file that set the value


def in_current_folder() -> list[Path]:
    """The preset files in the current folder, without other YAML files."""
    known = {path.resolve() for path in available().values()}
    with contextlib.suppress(OSError):
        found = [Path(name).absolute() for name in sorted(os.listdir()) if name.endswith(SUFFIXES)]
        return [path for path in found if path.resolve() not in known and _looks_like_preset(path)]
    return []


def _looks_like_preset(path: Path) -> bool:
    try:
        return not set(TOP_LEVEL).isdisjoint(located_yaml.read(path))
    except (YamlFault, OSError):
        return False


def find(name_or_path: str, beside: Path | None = None) -> Path:
    """The file that a preset's name or path refers to; raises PresetError."""
    as_path = Path(os.path.expanduser(name_or_path))
    looks_like_path = as_path.suffix in SUFFIXES or os.sep in name_or_path
    if looks_like_path:
        path = beside / as_path if beside and not as_path.is_absolute() else as_path
        if os.path.isfile(path):
            return path
        what = "is a folder, not a preset file" if os.path.isdir(path) else f"no such file{_hint(path, beside)}"
        raise PresetError([Problem(str(path), None, "", what)])
    named = available()
    if name_or_path in named:
        return named[name_or_path]
    for suffix in SUFFIXES:
        if os.path.isfile(f"{name_or_path}{suffix}"):
            what = f"no preset of this name, but there is a file: gputui --preset {name_or_path}{suffix}"
            raise PresetError([Problem(shorten(name_or_path), None, "", what)])
    message = f"no preset of this name{did_you_mean(name_or_path, named)}"
    raise PresetError([Problem(shorten(name_or_path), None, "", f"{message} (known: {', '.join(named)})")])


def _hint(path: Path, beside: Path | None) -> str:
    """What may have been meant by a path that does not exist: a preset by name, or a file beside it."""
    named = available()
    near = path.stem if path.stem in named else nearest(path.stem, named)
    try:
        file = nearest(path.name, [name for name in os.listdir(path.parent) if name.endswith(SUFFIXES)])
    except (OSError, ValueError):
        file = None
    if file is not None and near != path.stem:
        return f", did you mean {path.with_name(file)}?"
    if near is None:
        return "; gputui presets lists the presets that have a name"
    whose = "ships with gputui" if named[near].parent == SHIPPED else "is among your own"
    give = "extends:" if beside else "gputui --preset"
    return f"; the preset {near} {whose} and is given by name: {give} {near}"


def resolve(name_or_path: str, settings: Iterable[str] = ()) -> Preset:
    """A preset by name or path, with `KEY=VALUE` settings on top; raises PresetError."""
    path = find(name_or_path)
    layers = _Layers()
    _add_file(layers, path, chain=())
    _add_settings(layers, settings)
    return _validated(path.stem, layers)


def defaults(settings: Iterable[str] = ()) -> Preset:
    """The default options with `KEY=VALUE` settings on top; raises PresetError."""
    layers = _Layers()
    _add_settings(layers, settings)
    return _validated("default", layers)


def resolve_text(text: str, path: Path) -> Preset:
    """A preset as if `text` stood in the file `path`; raises PresetError."""
    layers = _Layers()
    _add_file(layers, path, chain=(), text=text)
    return _validated(path.stem, layers)


def assemble(name: str, values: Mapping[str, Any], description: str = "") -> Preset:
    """A preset from values by key, as in a form; raises PresetError with one problem for each wrong option."""
    layers = _Layers(dict(values), dict.fromkeys(values, ("form", None)), description)
    return _validated(name, layers)


def _add_file(layers: _Layers, path: Path, chain: tuple[Path, ...], text: str | None = None) -> None:
    place = str(path)
    try:
        tree = located_yaml.read(path) if text is None else located_yaml.parse(text)
        base = _extends(tree)
        if base is not None:
            _add_file(layers, _base(base, path, chain), (*chain, path.resolve()))
        if _names_entry(tree):
            _drop_replaced(layers)
        _add_tree(layers, place, tree)
    except YamlFault as fault:
        raise PresetError([Problem(place, fault.line, fault.key, fault.message)]) from None
    except OSError as fault:
        raise PresetError([Problem(place, None, "", f"cannot be read: {fault.strerror or fault}")]) from None


def _extends(tree: Mapping[str, Located]) -> Located | None:
    base = tree.get("extends")
    if base is not None and not (isinstance(base.value, str) and base.value):
        raise YamlFault("give the name or path of another preset", base.line, "extends")
    return base


def _base(base: Located, path: Path, chain: tuple[Path, ...]) -> Path:
    """The file that `path` extends."""
    if path.resolve() in chain:
        raise YamlFault("extends itself, through " + " -> ".join(p.name for p in chain), base.line, "extends")
    if len(chain) >= MAX_CHAIN:
        raise YamlFault(f"more than {MAX_CHAIN} presets extend one another", base.line, "extends")
    try:
        return find(base.value, beside=path.parent)
    except PresetError as fault:
        problem = fault.problems[0]
        raise YamlFault(f"{shorten(base.value)}: {problem.message}", base.line, "extends") from None


def _names_entry(tree: Mapping[str, Located]) -> bool:
    workload = tree["workload"].value if "workload" in tree else None
    entry = workload.get("entry") if isinstance(workload, dict) else None
    return entry is not None and entry.value is not None


def _drop_replaced(layers: _Layers) -> None:
    """Drop model and data of the presets that are extended, where a user's own training replaces them."""
    for key in [key for key in layers.values if _KNOWN[key].about.own == "replaced"]:
        del layers.values[key]
        layers.origins.pop(key, None)


def _add_tree(layers: _Layers, place: str, tree: Mapping[str, Located]) -> None:
    for group, located in tree.items():
        if group not in TOP_LEVEL:
            raise YamlFault(f"unknown key{_key_meant(group)}", located.line, group or "''")
        if group == "schema_version":
            if located.value != opts.SCHEMA_VERSION or isinstance(located.value, bool):
                raise YamlFault(
                    f"this gputui reads version {opts.SCHEMA_VERSION}, not {shorten(located.value)}",
                    located.line,
                    group,
                )
        elif group == "description":
            if not isinstance(located.value, str):
                raise YamlFault("give a text", located.line, group)
            layers.description = located.value
        elif group != "extends":
            _add_group(layers, place, group, located)


def _key_meant(word: str) -> str:
    """A suggestion for a word at the top of a file: another top-level key, or an option without its group."""
    keys = {info.name: info.key for info in opts.OPTIONS}
    near = None if keys_of(word) else nearest(word, [*TOP_LEVEL, *keys])
    return f", did you mean {keys.get(near, near)}?" if near else option_meant(word, opts.OPTIONS)


def _add_group(layers: _Layers, place: str, group: str, located: Located) -> None:
    if located.value is None:
        return
    if not isinstance(located.value, dict):
        raise YamlFault("must be a mapping of options to values", located.line, group)
    for name, value in located.value.items():
        key = f"{group}.{name}"
        line = value.line if isinstance(value, Located) else located.line
        if key not in _KNOWN:
            raise YamlFault(f"unknown option{option_meant(key, opts.OPTIONS)}", line, key)
        layers.values[key] = value.value if isinstance(value, Located) else value
        layers.origins[key] = (place, line)
        layers.bases[key] = os.path.dirname(place)


def _add_settings(layers: _Layers, settings: Iterable[str]) -> None:
    """Add the settings as one layer, in which their order means nothing."""
    given = _Layers()
    for setting in settings:
        _add_setting(given, setting)
    if given.values.get(ENTRY) is not None:
        _drop_replaced(layers)
    for key in given.values:
        layers.bases.pop(key, None)  # a typed path is relative to the current folder
    layers.values.update(given.values)
    layers.origins.update(given.origins)


def _add_setting(layers: _Layers, setting: str) -> None:
    name, equals, text = setting.partition("=")
    place = f"--set {shorten(setting, 60)[1:-1]}"
    if not equals:
        raise PresetError([Problem(place, None, "", "give KEY=VALUE, such as input.batch_size=256")])
    try:
        key = opts.resolve_key(name.strip(), opts.OPTIONS)
    except KeyError as fault:
        raise PresetError([Problem(place, None, "", str(fault.args[0]))]) from None
    if meant := located_yaml.trap(text.strip()):
        raise PresetError([Problem(place, None, key, meant)])
    layers.values[key] = located_yaml.scalar(text)
    layers.origins[key] = (place, None)


def _validated(name: str, layers: _Layers) -> Preset:
    nested: dict[str, dict[str, Any]] = {}
    for key, value in layers.values.items():
        group, option_name = key.split(".", 1)
        nested.setdefault(group, {})[option_name] = value
    try:
        options = opts.Options.model_validate(nested)
    except ValidationError as fault:
        raise PresetError(_problems(fault, layers)) from None
    return Preset(name, paths.absolute(options, layers.bases), layers.description, layers.origins)


def _problems(fault: ValidationError, layers: _Layers) -> list[Problem]:
    """One problem for each option, in terms of what the option accepts (pydantic reports one per type of a union)."""
    found: dict[str, Problem] = {}
    for error in fault.errors():
        key = ".".join(str(part) for part in error["loc"][:2])
        place, line = layers.origins[key]
        found.setdefault(key, Problem(place, line, key, _does_not_fit(_KNOWN[key], layers.values[key])))
    return list(found.values())


def _does_not_fit(info: opts.OptionInfo, value: Any) -> str:
    """What to give instead; for a value that TensorFlow has and gputui does not, also why."""
    if isinstance(value, str) and value in info.about.not_offered:
        return f"{value} is not available: {info.about.not_offered[value]}"
    return f"{shorten(value)} does not fit: give {info.accepts}"
