"""Reads a YAML file into values with their line numbers, so that every error can name its place. The text may come from
anywhere: size and depth are limited, aliases and duplicate keys are refused. What presets mean is decided in presets/.
"""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..units import size
from .reading import open_regular
from .values import brief, printable

MAX_BYTES = 100 * 1024
MAX_DEPTH = 8
MAX_BITS = 4000  # of a whole number: Python converts no longer ones to text


@functools.cache
def _yaml() -> Any:
    import yaml  # 30 ms: the first paint needs this module and reads no YAML

    return yaml


class YamlFault(Exception):
    """An error at a place in a YAML text. `line` counts from 1; `key` is one such as `input.batch_size`, or empty."""

    def __init__(self, message: str, line: int = 1, key: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.key = message, line, key


@dataclass(frozen=True)
class Located:
    """A value at its place. As text it is the value alone, as in messages about a wrong value."""

    value: Any  # of a mapping a dict of `Located` by key
    line: int  # from 1

    def __repr__(self) -> str:
        return repr(self.value)


def trap(text: str) -> str:
    """Advice on an unquoted word that YAML 1.1 reads as another number: `010` is 8, `1:30` is 90, `0b101` is 5."""
    digits = text.lstrip("+-").replace("_", "")
    sign = "-" if text.startswith("-") else ""
    if re.fullmatch(r"0[0-7]+", digits):
        ways, base = f"{sign}{int(digits)} or {sign}{int(digits, 8)}", "octal"
    elif re.fullmatch(r"0b[01]+", digits):
        ways, base = f"{sign}{int(digits, 2)}", "binary"
    elif re.fullmatch(r"[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?", digits):
        number = functools.reduce(lambda whole, part: 60 * whole + float(part), digits.split(":")[:20], 0.0)
        ways, base = f"{sign}{number:.15g}", "of base 60"
    else:
        return ""
    what = f"{shorten(text)[1:-1]} is a number {base} in YAML"
    return f"{what}: write {shorten(ways, 60)[1:-1]}, or quote it if it is text"


def shorten(value: object, limit: int = 40) -> str:
    """On one line, without control characters, about `limit` characters; a text in quotes, others as in YAML."""
    text = value[: 2 * limit] if isinstance(value, str) else repr(value)
    if not isinstance(value, str):
        with contextlib.suppress(_yaml().YAMLError):
            dumped = _yaml().safe_dump(value, default_flow_style=True, width=10_000)
            text = dumped.removesuffix("\n").removesuffix("\n...")
    text = printable(text)
    text = text if len(text) <= limit else text[:limit] + "..."
    return repr(text) if isinstance(value, str) else text


def read(path: Path) -> dict[str, Located]:
    """The values by key, with their lines, in the two upper levels. Raises YamlFault or OSError."""
    return parse(read_text(path))


def read_settings(path: Path) -> dict[str, Located]:
    """As `read`; empty without content. YamlFault has the text of `about_settings`."""
    try:
        text = read_text(path)
        return parse(text) if has_content(text) else {}
    except YamlFault as fault:
        raise about_settings(fault) from None


def has_content(text: str) -> bool:
    """Return True if the text has anything except comments and empty lines."""
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith("#") and line not in ("---", "{}") for line in lines)


def about_settings(fault: YamlFault) -> YamlFault:
    """Return a fault whose message names the key, and speaks of settings, not of presets."""
    message = fault.message.replace("so it is no preset", "so it holds no settings").replace("in presets", "here")
    return YamlFault(f"{fault.key}: {message}" if fault.key else message, fault.line, fault.key)


def read_text(path: Path) -> str:
    """Return the text of a file that may be a preset; raises the same exceptions as `read`."""
    with open_regular(path) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise YamlFault(f"the file is larger than {size(MAX_BYTES)}, so it is no preset")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw[: fault.start].count(b"\n") + 1
        raise YamlFault("the file is not UTF-8 text, so it is no preset", line) from None


def scalar(text: str) -> Any:
    """The value that YAML reads from a text, None for an empty one; the text itself if it is not valid YAML."""
    try:
        return parse(f"set:\n  v: {text}")["set"].value["v"].value if text.strip() else None
    except YamlFault:
        return text


def stays_text(text: str) -> bool:
    """Return True if YAML reads the unquoted text as the same text, and not as another value such as a number."""
    return scalar(text) == text and not trap(text)


# ---- parsing -------------------------------------------------------------------------------------


def _number(loader: Any, node: Any) -> int | float:
    """YamlFault for text that YAML 1.1 reads as another number than a person does; ValueError if too long."""
    if message := trap(node.value):
        raise YamlFault(message, node.start_mark.line + 1)
    if node.tag.endswith(":int"):
        number = loader.construct_yaml_int(node)
        if number.bit_length() > MAX_BITS:
            raise ValueError("no option takes a number that long")
        return int(number)
    return float(loader.construct_yaml_float(node))


