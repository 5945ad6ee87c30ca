"""The option table of the README, made from the declarations: `python -m gputui.engine.options.table README.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from . import OPTIONS, OptionInfo

BEGIN, END = "<!-- options: begin (made by `make docs`) -->", "<!-- options: end -->"


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


def replaced(text: str) -> str:
    """A document with the table between its two markers made anew; raises ValueError where they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(replaced(document.read_text(encoding="utf-8")), encoding="utf-8")
