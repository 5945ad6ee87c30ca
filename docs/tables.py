"""Writes the generated tables of the documents, the JSON Schema of events, and the form's first preset: `make docs`.

A document marks the place of a table with a pair of comments that name the table. TABLES has the function that makes
each table.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from gputui.engine import figures, presets
from gputui.engine.diagnosis import VERDICTS, rules
from gputui.engine.gpu import Gpu
from gputui.engine.interpreter import compatibility
from gputui.engine.options import GROUPS, OPTIONS, OptionInfo
from gputui.engine.options.own_code import OWN_CODE_LABELS
from gputui.engine.presets import resolving
from gputui.engine.process.known_failures import FAILURES, RESUME
from gputui.engine.runs import events
from gputui.tui.base import keys

ROOT = Path(__file__).parents[1]
RUN_SCHEMA = presets.SHIPPED / "run-schema.json"
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
    "lost_since": "Unix time",
}
READINGS_OF_GPUS = {
    "reasons": "why readings are missing, by name (`*`: all): unsupported, lost, no_permission, error or not_asked",
    "shared_with_host": "true: its memory is the memory of the host",
    "memory_used_counts_reserved": "true: an older driver counts reserved memory as used",
}
NOT_IN_EVENTS = ("compute_capability", "multiprocessors", "exclusive", "prohibited", "instance", "card")  # of a GPU
NO_FIGURES = {"confidence": "share", "engine_cpu": "cores"}
UNITS_OF_FIGURES = {"share": "share, 0 to 1", "cores": "CPU cores", "P": "P0 to P15"}
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


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


def paragraphs(documented: type) -> list[str]:
    """Return the paragraphs of a docstring, each as one line."""
    return [prose(part) for part in inspect.cleandoc(documented.__doc__ or "").split("\n\n")]


# ---- options ----------------------------------------------------------------------------------


def options() -> str:
    """Return all options: for each group a section with a table."""
    parts = []
    for name, group in GROUPS.items():
        rows = [_option(info) for info in OPTIONS if info.group == name]
        head = ["option", "default", "takes", "what it does"]
        parts.append(f"## {name}\n\n{paragraphs(group)[0]}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _option(info: OptionInfo) -> list[str]:
    about = info.about
    default = NOT_GIVEN if info.default is None else str(info.default).lower() if info.is_bool else str(info.default)
    takes = "text" if info.accepts.startswith("text: ") else re.sub(r"an? (whole )?number (from )?", "", info.accepts)
    unit = f" ({about.unit})" if about.unit else ""
    return [code(info.key), code(default), takes + unit, about.help + (" (GPU only)" if about.gpu_only else "")]


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


def event_kinds() -> list[type[events.Event]]:
    """Return the types of events, in the order of their declaration."""
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    return [kind for kind in kinds if kind is not events.Event]


def event_types() -> str:
    """Return a table of the types of events, each with its meaning and the names of its fields."""
    rows = [
        [code(kind.type), _with_values(paragraphs(kind)[0]), code(*(field.name for field in fields(kind)))]
        for kind in event_kinds()
    ]
    return table(["type", "what it says", "fields"], rows)


def summary() -> str:
    """Return a table of the fields of `result.json` that are no figures of `run_figures`."""
    keys = {figure.key.partition(".")[0] for figure in figures.RUN}
    said = _comments(events.Summary)
    names = [field.name for field in fields(events.Summary) if field.name not in keys]
    return table(["field", "what it is"], [[code(name), said.get(name, "")] for name in names])


def run_figures() -> str:
    """Return a table of the figures of a run: their meaning, their unit and their source."""
    better = {True: "more", False: "less", None: ""}
    rows = [
        [figure.label, code(figure.key), figure.unit, better[figure.more_is_better], figure.about, figure.source]
        for figure in figures.RUN
    ]
    return table(["figure", "key", "unit", "better", "what it means", "where it comes from"], rows)


# ---- the JSON Schema of events and results ----------------------------------------------------


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the lines of a run's event files, and of `result.json` (`summary` in
    `$defs`). Fields that it does not know are allowed. `unit` is a keyword of its own.
    """
    defs = {kind.type: _event_schema(kind) for kind in event_kinds()} | {"summary": _class_schema(events.Summary)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "an event of a gputui run",
        "description": "a line of events.jsonl or telemetry.jsonl; result.json has the fields of summary",
        "oneOf": [{"$ref": f"#/$defs/{kind.type}"} for kind in event_kinds()],
        "$defs": defs,
    }


