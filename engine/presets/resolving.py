"""Resolves presets: reads YAML files and makes options of them. Later sources replace earlier ones: the defaults, the
preset named by `extends`, the file, --set. Every value keeps its origin, so that every error names its place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import entry
from .. import options as opts
from ..files import located_yaml
from ..files.located_yaml import Located, YamlFault, shorten
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..options.catalogue import did_you_mean, nearest
from ..options.synonyms import keys_of, option_meant
from ..options.workload import LEFT_TO_FIT
from . import paths
from .paths import SCRIPT, find, name_of
from .preset import SWEEP, TOP_LEVEL, Preset, PresetError, Problem

MAX_CHAIN = 20
MOST_PROBLEMS = 100  # after which the rest of a file is not read
ENTRY = "workload.entry"
FIRST = SHIPPED / "quickstart.yaml"
FIRST_AS_JSON = SHIPPED / "first.json"


@dataclass
class _Layers:
    """The values that have been read up to now, with their origins."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    description: str = ""
    bases: dict[str, str] = field(default_factory=dict)  # by key: the folder of the file that set the value
    sweep: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # wrong entries, which were left out
    arguments: Any = None  # workload.args of the files, before the settings


def resolve(name_or_path: str, settings: Iterable[str] = ()) -> Preset:
    """Return the preset by name or path, with settings `KEY=VALUE`; of a script that trains as it is, the defaults and
    the script. Raises PresetError.
    """
    path = find(name_or_path)
    if path.suffix == SCRIPT:
        layers = _Layers({ENTRY: str(path)}, {ENTRY: (str(path), None)})
        _add_settings(layers, settings)
        preset = _validated(path.stem, layers)
        _refuse_unknown_arguments(preset, layers.arguments, settings)
        return preset
    return replace(resolve_text(None, path, settings), file=path.absolute())


def defaults(settings: Iterable[str] = ()) -> Preset:
    """Return the defaults with settings `KEY=VALUE`. Raises PresetError."""
    layers = _Layers()
    _add_settings(layers, settings)
    return _validated("default", layers)


def resolve_text(text: str | None, path: Path, settings: Iterable[str] = ()) -> Preset:
    """Return the preset that the file `path` would be with this content, or is (None). Raises PresetError."""
    layers = _Layers()
    _add_file(layers, path, chain=(), text=text)
    _add_settings(layers, settings)
    preset = _validated(name_of(path), layers)
    _refuse_unknown_arguments(preset, layers.arguments, settings)
    return preset


def assemble(name: str, values: Mapping[str, Any], description: str = "") -> Preset:
    """The values of a form are by key; others have their defaults. PresetError has a problem for each wrong value."""
    layers = _Layers(dict(values), dict.fromkeys(values, ("form", None)), description)
    return _validated(name, layers)


def _add_file(layers: _Layers, path: Path, chain: tuple[Path, ...], text: str | None = None) -> None:
    place = str(path)
    try:
        tree = located_yaml.read(path) if text is None else located_yaml.parse(text)
        if (base := tree.get("extends")) is not None:
            if not (isinstance(base.value, str) and base.value):
                raise YamlFault("give the name or path of another preset", base.line, "extends")
            _add_file(layers, _base(base, path, chain), (*chain, path.resolve()))
        workload = tree["workload"].value if "workload" in tree else None
        entry = workload.get("entry") if isinstance(workload, dict) else None
        if entry is not None and entry.value is not None:
            _drop_replaced(layers)
        for group, located in tree.items():
            if len(layers.problems) >= MOST_PROBLEMS:
                break
            try:
                _add_entry(layers, place, group, located)
            except YamlFault as fault:
                layers.problems.append(Problem(place, fault.line, fault.key, fault.message))
    except YamlFault as fault:
        raise PresetError([Problem(place, fault.line, fault.key, fault.message)]) from None
    except OSError as fault:
        raise PresetError([Problem(place, None, "", f"cannot be read: {fault.strerror or fault}")]) from None


