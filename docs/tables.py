"""Writes the generated tables of the documents, and the form's first preset, from the code: `make docs`.

A document marks the place of a table with a pair of comments that name the table. TABLES has the function that makes
each table.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from gputui.engine import figures, presets
from gputui.engine.diagnosis import VERDICTS, rules
from gputui.engine.files.declared_types import Fields
from gputui.engine.interpreter import compatibility
from gputui.engine.options import GROUPS, OPTIONS, OptionInfo
from gputui.engine.options.own_code import OWN_CODE_LABELS
from gputui.engine.presets import resolving
from gputui.engine.process.known_failures import FAILURES, RESUME
from gputui.engine.runs import events
from gputui.engine.telemetry.nvml import queries
from gputui.tui.base import keys

ROOT = Path(__file__).parents[1]
NOT_GIVEN = "null"
# What the end of a name says of its unit.
UNITS = {
    "bytes_per_second": "bytes per second",
    "flops_per_second": "floating-point operations per second",
    "samples_per_second": "samples per second",
    "flops_per_step": "floating-point operations",
    "seconds": "seconds",
    "bytes": "bytes",
    "ms": "milliseconds",
    "ms_p50": "milliseconds, median",
    "ms_p95": "milliseconds, 95th percentile",
    "ms_per_batch": "milliseconds",
    "mhz": "MHz",
    "_c": "degrees Celsius",
    "_w": "watts",
    "_j": "joules",
    "_wh": "watt-hours",
    "step_ms": "milliseconds, by name: p50, p95",
}
NO_FIGURES = {"confidence": "share", "engine_cpu": "cores"}
UNITS_OF_FIGURES = {"share": "share, 0 to 1", "cores": "CPU cores"}
KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "any"}


# ---- Markdown ---------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown. Vertical bars in cells are escaped, as they would end the cell."""
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)


def prose(text: str) -> str:
    """Return a docstring as one paragraph."""
    return " ".join(inspect.cleandoc(text).split())


def paragraphs(text: str) -> str:
    """Return a docstring with one line for each of its paragraphs."""
    return "\n\n".join(map(prose, inspect.cleandoc(text).split("\n\n")))


# ---- options ----------------------------------------------------------------------------------


