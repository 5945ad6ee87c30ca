"""Printed tables fit the terminal, and no word or figure of them is divided."""

from __future__ import annotations

import io

import pytest
from gputui.engine.text_table import Table
from gputui.tui.printing.plain_tables import Columns, show_table
from rich.console import Console

HEAD = ["trial", "", "samples/s", "memory", "host", "outcome"]
ROWS = [
    ["01-s", "the preset as it is", "1,442", "29.2 MiB", "1.1 GiB", "ok"],
    ["02-s", "batch_size=128, steps_per_execution=4, policy=mixed_bfloat16", "2", "-", "803 MiB", "rejected: slower"],
]
WORDS = {word for row in [HEAD, *ROWS] for cell in row for word in cell.split()}


def printed(width: int, spare: tuple[int, ...] = ()) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(Columns(Table(HEAD, ROWS, right=(2, 3, 4), spare=spare)))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [74, 80, 100, 200])
def test_texts_are_folded_between_words_and_figures_stay_whole(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    assert {word for line in lines for word in line.split()} <= WORDS
    first = next(line for line in lines if line.startswith("01-s"))
    assert "29.2 MiB" in first
    assert "1.1 GiB" in first
    if width == 200:
        assert len(lines) == 1 + len(ROWS)


def test_a_narrow_terminal_leaves_out_spare_columns_from_the_last_on() -> None:
    lines = printed(66, spare=(3, 4))
    assert lines[0].split() == ["trial", "samples/s", "memory", "outcome"]
    assert lines[-1] == "a wider terminal also shows: host"
    assert {word for line in lines[:-1] for word in line.split()} <= WORDS
    assert printed(55, spare=(3, 4))[-1] == "a wider terminal also shows: memory, host"


def test_what_is_narrower_than_all_words_is_still_filled() -> None:
    assert max(map(len, printed(48))) <= 48


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Table(HEAD, ROWS, right=(2, 3, 4), spare=(3, 4)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert ROWS[1][1] in lines[2]
    assert lines[2].endswith("rejected: slower")
