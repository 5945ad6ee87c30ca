"""The option tables of the documents, made from the declarations: `python -m gputui.engine.options.table FILE...`.

A document says with a pair of markers which table it has: all options, or what applies to a user's own training.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import OPTIONS, OptionInfo
from .own import OWN_CODE_LABELS


def table() -> str:
    """All options as Markdown, one row each."""
    rows = ["| option | default | takes | what it does |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *(_row(info) for info in OPTIONS)])


def _row(info: OptionInfo) -> str:
    about = info.about
    default = "null" if info.default is None else str(info.default).lower() if info.is_bool else str(info.default)
    takes = "text" if info.accepts.startswith("text: ") else info.accepts
    unit = f" ({about.unit})" if about.unit else ""
    call = f" (`{about.call}`)" if about.call else ""
    only = " GPU only." if about.gpu_only else ""
    return f"| `{info.key}` | `{default}` | {takes}{unit} | {about.help}{call}.{only} |"


def own_table() -> str:
    """Which options apply to a user's own training, as Markdown: a row for each answer."""
    rows = ["| applies | options |", "| --- | --- |"]
    for kind, words in OWN_CODE_LABELS.items():
        keys = [f"`{info.key}`" for info in OPTIONS if info.about.own == kind]
        rows.append(f"| {words} | {', '.join(keys)} |")
    return "\n".join(rows)


TABLES = {"options": table, "own": own_table}


def replaced(text: str) -> str:
    """A document with the tables between their markers made anew; raises ValueError where it has none."""
    found = False
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: begin (made by `make docs`) -->", f"<!-- {name}: end -->"
        before, begun, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if begun and ended:
            text, found = f"{before}{begin}\n{make()}\n{end}{after}", True
    if not found:
        raise ValueError("the document has no lines such as '<!-- options: begin (made by `make docs`) -->'")
    return text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        document = Path(name)
        document.write_text(replaced(document.read_text(encoding="utf-8")), encoding="utf-8")
