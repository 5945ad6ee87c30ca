"""What `gputui doctor` prints: the findings of the engine's doctor, and those about this terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from ..engine import doctor
from ..engine.doctor import Finding
from ..engine.values import to_json
from .drawing.glyphs import PLAIN, suited
from .errors import DONE, FAILED, clean
from .headless import console

SIGNS = {"ok": "✓", "note": "·", "warning": "!", "error": "✗"}
PLAIN_SIGNS = {"ok": "+", "note": "-", "warning": "!", "error": "x"}
STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "error": "bold red"}
SMALLEST, COMFORTABLE = (80, 24), (120, 36)


def examine(deep: bool) -> list[Finding]:
    """Everything there is to say about this machine and this terminal."""
    return [*doctor.examine(deep), *terminal(os.environ, shutil.get_terminal_size())]


def show_doctor(as_json: bool, deep: bool) -> int:
    """Print the findings; FAILED when something blocks training."""
    found = examine(deep)
    blocked = doctor.blocks(found)
    if as_json:
        print(to_json({"blocked": blocked, "findings": [asdict(finding) for finding in found]}))
    else:
        if sys.stdout.isatty():
            console().print(_table(found))
        else:
            print(*(_lines(finding) for finding in found), sep="\n")
        print(conclusion(found))
    return FAILED if blocked else DONE


def terminal(environment: Mapping[str, str], size: os.terminal_size) -> Iterator[Finding]:
    """Colours, characters and size of the terminal, as far as it says."""
    if not sys.stdout.isatty():
        yield Finding("note", "terminal", "the output goes to no terminal", "gputui without a command needs one")
        return
    if suited(environment) is PLAIN:
        what = f"TERM={environment.get('TERM', '')}, no braille or no UTF-8: pictures are drawn in plain characters"
        yield Finding("note", "terminal", what, "export LANG=C.UTF-8; in tmux and screen too")
    colours = _colours(environment)
    if colours < 256:
        what = f"{colours} colours" if colours else "no colours"
        yield Finding("note", "terminal", what, "export TERM=xterm-256color, where the terminal can")
    width, height = size
    if width < SMALLEST[0] or height < SMALLEST[1]:
        what = f"{width} x {height} characters"
        yield Finding("warning", "terminal", what, f"at least {SMALLEST[0]} x {SMALLEST[1]} are needed to see all")
    else:
        remedy = "" if size >= COMFORTABLE else f"from {COMFORTABLE[0]} x {COMFORTABLE[1]} there is room for more"
        yield Finding("ok", "terminal", f"{width} x {height} characters, {colours:,} colours", remedy)


def _colours(environment: Mapping[str, str]) -> int:
    """Textual's rule: COLORTERM promises all, the name of the terminal 256; else the basic ones."""
    if environment.get("NO_COLOR") or environment.get("TERM") in ("dumb", "unknown"):
        return 0
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 2**24
    return 256 if "256color" in environment.get("TERM", "") else 16


def conclusion(found: list[Finding]) -> str:
    """One line at the end."""
    if doctor.blocks(found):
        return "Something is broken: see the lines marked error."
    has_gpu = any(finding.level == "ok" and finding.about.startswith("GPU ") for finding in found)
    has_driver = any(finding.about == "driver" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    ready = "Ready to train" + ("" if has_gpu else " on the CPU")
    if has_driver and not has_gpu:
        ready = "No GPU has answered, so it is not known whether one can be trained on"
    return f"{ready}; {warnings} warning(s)." if warnings else f"{ready}."


def sign(level: str) -> str:
    return (PLAIN_SIGNS if suited() is PLAIN else SIGNS)[level]


def _lines(finding: Finding) -> str:
    """Whole lines, for files and pipes."""
    remedy = f"\n{'':21}{clean(finding.remedy)}" if finding.remedy else ""
    return f"{finding.level:<8} {finding.about:<11} {clean(finding.what)}{remedy}"


def _table(found: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in found:
        text = Text(clean(finding.what))
        if finding.remedy:
            text.append(f"\n{clean(finding.remedy)}", style="dim")
        level = Text(f"{sign(finding.level)} {finding.level}", style=STYLES[finding.level])
        table.add_row(level, finding.about, text)
    return table
