"""The doctor's findings as text: the findings about this terminal, the sign of each level, and the conclusion."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from rich.style import Style
from rich.text import Text

from ...engine.doctor import HIDDEN
from ...engine.finding import Finding, errors
from ..base.errors import clean
from ..base.glyphs import PLAIN, RICH, suited

SIGNS = {"ok": RICH.ok, "note": "·", "warning": RICH.warn, "error": RICH.failed}
PLAIN_SIGNS = {"ok": "+", "note": "-", "warning": PLAIN.warn, "error": PLAIN.failed}  # the word after it is "ok"
SMALLEST, COMFORTABLE = (80, 24), (120, 36)


def terminal(environment: Mapping[str, str], size: os.terminal_size) -> Iterator[Finding]:
    if not sys.stdout.isatty():
        yield Finding("note", "terminal", "the output is not a terminal", "gputui without a command needs one")
        return
    if suited(environment) is PLAIN:
        what = f"TERM={environment.get('TERM', '')}, no braille or no UTF-8: pictures are drawn in plain characters"
        yield Finding("note", "terminal", what, "export LANG=C.UTF-8; in tmux and screen too")
    colours = _colours(environment)
    if colours < 256:
        what = f"{colours} colours" if colours else "no colours"
        yield Finding("note", "terminal", what, "export TERM=xterm-256color, if the terminal supports it")
    width, height = size
    if width < SMALLEST[0] or height < SMALLEST[1]:
        what = f"{width} x {height} characters"
        yield Finding(
            "warning", "terminal", what, f"at least {SMALLEST[0]} x {SMALLEST[1]} are needed to see everything"
        )
    else:
        roomy = width >= COMFORTABLE[0] and height >= COMFORTABLE[1]
        remedy = "" if roomy else f"from {COMFORTABLE[0]} x {COMFORTABLE[1]} on, more is shown"
        many = f", {colours:,} colours" if colours >= 256 else ""
        yield Finding("ok", "terminal", f"{width} x {height} characters{many}", remedy)


def _colours(environment: Mapping[str, str]) -> int:
    # As Textual: 2**24 by COLORTERM, 256 by TERM, else 16. 0 without colours.
    if environment.get("NO_COLOR") or environment.get("TERM") in ("dumb", "unknown"):
        return 0
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 2**24
    return 256 if "256color" in environment.get("TERM", "") else 16


def conclusion(findings: list[Finding]) -> str:
    """Return one line that says if this machine is ready to train, by the findings."""
    if wrong := errors(findings):
        only_gpus = all(map(_is_of_gpus, wrong))
        instead = "; device.visible=none trains on the CPU" if only_gpus else ""
        return f"Not ready to train: see the lines marked error{instead}."
    hidden = any(finding.about == HIDDEN for finding in findings)
    has_gpu = not hidden and any(finding.level == "ok" and finding.about.startswith("GPU") for finding in findings)
    has_driver = not hidden and any(finding.about == "driver" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    ready = "Ready to train" + ("" if has_gpu else " on the CPU")
    if has_driver and not has_gpu:
        ready = "No GPU has answered, so it is unknown whether training on a GPU works"
    return f"{ready}; {warnings} warning(s)." if warnings else f"{ready}."


def _is_of_gpus(finding: Finding) -> bool:
    if finding.about == "TensorFlow":
        return "GPU" in finding.what
    return finding.about in ("driver", "CUDA", "pynvml") or finding.about.startswith("GPU")


def cells(finding: Finding, level_style: str | Style, remedy_style: str | Style) -> list[Text]:
    """Return a row of a table: the level with its sign, the subject, and the text with the remedy below it."""
    what = Text(clean(finding.what))
    if finding.remedy:
        what.append(f"\n{clean(finding.remedy)}", style=remedy_style)
    return [Text(f"{sign(finding.level)} {finding.level}", style=level_style), Text(finding.about), what]


def sign(level: str) -> str:
    return (PLAIN_SIGNS if suited() is PLAIN else SIGNS)[level]