def _event_schema(kind: type[events.Event]) -> dict[str, Any]:
    head = {
        "t": {"type": "number", "unit": "seconds", "description": "Unix time"},
        "type": {"const": kind.type},
        "run": {"type": "string", "description": "the id of the run"},
    }
    made = _class_schema(kind)
    return made | {"properties": head | made["properties"], "required": [*head, *made["required"]]}


def _class_schema(kind: type) -> dict[str, Any]:
    """Return the schema of an object that has the fields of a dataclass."""
    hints, said = get_type_hints(kind, include_extras=True), _comments(kind)
    if kind is events.Summary:
        said = {figure.key: figure.about for figure in figures.RUN} | said
    if kind is Gpu:
        said = {figure.key: figure.about for figure in figures.GPU.values()} | said | READINGS_OF_GPUS
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    return {
        "type": "object",
        "description": "\n".join(_with_values(words) for words in paragraphs(kind)),
        "properties": {
            field.name: described(typed(hints[field.name]), field.name, said.get(field.name, ""))
            for field in fields(kind)
            if kind is not Gpu or field.name not in NOT_IN_EVENTS
        },
        "required": needed,
    }


def described(schema: Mapping[str, Any], name: str, remark: str = "") -> dict[str, Any]:
    """Return the schema of a field with its unit and its description, if it has them."""
    made = dict(schema)
    if remark == "one of VERDICTS":
        made, remark = {"enum": list(VERDICTS)}, ""
    if words := unit(name):
        made["unit"] = words
    if remark:
        made["description"] = remark
    return made


def typed(hint: Any) -> dict[str, Any]:
    """Return the schema of a type hint."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return {"$ref": "#/$defs/summary"} if parts[1] is events.Summary else typed(parts[1])
    if is_typeddict(hint):
        return _entries_schema(hint)
    if inspect.isclass(hint) and is_dataclass(hint):
        return _class_schema(hint)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        members = [typed(part) for part in parts if part != Literal["unknown"]]  # which is no value in a file
        if all(member.keys() == {"type"} for member in members):
            return {"type": [member["type"] for member in members]}
        return {"anyOf": members}
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        inner = typed(parts[1])
        return {"type": "object", **({"additionalProperties": inner} if inner else {})}
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return {"type": "array", "items": typed(parts[0])}
    return {} if hint is Any else {"type": KINDS[hint]}


def _entries_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of an object that has the entries of a TypedDict."""
    hints, said = get_type_hints(kind, include_extras=True), _comments(kind)
    optional = [name for name, hint in hints.items() if not kind.__total__ or get_origin(hint) is NotRequired]
    types_of = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
    properties = {name: described(typed(hint), name, said.get(name, "")) for name, hint in types_of.items()}
    return {"type": "object", "properties": properties, "required": [name for name in hints if name not in optional]}


def _comments(kind: type) -> dict[str, str]:
    """Return the comment at the end of the line that declares a field, by the field's name."""
    declared = "".join(inspect.getsource(part) for part in kind.__mro__ if part not in (object, dict))
    return _remarks(re.findall(r"^    (\w+): .*?  # (.+)$", declared, re.MULTILINE))


def _remarks(found: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name: words.replace("None", "null") for name, words in found}


def _with_values(words: str) -> str:
    """Return a text of the declaration with `null` in place of None, and with the phases in place of PHASES."""
    return words.replace("None", "null").replace("PHASES", code(*events.PHASES))


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
    "verdicts": verdicts,
    "failures": failures,
    "together": goes_together,
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
    RUN_SCHEMA.write_text(json.dumps(run_schema(), indent=1) + "\n", encoding="utf-8")
    resolving.FIRST_AS_JSON.write_text(json.dumps(resolving.first_as_json(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
