"""How the progress of `gputui prepare` is printed: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys

import pytest
from gputui.engine.prepare.preparing import Progress
from gputui.tui.printing import prepare

Printed = pytest.CaptureFixture[str]


def test_progress_without_a_terminal_is_a_line_every_10_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    clock = [0.0]
    monkeypatch.setattr(prepare, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    view, shown = prepare.LineView(), []
    for clock[0], samples in ((0.0, 1), (9.9, 2), (10.0, 3000), (19.9, 4), (20.0, 5)):
        view.show(Progress(samples=samples, all_samples=9000, files=1, all_files=2, broken=samples == 5))
        shown.append(capsys.readouterr().err.strip().removeprefix("gputui: "))
    assert shown == ["", "", "3,000 of 9,000 samples, 1 of 2 files", "", "5 of 9,000 samples, 1 of 2 files, 1 broken"]


@pytest.mark.parametrize(
    ("terminal", "cell", "view"),
    [(False, False, prepare.LineView), (True, True, prepare.LineView), (True, False, prepare.BarView)],
)
def test_a_preparation_has_a_bar_on_a_terminal_but_not_in_the_cell_of_a_notebook(
    terminal: bool, cell: bool, view: type, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(prepare, "in_cell", lambda: cell)
    monkeypatch.setenv("TERM", "xterm")
    with prepare.progress_view() as shown:
        assert type(shown) is view
        shown.say("joins 2 files [into] one")
        shown.show(Progress(samples=1, all_samples=2, files=0, all_files=1, broken=0))
        shown.show(Progress(samples=2, all_samples=2, files=1, all_files=1, broken=0))
    out, err = capsys.readouterr()
    assert (out, "joins 2 files [into] one\n" in err) == ("", True)
    drawn, figures, after = err.rpartition("2 of 2 samples, 1 of 1 files")
    assert (bool(drawn and figures), "\x1b[2K" in after) == (view is prepare.BarView, view is prepare.BarView), "erased"
