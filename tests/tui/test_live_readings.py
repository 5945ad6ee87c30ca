"""What the live view reads of its run, and when: pictures, place in the queue, checkpoints, names, earlier starts."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.doors.engine import Run
from tests.doors.tui import LiveScreen, Picture, Snapshot
from tests.doors.tui import screen as live_view
from tests.support import recorded
from tests.support.answering import Answering


class Reader:
    """A reader of a run: each poll takes the next of its steps, a picture (None: the one before) and whether the disk
    has more. After the last step the run has ended.
    """

    def __init__(self, *steps: tuple[Picture | None, bool]) -> None:
        self.steps = list(steps)
        self.picture = Picture()
        self.made: list[Any] = []

    def __call__(self, *given: Any) -> Reader:
        self.made.append(given)
        return self

    @property
    def ended(self) -> bool:
        return not self.steps

    def poll(self) -> bool:
        picture, behind = self.steps.pop(0) if self.steps else (None, False)
        self.picture = picture or self.picture
        return behind


class Leaving(threading.Event):
    """Is set after so many waits. `waits` has how long each would have taken."""

    def __init__(self, most: int, clock: list[float]) -> None:
        super().__init__()
        self.most, self.clock, self.waits = most, clock, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.clock[0] += timeout
        if len(self.waits) == self.most:
            self.set()
        return self.is_set()


class Read:
    """The live view of a run, which is not run, over a reader."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run: Run, reader: Reader, **given: Any) -> None:
        self.clock = [1000.0]
        monkeypatch.setattr(live_view, "RunReader", reader)
        monkeypatch.setattr(live_view, "time", SimpleNamespace(monotonic=lambda: self.clock[0], time=lambda: 0.0))
        self.app = Answering()
        monkeypatch.setattr(LiveScreen, "app", self.app)
        self.screen = LiveScreen(run, **given)

    def pictures(self, waits: int) -> tuple[list[Picture], list[float]]:
        leaving = Leaving(waits, self.clock)
        found = []
        for picture in self.screen.readings(leaving):
            found.append(picture)
            self.screen.set_reactive(cast("Any", LiveScreen).latest, picture)
        return found, leaving.waits


def picture(phase: str, reading: bool = False, **more: Any) -> Picture:
    return Picture(Snapshot(phase=phase, **more), reading=reading)


A, B = picture("a", outcome=None), picture("b", outcome="ok")


@pytest.fixture
def run(home: Path) -> Run:
    return recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)


# ---- keys -----------------------------------------------------------------------------------------------


def test_while_a_run_goes_on_every_second_picture_is_painted_whole_and_its_end_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, painted = Read(monkeypatch, run, Reader()), list[Any]()
    monkeypatch.setattr(LiveScreen, "show_now", lambda screen, turn=None: painted.append(turn))
    head = SimpleNamespace(repaint=lambda: painted.append("head"))
    monkeypatch.setattr(LiveScreen, "query_one", lambda screen, name, kind: head if name == "#head" else None)
    view.screen.set_reactive(cast("Any", LiveScreen).latest, A)
    for _ in range(5):
        view.screen.show_latest()
    assert painted == [0, "head", 1, "head", 2]
    painted.clear()
    view.screen.show_again()
    view.screen.show_latest()
    assert painted == [None, 0], "a screen that comes back is whole"
    view.screen.set_reactive(cast("Any", LiveScreen).latest, B)
    for _ in range(3):
        view.screen.show_latest()
    assert painted[2:] == [None] * 3
