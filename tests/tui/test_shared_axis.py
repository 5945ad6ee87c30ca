"""The charts of the live view: one axis, one cursor, ranges, pages by arrows, marks, and ranges read again."""

from __future__ import annotations

import json
import os
import threading
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.engine.runs.events import EVENT_FILES
from gputui.tui.base.glyphs import PLAIN, RICH, Glyphs
from gputui.tui.base.settings import Charts
from gputui.tui.drawing.charts import on_one_axis
from gputui.tui.drawing.live import chart_foot
from gputui.tui.drawing.plot import cursor
from gputui.tui.drawing.plot.axes import GUTTER, x_scale
from gputui.tui.drawing.plot.canvas import draw
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.overlay import overlaid
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import plain
from gputui.tui.reading.run import closer
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.reading.run.series import Line
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.widgets.charts import Chart
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from tests.support import recorded
from tests.support.tiny import Tiny, text_of, wait_for

AFTER_START = 12.0  # seconds of a recording until training begins


def phase(second: float, name: str) -> dict[str, object]:
    return {"t": recorded.BEGAN + second, "type": "phase", "phase": name, "detail": ""}


def put(run: Run, *events: dict[str, object]) -> None:
    """Put events into the recording at their times."""
    path = run.file("events.jsonl")
    kept = [json.loads(row) for row in path.read_text().splitlines()]
    rows = sorted([*kept, *events], key=lambda event: float(str(event["t"])))
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def charts(pilot: Pilot[None]) -> list[Chart]:
    return [chart for chart in pilot.app.screen.query(Chart) if chart.display and chart.plot.curves]


def cursors(pilot: Pilot[None]) -> list[list[int]]:
    """The columns of the cursor's line in each chart, counted from the chart's own left."""
    return [sorted({at for row in chart._rows for at in places(row)}) for chart in charts(pilot)]


def places(row: list[tuple[str, str]]) -> list[int]:
    at, found = 0, []
    for text, style in row:
        found += [at] if style == "cursor" else []
        at += len(text)
    return found


@asynccontextmanager
async def live(run: Run, size: tuple[int, int] = (80, 24), **more: object) -> AsyncIterator[Pilot[None]]:
    app = Tiny(lambda: LiveScreen(run, **more))  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await wait_for(pilot, "throughput")
        await wait_for(pilot, lambda: len(charts(pilot)) > 1 and all(chart.size.width for chart in charts(pilot)))
        yield pilot


async def test_one_cursor_stands_in_all_charts_and_shows_their_values(home: Path) -> None:
    run = recorded.write(home, gpus=2, seconds=100)
    async with live(run) as pilot:
        now = await wait_for(pilot, "✓ done")
        assert [plot.x_unit for plot in pilot.app.screen.charts(Charts())] == ["time"] * 9  # type: ignore[attr-defined]
        await pilot.hover(charts(pilot)[0], offset=(20, 3))
        shown = await wait_for(pilot, "step 390")
        assert cursors(pilot) == [[20], [20]]
        assert shown.count(" 38.0 s ") == 3  # the moment below each chart, and in the row below them
        assert "epoch 1.30" in shown
        assert "─train" in shown.split("\n")[6]
        assert shown.split("\n")[6] != now.split("\n")[6]
        await pilot.hover("#devices")
        await wait_for(pilot, lambda: cursors(pilot) == [[], []])
        assert text_of(pilot.app) == now
        await pilot.press("left", "left")
        assert len(cursors(pilot)[0]) == 1
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, LiveScreen)
        assert cursors(pilot) == [[], []]


async def test_a_dragged_range_is_shown_in_all_charts_until_escape_or_a_double_click(home: Path) -> None:
    run = recorded.write(home, gpus=2, seconds=100, outcome=None, engine_pid=os.getpid())
    seconds = [100.0]
    async with live(run, clock=lambda: recorded.BEGAN + seconds[0]) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        view, first = screen.view, charts(pilot)[0]
        whole = first.plot.window, view.whole

        async def drag(begin: int, end: int) -> None:
            await pilot.mouse_down(first, offset=(begin, 3))
            await pilot.hover(first, offset=(end, 3))
            await wait_for(pilot, "select ")
            assert all(set(columns) <= {begin, end} and columns for columns in cursors(pilot))
            await pilot.mouse_up(first, offset=(end, 3))
            await wait_for(pilot, lambda: first.plot.window is not None)

        await drag(12, 37)  # up to the end
        window = view.window
        assert window is not None
        assert (10 < window[0] < 25, window[1]) == (True, whole[1][1])
        assert {chart.plot.window for chart in charts(pilot)} == {window}
        assert "esc Show all" in await wait_for(pilot, "esc shows all")
        seconds[0] = 300.0  # the run goes on
        put(run, {"t": recorded.BEGAN + 250, "type": "progress", "step": 900, "steps": 9000, "samples_per_second": 9.0})
        await wait_for(pilot, lambda: view.whole[1] > whole[1][1])
        assert view.window == window
        assert isinstance(pilot.app.screen, LiveScreen)
        await pilot.press("enter")
        await wait_for(pilot, "zoomed")  # the chart alone shows the same range
        assert isinstance(pilot.app.screen, ChartScreen)
        await pilot.press("escape", "escape")
        await wait_for(pilot, lambda: first.plot.window is None)
        assert pilot.app.screen is screen
        assert view.visible.high > 238
        await drag(12, 20)
        await pilot.double_click(first, offset=(25, 3))
        await wait_for(pilot, lambda: first.plot.window is None)
        assert pilot.app.screen is screen
        await pilot.press("plus", "plus", "minus")
        assert view.closer == pytest.approx(2.0)
        await pilot.press("0")
        assert view.window is None