def _base(base: Located, path: Path, chain: tuple[Path, ...]) -> Path:
    """The file that is extended: the shipped one if a user's preset extends its own name. `chain` leads to `path`."""
    if path.resolve() in chain:
        raise YamlFault("extends itself, through " + " -> ".join(p.name for p in chain), base.line, "extends")
    if len(chain) >= MAX_CHAIN:
        raise YamlFault(f"more than {MAX_CHAIN} presets extend one another", base.line, "extends")
    try:
        file, shipped = find(base.value, beside=path.parent), SHIPPED / f"{base.value}.yaml"
        return shipped if file.resolve() == path.resolve() and shipped.is_file() else file
    except PresetError as fault:
        problem = fault.problems[0]
        raise YamlFault(f"{shorten(base.value)}: {problem.message}", base.line, "extends") from None


def _drop_replaced(layers: _Layers) -> None:
    for key in [key for key in layers.values if opts.BY_KEY[key].about.own == "replaced"]:
        del layers.values[key]
        layers.origins.pop(key, None)


def _add_entry(layers: _Layers, place: str, group: str, located: Located) -> None:
    if group not in TOP_LEVEL:
        keys = {info.name: info.key for info in opts.OPTIONS}  # an option whose group is missing may be meant
        near = None if keys_of(group) else nearest(group, [*TOP_LEVEL, *keys])
        meant = f", did you mean {keys.get(near, near)}?" if near else option_meant(group, opts.OPTIONS)
        raise YamlFault(f"unknown key{meant}", located.line, group or "''")
    if group == "schema_version":
        if located.value != opts.SCHEMA_VERSION or isinstance(located.value, bool):
            raise YamlFault(
                f"this gputui reads version {opts.SCHEMA_VERSION}, not {shorten(located.value)}", located.line, group
            )
    elif group == "description":
        if not isinstance(located.value, str):
            raise YamlFault("give a text", located.line, group)
        layers.description = located.value
    elif group == SWEEP:
        if not isinstance(located.value, dict):
            raise YamlFault("must be a mapping, such as {over: {learning_rate: [1e-3, 3e-3]}}", located.line, group)
        layers.sweep = {name: getattr(value, "value", value) for name, value in located.value.items()}
    elif group == "extends" or located.value is None:
        return
    elif not isinstance(located.value, dict):
        takes = (info for info in opts.OPTIONS if info.group == group and located.value in info.choices)
        meant = next((f", such as {group}: {{{info.name}: {located.value}}}" for info in takes), "")
        raise YamlFault(f"must be a mapping of options to values{meant}", located.line, group)
    else:
        for name, value in located.value.items():
            key = f"{group}.{name}"
            line = value.line if isinstance(value, Located) else located.line
            if len(layers.problems) >= MOST_PROBLEMS:
                break
            if key not in opts.BY_KEY:
                layers.problems.append(Problem(place, line, key, f"unknown option{option_meant(key, opts.OPTIONS)}"))
                continue
            layers.values[key] = value.value if isinstance(value, Located) else value
            layers.origins[key] = (place, line)
            layers.bases[key] = os.path.dirname(place)


def _add_settings(layers: _Layers, settings: Iterable[str]) -> None:
    """Add them as one layer, so that their order has no effect."""
    given = _Layers()
    layers.arguments = layers.values.get(opts.ARGUMENTS)  # of which a setting may change one
    for setting in sorted(settings, key=lambda text: bool(opts.argument_of(text.partition("=")[0].strip()))):
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
        value = located_yaml.scalar(text)
        if names := opts.argument_of(name.strip()):
            value = _with_argument(given.values.get(key, layers.arguments), names, value)
        given.values[key], given.origins[key] = value, (place, None)
    if given.values.get(ENTRY) is not None:
        _drop_replaced(layers)
    for key in given.values:
        layers.bases.pop(key, None)  # a typed path is relative to the current folder
    layers.values.update(given.values)
    layers.origins.update(given.origins)


