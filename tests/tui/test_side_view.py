"""The side view of the list of runs: all of it for each kind of row, and what it shows again if the cursor returns."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from tests.doors.engine import UNREAD, Notes, Run, RunState, Title, recalled
from tests.doors.engine import events_Fault as Fault
from tests.doors.tui import Chart, Entry, Panel, Picture, SideView, Snapshot, SweepEntry, Waiting, runs_screen
from tests.doors.tui import series_Line as Line
from tests.support.tiny import Tiny, text_of, wait_for

Written = Any  # a text of `__snapshots__`
WORDS = " ".join(f"word{number}" for number in range(40))


def entry(name: str, state: Any = "ok", **more: Any) -> Entry:
    kind = SweepEntry if "record" in more else Entry
    title = Title("cnn", more.pop("changes", ()))
    return kind(Run(Path("/runs") / f"20260921-{name}-cnn"), state, title, **more)


LINE = Line(array("d", [0.0, 1.0]), array("d", [2.0, 1.0]), last=1.0)
LINES = {"samples_per_second": LINE, "loss": LINE}
TOLD = (
    {"t": 1.0, "type": "phase", "phase": "training"},
    {"t": 2.0, "type": "started"},
    {"t": 3.0, "type": "progress", "step": 30, "steps": 90},
    {"t": 4.0, "type": "diagnosis", "verdict": "input_bound", "sentence": f"waits for its input; {WORDS}",
     "confidence": 0.8},
)  # fmt: skip
TRAINS = Snapshot(**vars(RunState.of(map(recalled, TOLD))) | {"lines": LINES})
NO_MEMORY = Fault(kind="oom", message=f"no memory {WORDS}", hint=f"try input.batch_size=16 {WORDS}")
FAILED = Snapshot(outcome="oom", error=NO_MEMORY)
SUMMARY = {"samples_per_second": 3000.0, "step_ms": {"p50": 10.0}}
ENDED = {"t": 9.0, "type": "finished", "outcome": "ok", "summary": SUMMARY}
DONE = Snapshot(**vars(RunState.of([recalled(ENDED)])) | {"lines": LINES})
PICTURES = {"100000": Picture(TRAINS), "110000": Picture(FAILED), "120000": Picture(DONE)}
FULL_NOTES = Notes(f"slow [disk] {WORDS}", ("best", "a"))
ROWS = {
    "goes on": entry("100000", "running", number=3, changes=("batch_size=256", "epochs=9")),
    "failed": entry("110000", "oom", notes=Notes("", ("a",)), description="a small one\x1b"),
    "done": entry("120000", notes=FULL_NOTES, description=WORDS, changes=("epochs=9",)),
    "waits": entry("130000", "waiting", waiting=Waiting("r1 cnn", 2, why=f"needs a GPU {WORDS} {WORDS}")),
    "deleted sweep": entry("140000", "ok", record=UNREAD, trials=(entry("150000"),)),
    "nothing": None,
}


class Alone(Screen[None]):
    def compose(self) -> ComposeResult:
        yield SideView()


class Reader:
    """A reader of a run that has read all of it."""

    made: list[str]

    def __init__(self, run: Run) -> None:
        name = run.id.split("-")[1]
        self.made.append(name)
        self.picture = PICTURES.get(name) or Picture(Snapshot(phase=name))

    def poll(self) -> bool:
        return False


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What is read only when the test says so, in place of the thread."""
    waiting: list[Callable[[], None]] = []

    def in_background(_owner: Any, reading: Callable[[], Any], take: Callable[[Any], None]) -> None:
        waiting.append(lambda: take(reading()))

    monkeypatch.setattr(Reader, "made", [], raising=False)
    monkeypatch.setattr(runs_screen, "RunReader", Reader)
    monkeypatch.setattr(runs_screen, "in_background", in_background)
    return waiting


async def the_view(pilot: Pilot[None]) -> SideView:
    await wait_for(pilot, lambda: pilot.app.screen.query(SideView))
    view = pilot.app.screen.query_one(SideView)
    view.place(60)
    await wait_for(pilot, lambda: view.size.width)
    return view


async def test_each_kind_of_row_is_shown_whole(later: list[Callable[[], None]], snapshot: Written) -> None:
    parts = []
    async with Tiny(Alone).run_test(size=(60, 40)) as pilot:
        view = await the_view(pilot)
        for height in (40, 18):
            await pilot.resize_terminal(60, height)
            for name, row in ROWS.items():
                view.show(row)
                while later:
                    later.pop()()
                await pilot.pause()
                charts = [chart.plot.key for chart in view.query(Chart) if chart.display]
                parts.append(f"---- {name}, {height} rows, charts: {', '.join(charts)}")
                for panel in (panel for panel in view.query(Panel) if panel.display):
                    lines = text_of(pilot.app).split("\n")[panel.region.y : panel.region.bottom]
                    parts += [f"{panel.id}: {line.rstrip()}" for line in lines]
    assert "\n".join(parts) == snapshot
    assert Reader.made == ["100000", "110000", "120000"], "nothing of a waiting run and of a sweep"
