"""A chart alone and charts on one axis: their cursor, zoom, pages and ranges."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.doors.engine import Run
from tests.doors.tui import BigChart, Chart, Charts, ChartScreen, CompareScreen, GputuiApp, LiveScreen, LogLines
from tests.support import recorded
from tests.support.bursts import ENTER, ESCAPE, F4, answered, burst
from tests.support.tiny import Tiny, text_of, wait_for

LEFT, RIGHT, DOWN = "\x1b[D", "\x1b[C", "\x1b[B"


def big(pilot: Pilot[None]) -> BigChart:
    return pilot.app.screen.query_one(BigChart)


def row_of(pilot: Pilot[None], start: str) -> str:
    """The line of the screen that begins so."""
    return next((row for row in text_of(pilot.app).split("\n") if row.strip().startswith(start)), "")


async def click_at(pilot: Pilot[None], text: str) -> None:
    """Click on a text in the first line of the screen."""
    await pilot.click(offset=(text_of(pilot.app).split("\n")[0].index(text), 0))


def append(run: Run, **event: object) -> None:
    with run.file("events.jsonl").open("a") as stream:
        stream.write(json.dumps(event) + "\n")


async def test_a_chart_alone_has_a_cursor_axes_zoom_and_smoothing_and_follows_the_run(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=100, outcome=None, engine_pid=os.getpid())
    app = Tiny(lambda: LiveScreen(run, clock=lambda: recorded.BEGAN + 100))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "throughput")
        await pilot.press("enter")
        await wait_for(pilot, "1/9")
        assert "throughput" in row_of(pilot, "throughput")
        await click_at(pilot, "]")
        await wait_for(pilot, lambda: row_of(pilot, "loss "))
        await click_at(pilot, "[")
        await wait_for(pilot, "1/9")
        await pilot.press("right_square_bracket")
        await wait_for(pilot, lambda: row_of(pilot, "loss "))
        await wait_for(pilot, lambda: any(row.rstrip().endswith(" time") for row in text_of(app).split("\n")))
        await pilot.press("end")
        assert big(pilot).view.cursor == big(pilot).view.last < big(pilot).view.whole[1], "the newest point"
        await pilot.press("0")
        await pilot.press("a")  # all charts have the same axis
        await wait_for(pilot, lambda: any(row.rstrip().endswith(" step") for row in text_of(app).split("\n")))
        await pilot.press("left")
        assert "step 880   ── train " in await wait_for(pilot, "step 880")
        await pilot.press(*["h"] * 4)
        before = big(pilot).view.cursor
        assert before is not None
        assert before < 880
        await pilot.press("plus", "plus")
        assert big(pilot).view.window is not None
        assert "zoomed 4.00 times" in await wait_for(pilot, "zoomed")
        assert big(pilot).view.cursor == before
        await pilot.press("0", "a", "L", "i")
        await wait_for(pilot, lambda: row_of(pilot, "loss (log) EMA 0.6"))
        await pilot.press("left")
        told = await wait_for(pilot, "epoch 2.93")
        assert "(smoothed " in told
        await pilot.press("home")
        await wait_for(pilot, "train 2.09 (smoothed 2.09)")  # the first point has nothing before it
        settings = app.settings
        assert (settings.charts.x_axis, settings.charts.logarithmic, settings.charts.smoothing) == ("epoch", "on", 0.6)
        settings.flush()
        assert "x_axis: epoch" in settings.path.read_text()
        append(run, t=recorded.BEGAN + 101, type="progress", step=9000, steps=9000, epoch=30, loss=0.5, window_loss=0.5)
        await wait_for(pilot, lambda: "train   0.5" in row_of(pilot, "loss (log)"))
        await pilot.click(BigChart, offset=(20, 5))
        await wait_for(pilot, lambda: big(pilot).view.cursor is not None and big(pilot).view.cursor < 10)  # type: ignore[operator]
        await pilot.press("end", "plus")
        append(run, t=recorded.BEGAN + 102, type="progress", step=11400, steps=11400, epoch=38, loss=1, window_loss=1)
        await wait_for(pilot, lambda: big(pilot).view.window == (23.0, 38.0))  # it follows the newest point
        await pilot.press("0", "escape")
        assert "GPU 0" in await wait_for(pilot, "EMA 0.6")
        await pilot.click(next(chart for chart in app.screen.query(Chart) if chart.plot.key == "loss"))
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen) and row_of(pilot, "loss (log)"))
        await pilot.press("x")
        await wait_for(pilot, "Stop it?")
        await pilot.press("enter")  # Keep running
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen))
        error = {"kind": "data", "message": "no such folder: /data", "hint": "look at workload.data"}
        run.file("result.json").write_text(json.dumps({"outcome": "error", "error": error}))
        run.file("status.json").unlink()
        await wait_for(pilot, "✗ failed: no such folder: /data; Escape shows more")
        assert isinstance(app.screen, ChartScreen)


def two_runs(home: Path) -> None:
    for number, name in enumerate(("first", "cnn", "mlp")):
        settings = ("input.batch_size=128",) if name == "mlp" else ()
        recorded.write(home, name=f"20260921-1{number}0000-{name}", gpus=0, seconds=40 + number, settings=settings)
        os.utime(home / "runs" / f"20260921-1{number}0000-{name}" / "preset.yaml", (recorded.BEGAN + number,) * 2)


async def test_keys_in_one_burst_reach_the_chart_that_they_open(home: Path) -> None:
    two_runs(home)
    app = GputuiApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await burst(pilot, F4)
        await wait_for(pilot, "3 of 3")
        await burst(pilot, " ", DOWN, " ", "c")
        await answered(pilot)
        await wait_for(pilot, lambda: isinstance(app.screen, CompareScreen) and "‹ 1/" in text_of(app))
        await burst(pilot, "]", "z", ESCAPE, "]", "]")
        await answered(pilot)
        await wait_for(pilot, lambda: isinstance(app.screen, CompareScreen))
        await burst(pilot, ENTER)
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen) and "throughput" in text_of(app))
        await burst(pilot, ENTER)
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen) and "1/5" in text_of(app))
        await burst(pilot, "]", "]", RIGHT, LEFT, LEFT, "+", "a")
        await answered(pilot)
        await wait_for(pilot, "3/5")
        assert app.settings.charts.x_axis == "step"
        await burst(pilot, ESCAPE)
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        await burst(pilot, ENTER)
        await wait_for(pilot, "1/5")  # the chart that was asked for, not the one that was left


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
        plots = pilot.app.screen.charts(Charts())  # type: ignore[attr-defined]
        assert [plot.x_unit for plot in plots] == ["time"] * 9
        (memory,) = (plot for plot in plots if plot.unit == "GiB")
        assert all(curve.line.last == pytest.approx(curve.line.y[-1], rel=0.01) for curve in memory.curves), "in GiB"
        await pilot.hover(charts(pilot)[0], offset=(20, 3))
        shown = await wait_for(pilot, "step 390")
        assert cursors(pilot) == [[20], [20]]
        assert shown.count(" 38.0 s ") == 3  # the moment below each chart, and in the row below them
        assert "epoch 1.30" in shown
        assert "─0.409" in shown.split("\n")[6]
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
        await drag(20, 12)
        await pilot.press("minus")
        assert view.window is not None
        assert view.window[0] == view.whole[0], "a longer range begins with the axis, and not before it"
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
        await pilot.press("z")
        await pilot.pause()
        assert not isinstance(pilot.app.focused, LogLines), "only the log takes keys of its own"