def _with_numbers(base: Any) -> Any:
    """Return a subclass of the loader `base` that also reads `1e-3` as a number, as in YAML 1.2."""
    loader: Any = type("_Loader", (base,), {})
    loader.yaml_implicit_resolvers = {k: list(v) for k, v in base.yaml_implicit_resolvers.items()}
    loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"),
        list("-+.0123456789"),
    )
    loader.add_constructor("tag:yaml.org,2002:int", _number)
    loader.add_constructor("tag:yaml.org,2002:float", _number)
    return loader


@functools.cache
def _loaders() -> tuple[Any, Any]:
    # The fast one in C, if there is one, and the slow one in Python.
    slow = _with_numbers(_yaml().SafeLoader)
    return _with_numbers(_yaml().CSafeLoader) if _yaml().__with_libyaml__ else slow, slow


# The parser in C is ten times as fast. For text of these characters it refuses all that the parser in Python refuses.
_COMMON = re.compile(r"[\n -~]*")
_ODD = re.compile(r"[?!&*]")


def parse(text: str) -> dict[str, Located]:
    """The values by key, with their lines, in the two upper levels. YamlFault has the words of PyYAML's parser in
    Python for errors of syntax; what is valid, but not allowed, is refused by the fast one in C.
    """
    fast, slow = _loaders()
    if _COMMON.fullmatch(text) and not _ODD.search(text):
        with contextlib.suppress(_yaml().YAMLError):
            return _parse(text, fast)
    try:
        return _parse(text, slow)
    except _yaml().MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        problem = " ".join(str(fault.problem or fault.context or "not valid YAML").split())
        hint = next((hint for part, hint in _HINTS.items() if part in problem), "")
        raise YamlFault(f"not valid YAML: {brief(problem)}{hint}", (mark.line if mark else 0) + 1) from None
    except _yaml().reader.ReaderError as fault:
        line = text[: fault.position].count("\n") + 1
        raise YamlFault(f"character #x{ord(text[fault.position]):04x} is not allowed in YAML", line) from None


def _parse(text: str, kind: Any) -> dict[str, Located]:
    depth = 0
    for event in _yaml().parse(text, Loader=kind):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, _yaml().AliasEvent):
            raise YamlFault("aliases (*name) are not allowed in presets; write the value itself", line)
        depth += isinstance(event, _yaml().CollectionStartEvent) - isinstance(event, _yaml().CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise YamlFault(f"nested deeper than {MAX_DEPTH} levels, so it is no preset", line)
    loader: Any = kind(text)
    try:
        root = loader.get_single_node()
        if root is None or root.value == "":
            raise YamlFault("the file is empty; a preset is a mapping such as `input: {batch_size: 64}`")
        return _mapping(loader, root, "", depth=0)
    finally:
        loader.dispose()


def _mapping(loader: Any, node: Any, key: str, depth: int) -> dict[str, Located]:
    line = node.start_mark.line + 1
    if node.id != "mapping":
        what = "a list" if node.id == "sequence" else f"the value {_shown(node)}"
        raise YamlFault(f"must be a mapping of names to values, not {what}", line, key)
    if node.tag != "tag:yaml.org,2002:map":
        raise YamlFault(f"tags ({shorten(node.tag)}) are not allowed in presets", line, key)
    values: dict[str, Located] = {}
    for name_node, value_node in node.value:
        at = name_node.start_mark.line + 1
        if name_node.id != "scalar":
            raise YamlFault("a name must be one word, not a list or mapping", at, key)
        name = name_node.value
        inner = f"{key}.{name}" if key else name
        if name in values:
            raise YamlFault("is given twice; keep one of them", at, inner)
        if depth == 0 and value_node.id == "mapping":
            values[name] = Located(_mapping(loader, value_node, inner, depth + 1), at)
        else:
            values[name] = Located(_construct(loader, value_node, inner), value_node.start_mark.line + 1)
    return values


def _construct(loader: Any, node: Any, key: str) -> Any:
    try:
        return loader.construct_object(node, deep=True)
    except YamlFault as fault:
        raise YamlFault(fault.message, fault.line, key) from None
    except (_yaml().YAMLError, ValueError, OverflowError, TypeError, LookupError, AttributeError):
        # PyYAML passes on errors of int(), float() and datetime() unchanged.
        raise YamlFault(f"cannot read the value {_shown(node)}", node.start_mark.line + 1, key) from None


def _shown(node: Any) -> str:
    return shorten(node.value) if node.id == "scalar" else "here"


# What to do about PyYAML's most frequent messages, by a part of the message.
_HINTS = {
    "'\\t'": "; indent with spaces, not tabs",
    "mapping values are not allowed": "; the line is indented too far, or has a second colon (put its text in quotes)",
}
