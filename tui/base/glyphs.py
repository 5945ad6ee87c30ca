"""The characters for drawing: braille and blocks, or plain ASCII for consoles without them. No information is carried
by a colour alone, but always also by a character."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

_POOR_TERMINALS = ("linux", "dumb", "vt100", "vt220", "ansi", "unknown")


@dataclass(frozen=True)
class Glyphs:
    """The characters that pictures are made of, by default the rich ones; a field that is not described is a sign with
    the meaning of its name. `used`, `own`, `free` and `peak` make a gauge; `legend` has one mark for each curve,
    `points` one for each compared run; `grid_*` and `fill` are faint; `here` is around the name of the present screen.
    `corners` are the two upper corners of an edge, then the lower ones."""

    braille: bool = True
    rule: str = "─"
    done: str = "━"
    to_do: str = "─"
    own: str = "━"
    used: str = "─"
    free: str = "·"
    peak: str = "┃"
    axis: str = "│"
    tick: str = "┤"
    point: str = "•"
    points: tuple[str, ...] = ("•", "○", "×", "+", "■", "□", "▲", "△")
    grid_across: str = "┈"
    grid_down: str = "┊"
    best: str = "║"
    join: str = "╏"
    fill: str = "⣿"
    page_back: str = "‹"
    page_on: str = "›"
    legend: tuple[str, ...] = ("──", "╌╌", "··", "• ")
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    ok: str = "✓"
    failed: str = "✗"
    stopped: str = "■"
    held: str = "‖"
    warn: str = "!"
    hint: str = "→"
    more: str = "…"
    up: str = "▲"
    down: str = "▼"
    whisker_left: str = "├"
    whisker: str = "─"
    whisker_right: str = "┤"
    whisker_cross: str = "┼"
    to: str = "→"
    here: str = "▌▐"
    running: str = "▶"
    corners: str = "╭╮╰╯"
    folded: str = "▸"
    unfolded: str = "▾"


RICH = Glyphs()
PLAIN = Glyphs(
    braille=False, rule="-", done="=", to_do="-", own="#", used="=", free=".", peak="|", axis="|", tick="+", point="o",
    points=("*", "o", "+", "x", "#", "@", "%", "&"), grid_across=".", grid_down=":", best="!", join="/", fill=":",
    page_back="<", page_on=">", legend=("*", "o", "+", "x"), spinner="|/-\\", ok="ok", failed="X", stopped="=",
    held="%", warn="!", hint="->", more="~", up="^", down="v", whisker_left="[", whisker="-", whisker_right="]",
    whisker_cross="|", to="->", here="[]", running=">", corners="++++", folded="[+]", unfolded="[-]",
)  # fmt: skip


# Each of several curves in a chart is drawn with a character of its own.
WITHOUT_COLOURS = replace(RICH, legend=PLAIN.legend)


def glyphs_of(app: object) -> Glyphs:
    """Return the glyphs of an application (its attribute `glyphs`)."""
    glyphs = getattr(app, "glyphs", None)
    glyphs = glyphs if isinstance(glyphs, Glyphs) else suited()
    return WITHOUT_COLOURS if glyphs is RICH and getattr(app, "theme", "") == "monochrome" else glyphs


def is_poor(environment: Mapping[str, str]) -> bool:
    return environment.get("TERM", "").partition("-")[0] in _POOR_TERMINALS


def suited(environment: Mapping[str, str] = os.environ) -> Glyphs:
    """Return the glyphs that the terminal can show, judged by its name and locale. GPUTUI_ASCII=1 requests ASCII."""
    if environment.get("GPUTUI_ASCII", "") not in ("", "0"):
        return PLAIN
    if is_poor(environment):
        return PLAIN
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or "UTF-8"
    # Python and Textual write UTF-8 in the C locale, and nearly all terminals read it; LC_ALL is set on purpose.
    utf8 = "utf" in locale.lower() or (locale in ("C", "POSIX") and not environment.get("LC_ALL"))
    return RICH if utf8 else PLAIN


def in_cell() -> bool:
    """True in the cell of a notebook: the kernel of IPython sets these two variables (ipykernel/zmqshell.py); a cell
    passes for a terminal, but takes no keys and shows each drawing of a screen below the one before."""
    return os.environ.get("TERM") == "xterm-color" and os.environ.get("GIT_PAGER") == "cat"


def takes_keys() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not in_cell()


def draws_again(is_dumb: bool) -> bool:
    """Return True if lines on standard output can be drawn again. `is_dumb`: its kind of terminal cannot do that."""
    return sys.stdout.isatty() and not is_dumb and not in_cell()
