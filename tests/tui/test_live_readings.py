"""What the live view paints of its pictures, and when."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.doors.engine import Run
from tests.doors.tui import LiveScreen, Picture, Snapshot
from tests.support import recorded
from tests.support.answering import Answering

A, B = Picture(Snapshot(phase="a", outcome=None)), Picture(Snapshot(phase="b", outcome="ok"))


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)


def test_while_a_run_goes_on_every_second_picture_is_painted_whole_and_its_end_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveScreen, "app", Answering())
    screen, painted = LiveScreen(run), list[Any]()
    monkeypatch.setattr(LiveScreen, "show_now", lambda screen: painted.append("whole"))
    head = SimpleNamespace(repaint=lambda: painted.append("head"))
    monkeypatch.setattr(LiveScreen, "query_one", lambda screen, name, kind: head if name == "#head" else None)
    screen.set_reactive(cast("Any", LiveScreen).latest, A)
    for _ in range(5):
        screen.show_latest()
    assert painted == ["whole", "head", "whole", "head", "whole"]
    painted.clear()
    screen.show_again()
    screen.show_latest()
    assert painted == ["whole", "whole"], "a screen that comes back is whole"
    screen.set_reactive(cast("Any", LiveScreen).latest, B)
    for _ in range(3):
        screen.show_latest()
    assert painted[2:] == ["whole"] * 3
