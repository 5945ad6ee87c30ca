"""The help text of an option: its effect, its TensorFlow call, when it helps or hurts, its range and default. Only the
text is made here; the form shows it at the side of the options or below them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from ...engine.finding import Finding
from ...engine.units import named
from ..base.errors import clean
from ..form.form_state import INFO, FormState, shown, to_text
from .start_bar import STYLES

NAME_WIDTH = 9
_WITHIN_A_WORD = re.compile(r"(?<=[/.,_=:(])")  # places at which a long word is divided
MARKS = (
    ("*", "differs from the default"),
    ("+", "differs from the file: not saved"),
    ("!", "not accepted; see the reason below"),
    ("no GPU", "has no effect on this machine, but can be set for another"),
    ("your code", "with workload.entry: your code decides this, not the option"),
)
ROW_KEYS = (("0-9", "begin a new value"),)


def help_text(key: str, state: FormState, locked: str, remarks: Sequence[Finding], width: int) -> Content:
    """Return an option's help with value and remarks; `locked` is the reason why it has no effect."""
    info = INFO[key]
    about = info.about
    fits = len(info.key) + len(about.call) + 8 <= width
    lines = [_head(info.key, about.call if fits else ""), *labelled("does", about.help, "", width)]
    for remark in remarks:
        if key in remark.options and key not in state.errors:
            lines += labelled(remark.level, remark.text, STYLES[remark.level], width)
    own = state.own(key)
    if own:
        lines += labelled("applies", own, "$text-warning" if state.no_effect(key) else "", width)
    if locked:
        lines += labelled("no GPU", f"does nothing here: {locked}", "$text-warning", width)
    for name, text in (("helps", about.helps), ("hurts", about.hurts)):
        if text:
            lines += labelled(name, text, "", width)
    lines += labelled("takes", "text" if info.accepts.startswith("text") else info.accepts, "", width)
    lines += labelled("default", _defaults(key, state), "", width)
    if about.call and not fits:
        lines += labelled("calls", about.call, "", width)
    return Content("\n").join(lines)


def group_text(group: str, keys: Sequence[str], width: int) -> Content:
    """Return the help of a group that can be folded: its options with the first line of their help."""
    head = Content.assemble((group, "bold $text-primary"), ("  enter folds or unfolds", "$foreground-muted"))
    names = max((len(INFO[key].name) for key in keys), default=0) + 2
    lines = [head]
    for key in keys:
        first, *_ = _lines(INFO[key].about.help, max(16, width - names))
        lines.append(Content.assemble(INFO[key].name.ljust(names), (first, "$foreground-muted")))
    return Content("\n").join(lines)


def _head(key: str, call: str) -> Content:
    head = Content.assemble((key, "bold $text-primary"))
    return Content.assemble(head, ("  calls ", "$foreground-muted"), call) if call else head


def _defaults(key: str, state: FormState) -> str:
    info = INFO[key]
    default = to_text(info.default) or "not given"
    opened = shown(state.opened.options, info) or "not given"
    unit = named(1 if default == "1" else None, info.about.unit)
    unit = f" {unit}" if unit and default[:1].isdigit() else ""
    return default + unit + (f"; in {state.source}: {opened}" if opened != default else "")


def labelled(name: str, text: str, style: str, width: int) -> list[Content]:
    """Return a name and its text in lines of `width` cells. All lines of the text begin in the same column."""
    lines = _lines(clean(text), max(16, width - NAME_WIDTH))
    names = [name, *[""] * (len(lines) - 1)]
    return [
        Content.assemble((head.ljust(NAME_WIDTH), style or "$foreground-muted"), (line, style))
        for head, line in zip(names, lines, strict=True)
    ]


def _lines(text: str, width: int) -> list[str]:
    """Lines of whole words; one wider than the line, such as a path, is divided after a mark."""
    lines = [""]
    for word in text.split():
        for at, part in enumerate(_WITHIN_A_WORD.split(word) if cell_len(word) > width else [word]):
            gap = " " if lines[-1] and not at else ""
            if lines[-1] and cell_len(lines[-1] + gap + part) > width:
                lines.append(part)
            else:
                lines[-1] += gap + part
    return lines
