"""Reads a YAML file into values with their line numbers, so that every error can name its place.

The text may come from anywhere: size and depth are limited, aliases and duplicate keys are refused. What presets mean
is decided elsewhere (presets/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..text import size
from .reading import open_regular

MAX_BYTES = 100 * 1024
MAX_DEPTH = 8
MAX_BITS = 4000  # of a whole number: Python converts no longer ones to text


class YamlFault(Exception):
    """An error at a place: `line` counts from 1, `key` is the dotted key or empty."""

    def __init__(self, message: str, line: int = 1, key: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.key = message, line, key


@dataclass(frozen=True)
class Located:
    """A value and its place; the value of a mapping is a dict of key -> Located."""

    value: Any
    line: int


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also reads `1e-3` as the number it is in YAML 1.2."""


_Loader.yaml_implicit_resolvers = {k: list(v) for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    """A number as a person reads it; refuses text that only YAML 1.1 reads as a different number."""
    if meant := trap(node.value):
        raise YamlFault(meant, node.start_mark.line + 1)
    if node.tag.endswith(":int"):
        number = loader.construct_yaml_int(node)
        if number.bit_length() > MAX_BITS:
            raise ValueError("no option takes a number that long")
        return int(number)
    return float(loader.construct_yaml_float(node))


def trap(text: str) -> str:
    """What to write instead of a plain word that YAML 1.1 reads as an unexpected number, else nothing.

    `010` is 8 in YAML 1.1, `1:30` is 90, and `0b101` is 5.
    """
    digits = text.lstrip("+-").replace("_", "")
    sign = "-" if text.startswith("-") else ""
    if re.fullmatch(r"0[0-7]+", digits):
        ways, known = f"{sign}{int(digits)} or {sign}{int(digits, 8)}", "octal"
    elif re.fullmatch(r"0b[01]+", digits):
        ways, known = f"{sign}{int(digits, 2)}", "binary"
    elif re.fullmatch(r"[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?", digits):
        ways, known = f"{sign}{_base_60(digits)}", "of base 60"
    else:
        return ""
    return (
        f"{shorten(text)[1:-1]} is a number {known} in YAML: write {shorten(ways, 60)[1:-1]}, or quote it if it is text"
    )


def _base_60(digits: str) -> str:
    whole = 0.0
    for part in digits.split(":")[:20]:
        whole = 60 * whole + float(part)
    return f"{whole:.15g}"


_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def read(path: Path) -> dict[str, Located]:
    """The mappings of a file, two levels deep; raises YamlFault, or OSError where it cannot be read."""
    return parse(read_text(path))


def read_text(path: Path) -> str:
    """The text of a file that may be a preset; raises the same exceptions as `read`."""
    with open_regular(path) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise YamlFault(f"the file is larger than {size(MAX_BYTES)}, so it is no preset")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw[: fault.start].count(b"\n") + 1
        raise YamlFault("the file is not UTF-8 text, so it is no preset", line) from None


def parse(text: str) -> dict[str, Located]:
    """Text -> top-level keys; raises YamlFault."""
    loader: _Loader | None = None
    try:
        _guard(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None or root.value == "":
            raise YamlFault("the file is empty; a preset is a mapping such as `input: {batch_size: 64}`")
        return _mapping(loader, root, "", depth=0)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        raise YamlFault(_reason(fault), (mark.line if mark else 0) + 1) from None
    except yaml.reader.ReaderError as fault:
        line = text[: fault.position].count("\n") + 1
        raise YamlFault(f"character #x{ord(text[fault.position]):04x} is not allowed in YAML", line) from None
    finally:
        if loader is not None:
            loader.dispose()


def scalar(text: str) -> Any:
    """A value that was typed alone: as YAML reads it, or as text."""
    try:
        return parse(f"set:\n  v: {text}")["set"].value["v"].value if text.strip() else None
    except YamlFault:
        return text


def stays_text(text: str) -> bool:
    """Whether it remains text when it stands in a file without quotes."""
    return scalar(text) == text and not trap(text)


def _guard(text: str) -> None:
    """Refuse aliases and deep nesting before anything is built from the text."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise YamlFault("aliases (*name) are not allowed in presets; write the value itself", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlFault(f"nested deeper than {MAX_DEPTH} levels, so it is no preset", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _mapping(loader: _Loader, node: yaml.Node, key: str, depth: int) -> dict[str, Located]:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        what = "a list" if isinstance(node, yaml.SequenceNode) else f"the value {_shown(node)}"
        raise YamlFault(f"must be a mapping of names to values, not {what}", line, key)
    if node.tag != "tag:yaml.org,2002:map":
        raise YamlFault(f"tags ({shorten(node.tag)}) are not allowed in presets", line, key)
    found: dict[str, Located] = {}
    for name_node, value_node in node.value:
        at = name_node.start_mark.line + 1
        if not isinstance(name_node, yaml.ScalarNode):
            raise YamlFault("a name must be one word, not a list or mapping", at, key)
        name = name_node.value
        inner = f"{key}.{name}" if key else name
        if name in found:
            raise YamlFault("is given twice; keep one of them", at, inner)
        if depth == 0 and isinstance(value_node, yaml.MappingNode):
            found[name] = Located(_mapping(loader, value_node, inner, depth + 1), at)
        else:
            found[name] = Located(_construct(loader, value_node, inner), value_node.start_mark.line + 1)
    return found


def _construct(loader: _Loader, node: yaml.Node, key: str) -> Any:
    try:
        return loader.construct_object(node, deep=True)
    except YamlFault as fault:
        raise YamlFault(fault.message, fault.line, key) from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, LookupError, AttributeError):
        # PyYAML passes on errors of int(), float() and datetime() unchanged.
        raise YamlFault(f"cannot read the value {_shown(node)}", node.start_mark.line + 1, key) from None


def _shown(node: yaml.Node) -> str:
    return shorten(node.value) if isinstance(node, yaml.ScalarNode) else "here"


def shorten(value: object, limit: int = 40) -> str:
    """A value as it may stand within one line of an error: without control characters, and not long."""
    text = printable(value[: 2 * limit] if isinstance(value, str) else repr(value))
    text = text if len(text) <= limit else text[:limit] + "..."
    return repr(text) if isinstance(value, str) else text


def printable(text: str) -> str:
    """Text in one line without characters that control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _reason(fault: yaml.MarkedYAMLError) -> str:
    problem = " ".join(str(fault.problem or fault.context or "not valid YAML").split())
    hint = "; indent with spaces, not tabs" if "'\\t'" in problem else ""
    return f"not valid YAML: {problem}{hint}"
