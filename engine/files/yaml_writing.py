"""Changes values and comments in a YAML text, and leaves order and layout as a person wrote them, by ruamel.yaml."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from . import located_yaml

HEAD = ("", "all changes")


class LayoutFault(Exception):
    """The layout of a YAML text cannot be kept. The message gives the reason."""


class _Plain(RoundTripRepresenter):
    """Writes None as the word null, as an empty value would look like a mistake."""


_Plain.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def load(text: str) -> tuple[YAML, CommentedMap]:
    """A writer that keeps the indentation of the text, and the text as a mapping. Raises LayoutFault."""
    yaml = YAML()
    yaml.Representer = _Plain
    yaml.preserve_quotes = True
    yaml.width = 110
    try:
        _, indent, offset = load_yaml_guess_indent(text)
        yaml.indent(mapping=indent or 2, sequence=indent or 2, offset=offset or 0)
        document = yaml.load(text)
    except YAMLError as fault:
        raise LayoutFault(f"the layout of the file cannot be kept: {' '.join(str(fault).split())}") from None
    return yaml, document


def dump(yaml: YAML, document: CommentedMap, before: str) -> str:
    """Return the changed document as text, with the kind of line ends that the text `before` has."""
    stream = io.StringIO()
    yaml.dump(document, stream)
    written = stream.getvalue()
    return written.replace("\n", "\r\n") if "\r\n" in before else written


def node(value: Any) -> Any:
    """Return the value in the form in which ruamel.yaml writes it: lists and mappings on one line."""
    if isinstance(value, list | tuple):
        items = CommentedSeq([node(item) for item in value])
        items.fa.set_flow_style()
        return items
    if isinstance(value, dict):
        pairs = CommentedMap({scalar(name): node(item) for name, item in value.items()})
        pairs.fa.set_flow_style()
        return pairs
    return scalar(value)


def scalar(value: Any) -> Any:
    """A text that YAML 1.1 would read as something else gets quotes; `off` does not, as options accept it."""
    if isinstance(value, str) and value != "off" and not located_yaml.stays_text(value):
        return DoubleQuotedScalarString(value)
    return value


# ---- comments at values -----------------------------------------------------------------------


def with_comments(text: str, comments: Mapping[tuple[str, str], str], kind: str) -> str:
    """Put `# kind: comment` at the end of the line of each (group, name), or above it if the line cannot take it, or
    above its group in braces; in place of older ones, that of HEAD first. Raises LayoutFault.
    """
    _, document = load(text)
    lines = text.splitlines(keepends=True)
    above: dict[int, list[tuple[str, str]]] = {}  # by line: the beginning of a comment, and the rest
    for (group, name), comment in comments.items():
        values = document.get(group)
        if not isinstance(values, CommentedMap) or name not in values:
            continue
        in_braces = values.fa.flow_style()
        line, column = document.lc.key(group) if in_braces else values.lc.key(name)
        bare = re.sub(rf"\s+# {kind}: .*", "", lines[line].rstrip("\r\n"))
        if not in_braces and _can_follow(bare):
            lines[line] = f"{bare}  # {kind}: {comment}{_end(lines[line])}"
        else:
            above.setdefault(line, []).append((f"{' ' * column}# {kind}: {name}", f": {comment}"))
    commented: list[str] = []
    for number, line in enumerate(lines):
        for start, _ in above.get(number, ()):  # an older comment on the same value
            commented = [earlier for earlier in commented if not earlier.startswith(start)]
        commented += [start + comment + (_end(line) or "\n") for start, comment in above.get(number, ())]
        commented.append(line)
    start, head = f"# {kind}: {HEAD[1]}: ", comments.get(HEAD, "")
    rest = "".join(line for line in commented if not line.startswith(start))
    return start + head + (_end(commented[0]) or "\n") + rest if head else rest


def _can_follow(line: str) -> bool:
    # Its value ends there, and it has no comment. False also for quoted texts and others that are hard to judge.
    value = line.partition(":")[2].strip()
    return bool(value) and "#" not in value and value[0] not in "|>&*!\"'" and value.count("[") == value.count("]")


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
