"""Parses a YAML text into values with line numbers, with PyYAML's safe loader; called by located_yaml.py."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import yaml

from .values import brief
from .yaml_text import Located, YamlFault, shorten, trap

MAX_DEPTH = 8
MAX_BITS = 4000  # of a whole number: Python converts no longer ones to text


def _number(loader: Any, node: yaml.ScalarNode) -> int | float:
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


_SLOW = _with_numbers(yaml.SafeLoader)
_FAST = _with_numbers(yaml.CSafeLoader) if yaml.__with_libyaml__ else _SLOW
# The parser in C is ten times as fast. For text of these characters it refuses all that the parser in Python refuses.
_COMMON = re.compile(r"[\n -~]*")
_ODD = re.compile(r"[?!&*]")


def parse(text: str) -> dict[str, Located]:
    """The values by key, with their lines, in the two upper levels. YamlFault has the words of PyYAML's parser in
    Python for errors of syntax; what is valid, but not allowed, is refused by the fast one in C.
    """
    if _COMMON.fullmatch(text) and not _ODD.search(text):
        with contextlib.suppress(yaml.YAMLError):
            return _parse(text, _FAST)
    try:
        return _parse(text, _SLOW)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        problem = " ".join(str(fault.problem or fault.context or "not valid YAML").split())
        hint = next((hint for part, hint in _HINTS.items() if part in problem), "")
        raise YamlFault(f"not valid YAML: {brief(problem)}{hint}", (mark.line if mark else 0) + 1) from None
    except yaml.reader.ReaderError as fault:
        line = text[: fault.position].count("\n") + 1
        raise YamlFault(f"character #x{ord(text[fault.position]):04x} is not allowed in YAML", line) from None


def _parse(text: str, kind: Any) -> dict[str, Located]:
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise YamlFault("aliases (*name) are not allowed in presets; write the value itself", line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
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


def _mapping(loader: Any, node: yaml.Node, key: str, depth: int) -> dict[str, Located]:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        what = "a list" if isinstance(node, yaml.SequenceNode) else f"the value {_shown(node)}"
        raise YamlFault(f"must be a mapping of names to values, not {what}", line, key)
    if node.tag != "tag:yaml.org,2002:map":
        raise YamlFault(f"tags ({shorten(node.tag)}) are not allowed in presets", line, key)
    values: dict[str, Located] = {}
    for name_node, value_node in node.value:
        at = name_node.start_mark.line + 1
        if not isinstance(name_node, yaml.ScalarNode):
            raise YamlFault("a name must be one word, not a list or mapping", at, key)
        name = name_node.value
        inner = f"{key}.{name}" if key else name
        if name in values:
            raise YamlFault("is given twice; keep one of them", at, inner)
        if depth == 0 and isinstance(value_node, yaml.MappingNode):
            values[name] = Located(_mapping(loader, value_node, inner, depth + 1), at)
        else:
            values[name] = Located(_construct(loader, value_node, inner), value_node.start_mark.line + 1)
    return values


def _construct(loader: Any, node: yaml.Node, key: str) -> Any:
    try:
        return loader.construct_object(node, deep=True)
    except YamlFault as fault:
        raise YamlFault(fault.message, fault.line, key) from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, LookupError, AttributeError):
        # PyYAML passes on errors of int(), float() and datetime() unchanged.
        raise YamlFault(f"cannot read the value {_shown(node)}", node.start_mark.line + 1, key) from None


def _shown(node: yaml.Node) -> str:
    return shorten(node.value) if isinstance(node, yaml.ScalarNode) else "here"


# What to do about PyYAML's most frequent messages, by a part of the message.
_HINTS = {
    "'\\t'": "; indent with spaces, not tabs",
    "mapping values are not allowed": "; the line is indented too far, or has a second colon (put its text in quotes)",
}