def options() -> str:
    """Return all options: for each group a section with a table."""
    parts = []
    for name, group in GROUPS.items():
        about = prose(group.__doc__ or "")
        rows = [_option(info) for info in OPTIONS if info.group == name]
        head = ["option", "default", "takes", "what it does", "helps", "hurts"]
        parts.append(f"## {name}\n\n{about}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _option(info: OptionInfo) -> list[str]:
    about = info.about
    default = NOT_GIVEN if info.default is None else str(info.default).lower() if info.is_bool else str(info.default)
    takes = "text" if info.accepts.startswith("text: ") else info.accepts
    does = f"{about.help}{f' (`{about.call}`)' if about.call else ''}{'. GPU only' if about.gpu_only else ''}"
    unit = f" ({about.unit})" if about.unit else ""
    return [code(info.key), code(default), takes + unit, does, about.helps, about.hurts]


def own() -> str:
    """Return a table of the conditions on which options apply to a user's own training, with the options of each.
    Options that always apply are left out.
    """
    labels = {kind: words for kind, words in OWN_CODE_LABELS.items() if kind != "applies"}
    keys = {kind: [info.key for info in OPTIONS if info.about.own == kind] for kind in labels}
    return table(["applies", "options"], [[words, code(*keys[kind])] for kind, words in labels.items()])


def shipped() -> str:
    """Return a table of the presets that ship, with their descriptions."""
    paths = sorted(presets.SHIPPED.glob("*.yaml"))
    return table(["preset", "what it is for"], [[code(p.stem), presets.resolve(str(p)).description] for p in paths])


# ---- runs -------------------------------------------------------------------------------------


def event_types() -> str:
    """Return a section for each type of event with a table of its fields, in the order of declaration."""
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    kinds = [kind for kind in kinds if kind is not events.Event]
    return "\n\n".join(
        f"### {kind.type}\n\n{_said(paragraphs(kind.__doc__ or ''))}\n\n{_declared(kind)}" for kind in kinds
    )


def summary() -> str:
    """Return the description and the table of the fields of `result.json`."""
    return f"{_said(paragraphs(events.Summary.__doc__ or ''))}\n\n{_declared(events.Summary)}"


def run_figures() -> str:
    """Return a table of the figures of a run: their meaning, their unit and their source."""
    better = {True: "more", False: "less", None: ""}
    rows = [
        [figure.label, code(figure.key), figure.unit, better[figure.more_is_better], figure.about, figure.source]
        for figure in figures.RUN
    ]
    return table(["figure", "key", "unit", "better", "what it means", "where it comes from"], rows)


def gpu_readings() -> str:
    """Return a table of the fields that a reading of a GPU may have in addition to its declared fields, with their
    units.
    """
    keys = [key for question in (*queries.QUESTIONS, queries.PCIE) for key in question.keys]
    return table(["field", "unit"], [[code(key), unit(key)] for key in keys])


def _declared(kind: type) -> str:
    hints = get_type_hints(kind, include_extras=True)
    said = _comments(kind)
    rows = [row for field in fields(kind) for row in _rows(field.name, hints[field.name], said.get(field.name, ""))]
    return table(["field", "type", "unit", "remark"], rows)


def _comments(kind: type) -> dict[str, str]:
    """Return the comment at the end of the line that declares a field, by the field's name."""
    declared = "".join(inspect.getsource(part) for part in kind.__mro__ if part is not object)
    found = re.findall(r"^    (\w+): .*?  # (.+)$", declared, re.MULTILINE)
    return {name: _said(words) for name, words in found}


def _rows(name: str, hint: Any, remark: str) -> list[list[str]]:
    """Return the row of a field and, for a mapping with declared entries, a row for each entry."""
    inner = _entries(hint)
    dots = f"{name}[]." if get_origin(hint) is not Annotated else f"{name}."
    about = _entry_comments(inner)
    below = [[code(dots + key), typed(part), unit(key), about.get(key, "")] for key, part in inner.items()]
    return [[code(name), typed(hint), unit(name), remark], *below]


def _entry_comments(inner: Mapping[str, Any]) -> dict[str, str]:
    """Return the comments at the end of the lines that declare the entries of a mapping, by the entry's name.

    `inner` is a mapping that events.py declares. Empty for another mapping.
    """
    name = next((name for name, hint in vars(events).items() if inner and _entries(hint) is inner), "")
    found = re.search(rf"^{name} = .*?^\]", inspect.getsource(events), re.MULTILINE | re.DOTALL)
    return {key: _said(words) for key, words in re.findall(r'"(\w+)": .*?,  # (.+)$', found[0] if found else "", re.M)}


def _said(words: str) -> str:
    """Return a text of the declaration with `null` in place of None, and with the words of PHASES and VERDICTS in place
    of these names.
    """
    lists = {"None": "null", "PHASES": code(*events.PHASES), "VERDICTS": code(*VERDICTS)}
    for name, listed in lists.items():
        words = words.replace(name, listed)
    return words


def _entries(hint: Any) -> Mapping[str, Any]:
    if get_origin(hint) is Annotated:
        declared = [item.of for item in hint.__metadata__ if isinstance(item, Fields)]
        return declared[0] if declared and isinstance(declared[0], Mapping) else {}
    return next((found for part in get_args(hint) if (found := _entries(part))), {})


def typed(hint: Any) -> str:
    """Return a type hint in words, such as `list of text`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return typed(parts[0])
    if origin in (Union, types.UnionType):
        return " or ".join(typed(part) for part in parts)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return "object"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return "list of " + (typed(parts[0]) if parts[0] is not Any else "values")
    if parts:  # Literal
        return code(*map(str, parts))
    return KINDS[hint]


def unit(name: str) -> str:
    """Return the unit of a field, by its declaration as a figure or by the end of its name; empty if there is none."""
    of_figure = NO_FIGURES.get(name) or (figures.measurement(name).unit if figures.is_declared(name) else "")
    if of_figure in UNITS_OF_FIGURES:
        return UNITS_OF_FIGURES[of_figure]
    ends = [words for end, words in UNITS.items() if name == end or name.endswith(end if end[0] == "_" else f"_{end}")]
    return max(ends, key=len, default="")


# ---- diagnosis --------------------------------------------------------------------------------


def verdicts() -> str:
    """Return a table of the verdicts: their labels, their words in events, and the rules that lead to them with their
    two thresholds.
    """
    rows = [
        [kind.label, code(word), "; ".join(_rule(rule) for rule in rules.RULES if rule.verdict == word)]
        for word, kind in VERDICTS.items()
    ]
    return table(["verdict", "in files", "what leads to it"], [row for row in rows if row[-1]])


def _rule(rule: rules.Rule) -> str:
    """Return the sentence of a rule with the threshold from which it counts and, in brackets, from which it decides."""
    counts, decides = (rule.figure.text(limit) for limit in (rule.notable, rule.strong))
    limits = ("below " if rule.below else "") + (counts if counts == decides else f"{counts} ({decides})")
    return ("only as support: " if rule.rank == rules.SUPPORTING else "") + rule.text.format(value=limits)


# ---- endings ----------------------------------------------------------------------------------


def failures() -> str:
    """Return a table of the failures that are recognized by their text and have a hint.

    The document says once, above the table, that a run can be resumed.
    """
    hints = {one.message: one.hint.replace(f"; {RESUME}", "") for one in FAILURES if one.hint}
    rows = [[_ellipsis(message), _ellipsis(hint)] for message, hint in hints.items()]
    return table(["the run says", "what to do"], rows)


def _ellipsis(text: str) -> str:
    """Return the text with three dots in place of each field such as `{path}`."""
    return re.sub(r"\{\w+\}", "...", text)


# ---- packages ---------------------------------------------------------------------------------


def goes_together() -> str:
    """Return a table of what each part of an installation needs, with the sources."""
    rows = [
        [
            row.what,
            row.needs,
            row.otherwise,
            row.remedy,
            ", ".join(f"[{name}]({url})" for name, url in row.sources.items()),
        ]
        for row in compatibility.ROWS
    ]
    return table(["with", "this is needed", "what happens without", "what to do", "source"], rows)


# ---- the map of the code ----------------------------------------------------------------------


def layers(package: str) -> str:
    """Return a table of the layers of a package by its import contract, from the top: each folder or module with its
    purpose.

    `package` is the package's name without `gputui.`, such as `engine.trainer`.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = next(contract for contract in contracts if contract.get("containers") == [f"gputui.{package}"])
    folder = ROOT.joinpath(*package.split("."))
    rows = [
        [str(number), code(_place(folder / name)), _purpose(folder / name)]
        for number, layer in enumerate(found["layers"], 1)
        for name in re.split(r"\s*[|:]\s*", layer)
    ]
    return table(["layer", "where", "what it is for"], rows)


def every_file() -> str:
    """Return for each folder of `engine` and `tui` a section with a table of its files and their purposes."""
    parts = []
    for package in ("engine", "tui"):
        inits = sorted((ROOT / package).rglob("__init__.py"))
        for folder in (init.parent for init in inits):
            rows = [
                [code(file.name), _purpose(file.with_suffix(""))]
                for file in sorted(folder.glob("*.py"))
                if file.name != "__init__.py"
            ]
            if rows:
                about = _purpose(folder)
                parts.append(f"## {_place(folder)}\n\n{about}\n\n{table(['file', 'what it is for'], rows)}")
    return "\n\n".join(parts)


def _place(path: Path) -> str:
    """Return the path of a folder or a module in the repository. `path` is that of the module without `.py`."""
    place = path.relative_to(ROOT).as_posix()
    return f"{place}/" if path.is_dir() else f"{place}.py"


def _purpose(path: Path) -> str:
    """Return the first sentence of a module's docstring or, for a folder, of the docstring of its `__init__.py`."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    about = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", prose(about).replace(" What others use is named here.", ""))[0]


# ---- documents --------------------------------------------------------------------------------


def grammar() -> str:
    """Return a table of the verbs whose keys can be changed, with their keys, by the places in which they work."""
    places: dict[str, list[str]] = {}
    for verb in keys.GRAMMAR:
        if not keys.can_change(verb):
            continue
        verbs = places.setdefault(verb.place or verb.group, [])
        verbs.append(f"{code(verb.id)}: {' '.join(code(keys.shown(key)) for key in verb.keys.split(','))}")
    return table(["where", "verbs and their keys"], [[place, "; ".join(verbs)] for place, verbs in places.items()])


TABLES: Mapping[str, Callable[[], str]] = {
    "keys": grammar,
    "options": options,
    "own": own,
    "presets": shipped,
    "events": event_types,
    "summary": summary,
    "figures": run_figures,
    "gpu": gpu_readings,
    "verdicts": verdicts,
    "failures": failures,
    "together": goes_together,
    "engine": partial(layers, "engine"),
    "trainer": partial(layers, "engine.trainer"),
    "tui": partial(layers, "tui"),
    "files": every_file,
}


def marks(name: str) -> tuple[str, str]:
    """Return the comments before and after the table `name` in a document."""
    return f"<!-- {name}: begin (made by `make docs`) -->", f"<!-- {name}: end -->"


def replaced(text: str) -> str:
    """Return the text of a document in which each table between its comments is made again."""
    for name, make in TABLES.items():
        begin, end = marks(name)
        before, begun, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if begun and ended:
            text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> None:
    for path in sorted((ROOT / "docs").glob("*.md")):
        path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
    resolving.FIRST_AS_JSON.write_text(json.dumps(resolving.first_as_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
