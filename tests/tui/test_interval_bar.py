"""Bars of measured values and their scale, as rows of characters."""

from __future__ import annotations

import math
import re
import sys

import pytest
from gputui.engine import units
from gputui.engine.text_table import Table
from gputui.tui.base.glyphs import PLAIN, RICH, Glyphs
from gputui.tui.drawing.interval_bar import Interval, bar, head, scale_of
from gputui.tui.drawing.rows import plain
from gputui.tui.printing.interval_table import show_with_bars

FASTER, SLOWER, CHANCE = Interval(0.12, 0.04, 0.2), Interval(-0.05, -0.1, -0.01), Interval(0.015, -0.06, 0.055)
ALL = (FASTER, SLOWER, CHANCE, None)


@pytest.mark.parametrize(
    ("glyphs", "lines"),
    [
        (RICH, ["┊      │ ├─────•────┤", "├──•──┤│            ┊", "┊  ├───┼•─┤         ┊", "┊      │            ┊"]),
        (PLAIN, [":      | [-----o----]", "[--o--]|            :", ":  [---|o-]         :", ":      |            :"]),
    ],
)
def test_bars_share_a_scale_with_a_line_at_zero(glyphs: Glyphs, lines: list[str]) -> None:
    scale = scale_of(ALL)
    assert [plain(bar(interval, scale, 21, glyphs)) for interval in ALL] == lines
    assert head(scale, 23) == "  -10 %  0        +20 %"


@pytest.mark.parametrize("width", [5, 9, 12, 22, 80])
def test_the_zero_is_kept_in_every_width(width: int) -> None:
    for intervals in (ALL, (FASTER,), (SLOWER,), (Interval(0.0, 0.0, 0.0),), (Interval(40.0, 3.0, 90.0), SLOWER)):
        scale = scale_of(intervals)
        assert scale is not None
        line = scale.head(width)
        assert len(line) == width
        assert "0" in line.split()
        for interval in intervals:
            assert len(plain(bar(interval, scale, width, PLAIN))) == width
        assert plain(bar(None, scale, width, PLAIN))[scale.column(0.0, width)] == "|"


def test_a_scale_moves_seldom_while_values_come_in() -> None:
    """Its ends are round: the same bars are drawn for values that differ by little."""
    scales = {scale_of([FASTER, Interval(0.08 + by / 1000, 0.05, 0.19 + by / 1000)]) for by in range(10)}
    assert len(scales) == 1


def test_other_values_than_gains_have_their_own_zero_and_words() -> None:
    scale = scale_of([Interval(0.88, 0.85, 0.91), Interval(0.97, 0.95, 0.99)], zero=1.0, label=units.share)
    assert scale is not None
    assert scale.head(30).split() == ["85", "%", "90", "%", "95", "%", "100", "%"]
    assert plain(bar(None, scale, 30, PLAIN)).endswith("|")
    assert scale_of([None]) is None
    assert (head(None, 20), plain(bar(FASTER, None, 9, RICH))) == ("", " " * 9)
    for odd in (
        (0.1, 0.2, 0.3),
        (0.4, 0.2, 0.3),
        (0.0, -math.inf, math.inf),
        (0.0, 0.0, math.inf),
        (math.nan, 0.0, 1.0),
    ):
        with pytest.raises(ValueError, match="no order"):
            Interval(*odd)
    alone = scale_of((Interval(0.184, 0.184, 0.184),), 0.184, units.amount)
    assert alone is not None
    assert alone.head(40).split().count("0.184") == 1, "no label twice"


@pytest.mark.parametrize("columns", [80, 110])
def test_a_printed_table_has_its_bars_whole_in_every_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("GPUTUI_ASCII", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rows = [["cache", "+12 %", "kept", "why " * 30], ["xla", "-5 %", "rejected", "why"], ["none", "-", "failed", "oom"]]
    table = Table(["change", "gain", "decision", "why"], rows, right=[1])
    show_with_bars(table, [FASTER, SLOWER, None], after=1)
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= columns
    assert any(re.match(r"change .*-10 % +0 .*\+20 %", line) for line in lines)
    for name, drawn in (("cache", r": +\| +\[-+o-+\]"), ("xla", r"\[-+o-+\]\| +:"), ("none", r": +\| +:")):
        assert any(re.match(f"{name} .*{drawn}", line) for line in lines), (name, lines)
    assert sum(line.startswith("cache") for line in lines) == (2 if columns == 80 else 1)
