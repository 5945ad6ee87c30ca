"""How often the screens read what they show, and when they stop: by the waits between their readings."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.engine.trials.record import UNREAD
from gputui.tui.drawing import charts
from gputui.tui.reading.machine import Users
from gputui.tui.reading.proofs import SearchReading
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.screens.compare import compared_curves
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.gpus import screen as gpus
from gputui.tui.screens.proof import proofs
from gputui.tui.screens.runs import screen as runs
from gputui.tui.screens.tune import screen as tune

from tests.support.recorded_search import ENDED, running
from tests.support.typed import as_read


class Leaving(threading.Event):
    """Is set after so many waits. `waits` has how long each would have taken."""

    def __init__(self, most: int = 2) -> None:
        super().__init__()
        self.most, self.waits = most, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if len(self.waits) == self.most:
            self.set()
        return self.is_set()


class Listing:
    """A list whose sizes are measured one after the other, while `left` are not known."""

    left = 3

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def read(self, most: int | None = None) -> list[Any]:
        self.asked.append(most)
        return [len(self.asked)]

    def measure(self) -> bool:
        self.left -= 1
        return self.left > 0


@pytest.mark.parametrize(
    ("module", "name", "screen", "asked"),
    [(runs, "RunList", runs.RunsScreen, None), (proofs, "ProofList", proofs.ProofsScreen, None)],
)
def test_lists_are_read_again_at_once_while_sizes_are_measured_then_every_two_seconds(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, screen: Any, asked: Any
) -> None:
    listing, leaving = Listing(), Leaving()
    monkeypatch.setattr(module, name, lambda: listing)
    assert list(screen().readings(leaving)) == [[1], [2], [3], [4]]
    assert (leaving.waits, listing.asked) == ([2.0, 2.0], [asked] * 4)
    leaving.set()
    assert list(screen().readings(leaving)) == []


def test_a_search_is_read_twice_a_second_and_after_its_end_every_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, goes_on = as_read(ENDED), as_read(ENDED | running())
    left = [SearchReading(UNREAD), SearchReading(goes_on), SearchReading(ended)]
    readings, leaving = list(left), Leaving(3)
    monkeypatch.setattr(tune, "SearchReader", lambda proof: SimpleNamespace(read=lambda: left.pop(0)))
    assert list(tune.TuneScreen(Proof(Path("/proofs/x"))).readings(leaving)) == readings
    assert leaving.waits == [3.0, 0.5, 3.0]


def test_the_processes_are_those_of_the_newest_gpus_and_read_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    below = SimpleNamespace(now=Snapshot())
    asked: list[Any] = []

    def read(of: Any) -> Users:
        asked.append(of)
        below.now = Snapshot(gpus=("a GPU",))  # type: ignore[arg-type]
        return Users()

    monkeypatch.setattr(gpus, "read", read)
    leaving = Leaving()
    assert list(gpus.ProcessesScreen(below).readings(leaving)) == [Users()] * 2
    assert (asked, leaving.waits) == ([(), ("a GPU",)], [2.0, 2.0])


def test_curves_are_shown_when_all_runs_are_read_and_read_every_second_until_all_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    polled: list[str] = []

    class Reader:
        """Reads the rest of its events at the second poll. The run has ended at the third, or at the fourth."""

        def __init__(self, run: Run) -> None:
            self.run, self.polls = run, 0

        @property
        def picture(self) -> Any:
            return SimpleNamespace(snapshot=f"{self.run.id} {self.polls}")

        @property
        def ended(self) -> bool:
            return self.polls >= (3 if self.run.id == "a" else 4)

        def poll(self) -> bool:
            self.polls += 1
            polled.append(self.run.id)
            return self.run.id == "b" and self.polls == 1

    monkeypatch.setattr(compared_curves, "RunReader", Reader)
    monkeypatch.setattr(charts, "MOST_COMPARED", 2)
    made = [Run(Path("/runs") / name) for name in "abc"]
    screen, leaving, seen = CompareScreen(made), Leaving(9), list[Any]()
    assert screen.catching_up
    for _ in screen.read_curves(made, leaving):
        seen.append(dict(screen._curves))
        assert not screen.catching_up
    assert seen == [{name: f"{name} {polls}" for name in "ab"} for polls in (2, 3, 4)]
    assert (polled, leaving.waits) == (["a", "b"] * 4, [1.0, 1.0]), "of the first runs only"
