"""The command `gputui options`: lists the options for --set and presets, and explains a single option."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

from rich.text import Text

from ...engine.options import OPTIONS, OptionInfo
from ...engine.options.own_code import OWN_CODE_LABELS
from ...engine.options.synonyms import keys_of, option_meant, synonyms_of
from ...engine.text_table import Table
from ..base.errors import Refused
from ..form.form_state import to_text
from ..form.option_search import search
from ..printing.plain_tables import console, show_table

NAME_WIDTH, TEXT_WIDTH = 11, 100


def show_options(words: str, as_json: bool) -> None:
    """Print the options that match the words, or all options without words. A single match is explained. Raises Refused
    if none matches."""
    matches = fitting(words)
    if not matches:
        raise Refused(f"no option matches {words!r}{option_meant(words, OPTIONS)}")
    if as_json:
        for info in matches:
            print(json.dumps(described(info)))
    elif len(matches) == 1:
        _show_one(matches[0])
    elif sys.stdout.isatty():
        for info in matches:
            _show_in_brief(info)
    else:
        rows = [[info.key, _default(info), _takes(info), info.about.help, info.about.helps] for info in matches]
        show_table(Table(["option", "default", "takes", "what it does", "helps"], rows))


def fitting(words: str) -> list[OptionInfo]:
    """Return the options that the words name: the option with this key or name, else all options of the group of this
    name. If there are none, return the options for which the words are another name, else the results of a search, the
    best first. Without words return all options."""
    if not words.strip():
        return list(OPTIONS)
    exact = [info for info in OPTIONS if words.strip() in (info.key, info.name)]
    group = [info for info in OPTIONS if words.strip().rstrip(".") == info.group]
    meant = keys_of(words)
    by_name = sorted((info for info in OPTIONS if info.key in meant), key=lambda info: meant.index(info.key))
    return exact or group or by_name or [hit.item for hit in search(words)]


def described(info: OptionInfo) -> dict[str, Any]:
    """Return the declaration of an option as plain values for JSON, by the names of its parts."""
    about = info.about
    return {
        "key": info.key,
        "default": info.default,
        "takes": info.accepts,
        "words": list(info.fixed_values),
        "unit": about.unit or None,
        "help": about.help,
        "helps": about.helps or None,
        "hurts": about.hurts or None,
        "call": about.call or None,
        "gpu_only": about.gpu_only,
        "own_code": OWN_CODE_LABELS[about.own],
        "other_names": list(synonyms_of(info.key)),
        "not_offered": dict(about.not_offered),
    }


def _default(info: OptionInfo) -> str:
    return to_text(info.default) or "null"


def _takes(info: OptionInfo) -> str:
    takes = "text" if info.accepts.startswith("text: ") else info.accepts
    return takes + (f" ({info.about.unit})" if info.about.unit else "")


def _show_in_brief(info: OptionInfo) -> None:
    out = console()
    width, indent = min(TEXT_WIDTH, out.width), "    "
    out.print(Text.assemble((info.key, "bold"), f"  {_default(info)}  ", (_takes(info), "dim")))
    for text in filter(None, (info.about.help, info.about.helps and f"helps: {info.about.helps}")):
        print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def _show_one(info: OptionInfo) -> None:
    about = info.about
    rows = [
        ("takes", _takes(info)),
        ("default", _default(info)),
        ("helps", about.helps),
        ("hurts", about.hurts),
        ("calls", about.call),
        ("GPU", "does nothing without a GPU" if about.gpu_only else ""),
        ("your code", f"workload.entry: applies {OWN_CODE_LABELS[about.own]}"),
        ("found by", ", ".join(synonyms_of(info.key))),
        *(("not taken", f"{word}: {why}") for word, why in about.not_offered.items()),
        ("write", f"--set {info.key}=VALUE or {info.name}=VALUE; in a preset {info.group}: {{{info.name}: VALUE}}"),
    ]
    out = console()
    out.print(Text(info.key, style="bold"))
    width = min(TEXT_WIDTH, out.width) if out.is_terminal else TEXT_WIDTH
    print(*textwrap.wrap(about.help, width), sep="\n")
    for name, text in rows:
        lines = textwrap.wrap(text, width - NAME_WIDTH, break_on_hyphens=False)
        for head, line in zip([name, *[""] * len(lines)], lines, strict=False):
            print(f"{head:<{NAME_WIDTH}}{line}")