async def test_arrows_turn_the_pages_of_charts(home: Path) -> None:
    async with live(recorded.write(home, gpus=8, seconds=40)) as pilot:
        await wait_for(pilot, "‹ 1/3 ›")
        names = [chart.plot.key for chart in charts(pilot)]
        last = charts(pilot)[-1]
        for column, page in ((last.size.width - 2, "2/3"), (last.size.width - 8, "1/3"), (last.size.width - 8, "3/3")):
            await pilot.click(last, offset=(column, last.size.height - 1))
            await wait_for(pilot, f"‹ {page} ›")
            assert ([chart.plot.key for chart in charts(pilot)] == names) == (page == "1/3")
            last = charts(pilot)[-1]
        assert isinstance(pilot.app.screen, LiveScreen)


def test_marks_stand_in_all_charts_and_are_named_with_and_without_colours(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=200)
    best = {"type": "best", "option": "train.early_stop", "figure": "val_loss", "epoch": 3, "step": 900, "value": 1.0}
    put(
        run,
        phase(60.45, "evaluating"), phase(66.2, "training"), phase(90.1, "saving"), phase(90.2, "training"),
        best | {"t": recorded.BEGAN + 102.0},
    )  # fmt: skip
    reader = RunReader(run)
    while reader.poll() or not reader.ended:
        pass
    now = reader.picture.snapshot
    whole = on_one_axis(now, Charts())
    assert {(plot.best, plot.x_end) for plot in whole} == {((90.0,), whole[0].x_end)}
    for plot in whole:
        ((begin, end, letter),) = plot.spells  # a short save explains nothing
        assert letter == "e"
        assert (begin, end) == pytest.approx((48.45, 54.2), abs=0.01)
    part = on_one_axis(now, Charts(), (75.0, 80.0))[0]
    assert [spell[2] for spell in part.spells] == ["e", "s"]
    for glyphs in (RICH, PLAIN):
        for plot in whole[:2]:
            rows = draw(plot, 38, 7, glyphs)[0]
            assert any("ee" in plain(row) for row in rows[1:-1])
            assert any(glyphs.best in text for row in rows[1:] for text, _ in row)
        named = plain(chart_foot.row(now, whole, Viewport(), 78, glyphs, "esc"))
        assert named.endswith(f"{glyphs.best} best epoch 3  e evaluation")
        assert len({glyphs.best, glyphs.join, glyphs.axis, glyphs.grid_down, glyphs.tick}) == 5


@pytest.mark.parametrize("glyphs", [RICH, PLAIN], ids=["braille", "ascii"])
def test_picture_of_marks_with_a_cursor_and_a_dragged_range(glyphs: Glyphs, snapshot: SnapshotAssertion) -> None:
    loss = Line(array("d", range(0, 100, 4)), array("d", (9 / (1 + x) for x in range(25))))
    plot = Plot("loss", "", (Curve("", loss),), x_end=100.0, final=True, best=(80.0,), joins=(64.0,), corner="1/2",
                spells=((30.0, 36.0, "e"), (90.0, 90.0, "s")))  # fmt: skip
    view, drawn = Viewport(), draw(plot, 60, 9, glyphs)[0]
    texts = []
    for view.cursor, view.dragged in ((50.0, None), (50.0, (72.0, 22.0)), (98.0, None)):
        rows = [drawn[0], *overlaid(drawn[1:], plot, x_scale(plot, 60 - GUTTER), view, 60, True, glyphs)]
        texts += [plain(row) for row in rows]
    assert "\n".join(texts) == snapshot


async def test_a_range_of_a_long_run_is_read_again_with_all_its_readings(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=2600)  # more readings than a line keeps
    for name in EVENT_FILES:  # it crashed after 500 s, and was resumed after an hour
        rows = [json.loads(row) for row in run.file(name).read_text().splitlines()]
        moved = [row | {"t": row["t"] + 3600 * (row["t"] > recorded.BEGAN + 500)} for row in rows]
        run.file(name).write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in moved))
    put(run, phase(4098.0, "importing"), phase(4099.0, "training"))
    async with live(run) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)

        def points(begin: float, end: float) -> int:
            line = screen.charts(Charts())[0].curves[0].line
            return sum(begin <= x <= end for x in line.x)

        before = screen.now.lines["samples_per_second"]
        coarse = points(1000, 1100)
        assert coarse < 60
        screen.view.select(1000, 1100)
        screen.show_view(True)
        await wait_for(pilot, lambda: points(1000, 1100) >= 100)
        assert points(0, 900) == 0
        close = screen.charts(Charts())[0].curves[0].line
        shared = set(before.steps) & set(close.steps)
        assert shared
        for step in shared:  # each reading at its own time, without the pause
            times = [line.x[line.steps.index(step)] for line in (before, close)]
            assert times[0] - AFTER_START == pytest.approx(times[1], abs=1.0)
        copied = cursor.table(screen.charts(Charts())[0]).split("\n")
        assert len(copied) == 1 + points(1000, 1100)  # what is visible, with all readings
        screen.view.all()
        assert points(1000, 1100) == coarse


async def test_keys_work_while_the_visible_part_of_a_running_run_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def goes_on(_run: Run, _now: Snapshot, _axis: str, _window: object, is_due: Callable[[], bool]) -> Iterator[Any]:
        begun.set()
        while is_due():
            time.sleep(0.02)
        ended.set()
        yield from ()

    monkeypatch.setattr(closer, "read", goes_on)
    run = recorded.write(home, gpus=1, seconds=100, outcome=None, engine_pid=os.getpid())
    async with live(run) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        await pilot.press("plus")
        await wait_for(pilot, begun.is_set)
        await pilot.press("escape")
        await wait_for(pilot, ended.is_set)
        assert screen.view.window is None
