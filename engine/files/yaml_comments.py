"""Puts comments at values of a YAML text, which stays otherwise as it is.

A value with a line of its own gets its comment at the end of that line, or above it where something else stands there.
Values in braces get it above the line on which their group begins, and all of them together in the file's first line. A
comment of the same kind from before is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ruamel.yaml.comments import CommentedMap

from . import yaml_layout

HEAD = ("", "all changes")


def with_comments(text: str, comments: Mapping[tuple[str, str], str], kind: str) -> str:
    """The text with `# kind: comment` at the values of (group, name); those that are not in it are left out.

    That of HEAD, which is no value, stands at the head.
    """
    _, document = yaml_layout.load(text)
    lines = text.splitlines(keepends=True)
    above: dict[int, list[str]] = {}
    for (group, name), comment in comments.items():
        values = document.get(group)
        if not isinstance(values, CommentedMap) or name not in values:
            continue
        in_braces = values.fa.flow_style()
        line, column = document.lc.key(group) if in_braces else values.lc.key(name)
        bare = re.sub(rf"\s+# {kind}: .*", "", _content(lines[line]))
        if not in_braces and _can_follow(bare):
            lines[line] = f"{bare}  # {kind}: {comment}{_end(lines[line])}"
        else:
            above.setdefault(line, []).append(f"{' ' * column}# {kind}: {name}: {comment}")
    return "".join(_headed(_inserted(lines, above, kind), comments.get(HEAD, ""), kind))


def _headed(lines: list[str], comment: str, kind: str) -> list[str]:
    """The lines with the comment before them, in place of an older one."""
    start = f"# {kind}: {HEAD[1]}: "
    rest = [line for line in lines if not line.startswith(start)]
    return [start + comment + (_end(lines[0]) or "\n"), *rest] if comment else rest


def _can_follow(line: str) -> bool:
    """Whether the value ends on its line and has no comment there: a plain scalar, or brackets that are closed."""
    value = line.partition(":")[2].strip()
    return bool(value) and "#" not in value and value[0] not in "|>&*!\"'" and value.count("[") == value.count("]")


def _inserted(lines: list[str], above: Mapping[int, list[str]], kind: str) -> list[str]:
    """The lines with those of `above` before them, in place of older ones about the same value."""
    made: list[str] = []
    for number, line in enumerate(lines):
        for comment in above.get(number, ()):
            start = comment[: comment.index(": ", comment.index(f"# {kind}: ") + len(f"# {kind}: "))]
            made = [one for one in made if not one.startswith(start)]
        made += [comment + (_end(line) or "\n") for comment in above.get(number, ())]
        made.append(line)
    return made


def _content(line: str) -> str:
    return line.rstrip("\r\n")


def _end(line: str) -> str:
    return line[len(_content(line)) :]
