"""Changes values in a YAML text and leaves its comments, order and layout as a person wrote them.

ruamel.yaml keeps the layout; it is imported by whoever writes, since reading needs none of it.
"""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from . import located_yaml


class LayoutFault(Exception):
    """The layout of a text cannot be kept; the text says why."""


class _Plain(RoundTripRepresenter):
    """Writes null as a word: an empty value would look like an oversight."""


_Plain.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def load(text: str) -> tuple[YAML, CommentedMap]:
    """The writer that keeps the indentation of the text, and the text as a mapping; raises LayoutFault."""
    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML()
    yaml.Representer = _Plain
    yaml.preserve_quotes = True
    yaml.width = 110
    yaml.indent(mapping=indent or 2, sequence=indent or 2, offset=offset or 0)
    try:
        document = yaml.load(text)
    except YAMLError as fault:
        raise LayoutFault(f"the layout of the file cannot be kept: {' '.join(str(fault).split())}") from None
    return yaml, document


def dump(yaml: YAML, document: CommentedMap, before: str) -> str:
    """The changed text, with the line ends of the text before."""
    stream = io.StringIO()
    yaml.dump(document, stream)
    written = stream.getvalue()
    return written.replace("\n", "\r\n") if "\r\n" in before else written


def node(value: Any) -> Any:
    """A value as it is written; lists and mappings stand in one line."""
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
    """Quote text that YAML 1.1 would read as something else; every option accepts `off` unquoted."""
    if isinstance(value, str) and value != "off" and not located_yaml.stays_text(value):
        return DoubleQuotedScalarString(value)
    return value
