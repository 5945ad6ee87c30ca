"""One chart alone, and the curves of compared runs, with keys one by one and in bursts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.live import view as live_view
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.widgets.charts import BigChart, Chart
from textual.pilot import Pilot

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
        shown = await wait_for(pilot, "1/9")
        assert "throughput" in row_of(pilot, "throughput")
        assert "start-up 11.6 s" in shown
        await click_at(pilot, "] next")
        await wait_for(pilot, lambda: row_of(pilot, "loss "))
        await click_at(pilot, "[ before")
        await wait_for(pilot, "1/9")
        await pilot.press("right_square_bracket")
        await wait_for(pilot, lambda: row_of(pilot, "loss "))
        await wait_for(pilot, lambda: any(row.rstrip().endswith(" time") for row in text_of(app).split("\n")))
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
        await wait_for(pilot, lambda: row_of(pilot, "loss log EMA 0.6"))
        await pilot.press("left")
        told = await wait_for(pilot, "epoch 2.93")
        assert "(smoothed " in told
        settings = app.settings
        assert (settings.charts.x_axis, settings.charts.logarithmic, settings.charts.smoothing) == ("epoch", True, 0.6)
        settings.flush()
        assert "x_axis: epoch" in settings.path.read_text()
        append(run, t=recorded.BEGAN + 101, type="progress", step=9000, steps=9000, epoch=30, loss=0.5, window_loss=0.5)
        await wait_for(pilot, lambda: "train   0.5" in row_of(pilot, "loss log"))
        await pilot.click(BigChart, offset=(20, 5))
        await wait_for(pilot, lambda: big(pilot).view.cursor is not None and big(pilot).view.cursor < 10)  # type: ignore[operator]
        await pilot.press("escape")
        assert "GPU 0" in await wait_for(pilot, "EMA 0.6")
        await pilot.click(next(chart for chart in app.screen.query(Chart) if chart.plot.key == "loss"))
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen) and row_of(pilot, "loss log"))
        await pilot.press("x")
        await wait_for(pilot, "Stop it?")
        await pilot.press("enter")  # Keep running
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen))
        error = {"kind": "data", "message": "no such folder: /data", "hint": "look at workload.data"}
        run.file("result.json").write_text(json.dumps({"outcome": "error", "error": error}))
        run.file("status.json").unlink()
        await wait_for(pilot, "✗ failed: no such folder: /data; Escape shows more")
        assert isinstance(app.screen, ChartScreen)


async def test_who_comes_back_sees_the_charts_as_they_are_drawn_now(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "READ_SECONDS", 600.0)  # nothing is read a second time, which would paint it, too
    run = recorded.write(home, gpus=1, seconds=100, outcome=None, engine_pid=os.getpid())
    app = Tiny(lambda: LiveScreen(run, clock=lambda: recorded.BEGAN + 100))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "throughput")
        for weight in ("0.6", "0.9"):
            await pilot.press("enter")
            await wait_for(pilot, "1/9")
            await pilot.press("i")
            await pilot.press("escape")
            assert "GPU 0" in await wait_for(pilot, f"EMA {weight}")


async def test_alone_the_title_names_its_value_the_last_and_the_time_of_the_cursor_stands_once(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=100)
    app = Tiny(lambda: LiveScreen(run))
    async with app.run_test(size=(120, 40)) as pilot:
        assert ", last" not in await wait_for(pilot, "throughput")
        await pilot.press("enter")
        await wait_for(pilot, "samples/s, last")
        await pilot.press("left")
        told = await wait_for(pilot, "after training began")
        assert told.count("after training began") == 1
        assert "epoch 2" in told


def two_runs(home: Path) -> None:
    for number, name in enumerate(("first", "cnn", "mlp")):
        settings = ("input.batch_size=128",) if name == "mlp" else ()
        recorded.write(home, name=f"20260921-1{number}0000-{name}", gpus=0, seconds=40 + number, settings=settings)
        os.utime(home / "runs" / f"20260921-1{number}0000-{name}" / "preset.yaml", (recorded.BEGAN + number,) * 2)


async def test_the_last_two_runs_are_compared_with_curves_in_four_keystrokes(home: Path) -> None:
    two_runs(home)
    app = GputuiApp()
    async with app.run_test(size=(120, 40)) as pilot:
        for key, seen in (("f4", "3 of 3"), ("space", "1 marked"), ("down", ""), ("space", "2 marked"),
            ("c", "‹ 1/"),
        ):  # fmt: skip
            await pilot.press(key)
            await wait_for(pilot, seen)
        shown = text_of(app)
        legend = next(row for row in shown.split("\n") if row.strip().startswith("loss ─"))
        assert "cnn" in legend
        assert "mlp" in legend
        assert "first" not in legend
        assert "options that differ" in shown
        await pilot.press("right_square_bracket")
        await wait_for(pilot, lambda: row_of(pilot, "throughput ─"))
        await pilot.press("z", "left")
        told = await wait_for(pilot, "after training began")
        assert told.count("samples/s") >= 2
        await pilot.press("escape", "escape")
        await wait_for(pilot, "3 of 3")


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
