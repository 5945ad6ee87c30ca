"""The chart screen over a source of its own: which chart is shown, how it is drawn, and what its keys change."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

from gputui.engine.runs import Run
from gputui.tui.base.settings import Charts
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.rows import Row
from gputui.tui.reading.run.series import Line
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.dialogs import Ask
from gputui.tui.widgets.charts import BigChart
from textual.pilot import Pilot
from textual.reactive import var
from textual.screen import Screen

from tests.support.answering import Shown
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, text_of, wait_for


def line(*values: float) -> Line:
    return Line(array("d", range(len(values))), array("d", values), last=values[-1])


class Source(Screen[None]):
    """Three charts on two axes. It keeps with which settings they were drawn."""

    latest: var[int] = var(0, always_update=True)
    about = "r1 a title of several words"
    names: Sequence[str] = ("loss", "busy", "speed")
    offered: Sequence[str] = ("time", "step", "epoch")

    def charts(self, drawn: Charts) -> list[Plot]:
        plots = {
            "loss": (Curve("train", line(*range(16, -1, -1))), Curve("val", line(5.0, 4.0))),
            "busy": (Curve("", line(0.5, 0.25, 0.75)),),
            "speed": (Curve("", line(10.0, 20.0, 30.0)),),
        }
        return [
            Plot(name, "", plots[name], "share" if name == "busy" else "free", drawn.x_axis.replace("auto", "step"),
                 x_end=16.0, key=name)
            for name in self.names
        ]  # fmt: skip

    def axes(self) -> list[str]:
        return list(self.offered)

    def foot(self, width: int) -> Row:
        return [(f"the foot in {width} cells", "label")]


def row(pilot: Pilot[None], number: int) -> str:
    return text_of(pilot.app).split("\n")[number].rstrip()


async def test_the_keys_of_a_chart_change_its_axis_scale_smoothing_and_the_chart_itself() -> None:
    source = Source()
    app = Tiny(lambda: source)
    async with app.run_test(size=(120, 24)) as pilot:
        await wait_for(pilot, lambda: app.screen is source)
        app.set_keymap({"zoom_in": "ctrl+k"})
        screen = ChartScreen(source, "busy")
        app.push_screen(screen)
        await wait_for(pilot, "2/3")
        assert row(pilot, 0).endswith("busy  r1 a title of several words                2/3  [ before  ] next")
        assert row(pilot, -3).strip() == ("left and right move the cursor, which shows the values; ctrl+k and - zoom")
        assert row(pilot, -2).strip() == "the foot in 118 cells"
        for key, axis in (("a", "epoch"), ("a", "time"), ("a", "step"), ("a", "epoch")):
            await pilot.press(key)
            assert (app.settings.charts.x_axis, screen.chart.plot.x_unit) == (axis, axis)
        for weight in (0.6, 0.9, 0.97, 0.0, 0.6):
            await pilot.press("i")
            assert app.settings.charts.smoothing == weight
        app.settings.change("charts.smoothing", 0.95)
        await pilot.press("i")
        assert app.settings.charts.smoothing == 0.97, "the next of the key's choices"
        await pilot.press("L")
        assert app.settings.charts.logarithmic
        assert told(pilot) == "a share is always drawn from 0 to 100 %; the other charts are logarithmic now"
        app.clear_notifications()
        await pilot.press("L", "right_square_bracket", "L")
        assert app.settings.charts.logarithmic
        assert told(pilot) == "", "it is no share"
        for key, name in (("right_square_bracket", "loss"), ("left_square_bracket", "speed"),
                          ("left_square_bracket", "busy"), ("left_square_bracket", "loss")):  # fmt: skip
            await pilot.press(key)
            assert (screen.key, screen.chart.plot.key) == (name, name)
        await pilot.press("y")
        assert app.clipboard == "epoch\ttrain\tval\n0\t16\t5\n1\t15\t4\n" + "\n".join(
            f"{x}\t{16 - x}\t" for x in range(2, 17)
        )
        await wait_for(pilot, lambda: "the values of loss, separated by tabs" in told(pilot), 20)
        right = app.size.width
        for x, name in ((right - 2, "busy"), (right - 9, "busy"), (right - 10, "speed"), (right - 19, "speed"),
                        (right - 20, "loss")):  # fmt: skip
            screen.key = "loss"
            await pilot.click(offset=(x, 0))
            assert screen.key == name, x
        for axes in ([], ["time", "samples"], ["epoch"]):
            source.offered = axes
            app.clear_notifications()
            await pilot.press("a")
            assert (told(pilot), app.settings.charts.x_axis) == ("this chart has only one axis", "epoch"), axes
        source.names = ("busy", "speed")
        source.latest = 1
        await wait_for(pilot, "1/2")
        assert screen.key == "busy", "the first, as the chart is no longer there"
        source.names = ()
        source.latest = 2
        await pilot.pause()
        assert screen.chart.plot.key == "busy", "it stays as it was"


async def test_the_cursor_the_visible_part_and_the_values_below_the_chart() -> None:
    source = Source()
    app = Tiny(lambda: source)
    async with app.run_test(size=(60, 24)) as pilot:
        await wait_for(pilot, lambda: app.screen is source)
        screen = ChartScreen(source, "no such chart")
        app.push_screen(screen)
        await wait_for(pilot, "1/3")
        assert screen.key == "loss"
        view, values = screen.view, screen.query_one("#values")
        await pilot.press("G")
        assert (view.cursor, view.window) == (16.0, None)
        await pilot.press("g")
        assert view.cursor == 0.0
        await pilot.press("right")
        assert 0.0 < view.cursor < 1.0
        await pilot.press("left")
        assert view.cursor == 0.0
        await wait_for(pilot, "step 0")
        assert row(pilot, -3).split() == ["step", "0", "──", "train", "16", "╌╌", "val", "5"]
        assert values.size.height == 1
        await pilot.resize_terminal(24, 24)
        await pilot.press("G", "g")
        await wait_for(pilot, lambda: values.size.height == 2)
        await pilot.resize_terminal(60, 24)
        for key, window in (("plus", (0.0, 8.0)), ("plus", (0.0, 4.0)), ("minus", (0.0, 8.0)), ("plus", (0.0, 4.0))):
            await pilot.press(key)
            assert view.window == window
        assert screen.chart.plot.how == ("zoomed 4.00 times",)
        assert screen.chart.plot.window == (0.0, 4.0)
        await pilot.press("0")
        assert view.window is None
        assert not screen.chart.plot.how
        await pilot.press("right_square_bracket", "G")
        assert (screen.key, view.cursor) == ("busy", 2.0), "on its newest point, not at the end of the axis"


stopped: list[Run] = []


class Training(Shown):
    """The view of a run, which may be running."""

    def __init__(self, run: Run, running: bool) -> None:
        super().__init__(run)
        self.can_stop = running

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "stop" or self.can_stop

    def action_stop(self) -> None:  # type: ignore[override]
        stopped.append(self.meant[0])


def test_a_chart_that_is_opened_again_is_the_one_that_was_asked_for() -> None:
    screen = ChartScreen(Source(), "loss")
    for key, shown in (("speed", "speed"), ("", "speed"), ("busy", "busy")):
        screen.opened_again(ChartScreen(Source(), key))
        assert screen.key == shown


async def test_only_the_chart_of_a_running_run_stops_it() -> None:
    source = Source()
    app = Tiny(lambda: source)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: app.screen is source)
        screen = ChartScreen(source, "loss")
        app.push_screen(screen)
        await wait_for(pilot, "1/3")
        assert screen.check_action("stop", ()) is False
        assert screen.check_action("axis", ()) is True
        for running in (False, True):
            run = Run(Path("/runs/x"))
            view = ChartScreen(Training(run, running), "loss")
            assert view.check_action("stop", ()) is running
            view.action_stop()
        assert stopped == [run, run], "the run decides whether it can be stopped"
        await pilot.press("x")
        assert not isinstance(app.screen, Ask)
        assert app.screen.query_one(BigChart)