def _with_argument(arguments: Any, names: tuple[str, ...], value: Any) -> Any:
    """Return the mapping `arguments` with another value at `names`. Anything but a mapping is replaced by one."""
    if not names:
        return value
    inner = arguments if isinstance(arguments, dict) else {}
    return inner | {names[0]: _with_argument(inner.get(names[0]), names[1:], value)}


def _refuse_unknown_arguments(preset: Preset, arguments: Any, settings: Iterable[str]) -> None:
    """Refuse those that neither the files nor the code names. Each word of the code counts as known."""
    named = [(setting, opts.argument_of(setting.partition("=")[0].strip())) for setting in settings]
    workload, text = preset.options.workload, None
    if workload.entry and any(names for _, names in named):
        text = entry.source_text(workload.entry, Path(workload.folder or "."))
    if text is None:
        return
    words = set(re.findall(r"\w+", text))
    for setting, names in named:
        inner = arguments
        for name in names:
            siblings = list(inner) if isinstance(inner, dict) else []
            if name not in siblings and not words.issuperset(re.findall(r"\w+", name)):
                read = re.findall(r"\bargs(?:\.get\(|\[)'(\w+)'", text)
                what = f"neither the preset's workload.args nor the code has the name {shorten(name)}"
                hint = did_you_mean(name, [*siblings, *read]) or "; if the code passes it on, add it to the preset"
                place = f"--set {shorten(setting, 60)[1:-1]}"
                raise PresetError([Problem(place, None, opts.ARGUMENTS, f"{what}{hint}")])
            inner = inner.get(name) if isinstance(inner, dict) else None


def _validated(name: str, layers: _Layers) -> Preset:
    from ..options import validation  # not needed for the first paint

    nested: dict[str, dict[str, Any]] = {}
    for key, value in layers.values.items():
        group, option_name = key.split(".", 1)
        nested.setdefault(group, {})[option_name] = value
    try:
        options = validation.validated(nested)
    except validation.MisfitsError as fault:
        for key, reason in fault.reasons.items():
            info, value, (place, line) = opts.BY_KEY[key], layers.values[key], layers.origins[key]
            what = reason or f"{shorten(value)} does not fit: give {info.accepts}"
            if isinstance(value, str) and value in info.about.not_offered:
                what = f"{value} is not available: {info.about.not_offered[value]}"
            layers.problems.append(Problem(place, line, key, what))
    if layers.problems:
        raise PresetError(sorted(layers.problems, key=lambda problem: (problem.place, problem.line or 0)))
    if options.workload.is_script:
        listed = options.workload.left_to_fit
        left = [key for key in LEFT_TO_FIT if (key not in layers.values if listed is None else key in listed)]
        set_here = {key for key, (place, _) in layers.origins.items() if place.startswith("--set")}
        options = options.with_values({"workload.left_to_fit": [key for key in left if key not in set_here]})
    return Preset(name, paths.absolute(options, layers.bases), layers.description, layers.origins, sweep=layers.sweep)


# ---- the preset that the form opens with ------------------------------------------------------


def first() -> Preset:
    """The preset with which the form opens, from first.json (by `make docs`) unless its file has another text now: the
    form is painted before YAML and pydantic are imported, 0.2 s of CPU earlier. Raises PresetError.
    """
    try:
        made = json.loads(FIRST_AS_JSON.read_text(encoding="utf-8"))
        if made["text"] == FIRST.read_text(encoding="utf-8"):
            options = opts.Options().with_values(made["values"])
            origins = {key: (str(FIRST), line) for key, line in made["lines"].items()}
            return Preset(FIRST.stem, options, made["description"], origins, FIRST)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # an incomplete installation: the file itself decides
    return resolve(str(FIRST))


def first_as_json() -> dict[str, Any]:
    """The content that first.json must have."""
    preset = resolve(str(FIRST))
    values = {key: preset.options.value(key) for key in preset.origins}
    lines = {key: line for key, (_, line) in preset.origins.items()}
    text = FIRST.read_text(encoding="utf-8")
    return {"text": text, "description": preset.description, "values": values, "lines": lines}
