"""How the screen of a search shares its room: its table with the scrollbar, and pairs of trials among the charts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.trials.record import UNREAD
from gputui.tui.drawing import tune as drawing
from gputui.tui.screens.tune import screen as tune_screen
from gputui.tui.screens.tune.screen import TuneScreen
from textual.geometry import Size

from tests.support.recorded_search import ENDED, running
from tests.support.typed import as_read

SEARCHED, SEARCHES = as_read(ENDED), as_read(ENDED | running())
PROVED = Proof(Path("/proofs/20260921-130000-x"))


@pytest.mark.parametrize(("count", "width"), [(3, 98), (4, 97), (5, 97)])
def test_a_table_of_a_search_that_is_full_leaves_a_column_to_its_scrollbar(
    monkeypatch: pytest.MonkeyPatch, count: int, width: int
) -> None:
    filled: list[int] = []
    asked: list[Any] = []

    def share_out(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(table=4)

    monkeypatch.setattr(tune_screen, "share_out", share_out)
    monkeypatch.setattr(TuneScreen, "size", Size(100, 40))
    monkeypatch.setattr(TuneScreen, "query", lambda screen, kind: [])
    for name in ("_lay_out", "_show_charts", "refresh_bindings"):
        monkeypatch.setattr(TuneScreen, name, lambda *_: None)
    monkeypatch.setattr(TuneScreen, "_head", lambda screen, width, height: [[]] * 3)
    monkeypatch.setattr(TuneScreen, "_fill", lambda screen, width: filled.append(width))
    screen = TuneScreen(PROVED)
    screen._ranked = [cast("Any", number) for number in range(count)]
    screen.show_now()
    assert (filled, asked) == ([width], [(98, 38, 3, count)])


@pytest.mark.parametrize(
    ("data", "deciding", "pairs", "columns", "speed", "loss"),
    [
        (SEARCHES, False, False, 1, True, True), (SEARCHES, True, True, 1, True, False),
        (SEARCHED, False, True, 2, False, False), (UNREAD, False, False, 1, True, True),
    ],
)  # fmt: skip
def test_the_pairs_take_the_place_of_the_loss_and_at_the_end_also_that_of_the_speed(
    monkeypatch: pytest.MonkeyPatch, data: Any, deciding: bool, pairs: bool, columns: int, speed: bool, loss: bool
) -> None:
    parts = {name: SimpleNamespace(display=None, styles=SimpleNamespace()) for name in ("#pairs", "#speed", "#loss")}
    monkeypatch.setattr(TuneScreen, "query_one", lambda screen, name: parts[name])
    monkeypatch.setattr(drawing, "is_deciding", lambda given: deciding)
    screen = TuneScreen(PROVED)
    screen.data = data
    screen._lay_out_pairs()
    assert [parts[name].display for name in parts] == [pairs, speed, loss]
    assert parts["#pairs"].styles.column_span == columns
