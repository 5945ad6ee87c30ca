"""Widgets that are filled again: what stays, what is forgotten, and that a change of colours alone is seen, too."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

from gputui.engine import presets
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.drawing.live.layout import Demand, share_out
from gputui.tui.drawing.plot.curves import Curve, Plot
from gputui.tui.drawing.plot.viewport import Viewport
from gputui.tui.drawing.rows import Row, plain
from gputui.tui.form.form_state import INFO, FormState
from gputui.tui.reading.run.series import Line
from gputui.tui.reading.run.snapshot import Snapshot, Spell
from gputui.tui.widgets.chart_grid import ChartGrid
from gputui.tui.widgets.charts import Chart, PlotArea
from gputui.tui.widgets.headings import PartHeading
from gputui.tui.widgets.key_footer import ScreenTab, ScreenTabs
from gputui.tui.widgets.option_row import OptionRow
from gputui.tui.widgets.options_view import OptionsView
from gputui.tui.widgets.row_widgets import Page, Panel
from gputui.tui.widgets.start_bar import StartBar
from gputui.tui.widgets.table import Column, Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Button, Static

from tests.support.form_pilot import NO_GPU
from tests.support.tiny import Tiny, tiny

STEPS = Line(array("d", range(101)), array("d", range(101)), last=100.0)
STEPS_KEY = "compile.steps_per_execution"
PLOT = Plot("loss", "", (Curve("", STEPS),), x_unit="step", x_end=100.0, final=True, key="loss")


# ---- tables ------------------------------------------------------------------------------------------------------


class Filled(Screen[None]):
    CSS = "Table { height: 6; }"

    def compose(self) -> ComposeResult:
        yield Table()


def cells(*names: str, style: str = "") -> dict[str, list[Text]]:
    return {name: [Text(name.upper(), style=style)] for name in names}


async def test_a_table_keeps_its_cursor_and_its_place_and_writes_only_what_looks_otherwise() -> None:
    async with Tiny(Filled, PLAIN).run_test(size=(60, 12)) as pilot:
        table = pilot.app.screen.query_one(Table)
        columns = [Column("name", Text("name"), 12)]

        def state() -> tuple[str | None, int]:
            return table.current_key, table.row_count

        assert state() == (None, 0)
        names = [f"row{number:02}" for number in range(20)]
        table.fill(columns, cells(*names))
        await pilot.pause()
        table.move_cursor(row=12, animate=False)
        await pilot.pause()
        place = table.scroll_offset
        assert (state(), place.y > 0) == (("row12", 20), True)
        table.fill(columns, cells("new", *names))
        assert state() == ("row12", 21)
        table.scroll_to(y=12, animate=False, immediate=True)
        table.fill(columns, cells(*names, "new"))
        await pilot.pause()
        assert (state(), table.scroll_offset.y) == (("row12", 21), 12), "it stays scrolled as it was"
        await pilot.pause()
        table.fill(
            [*columns, Column("more", Text("more"), 5)], {key: [*row, Text("")] for key, row in cells(*names).items()}
        )
        assert (state(), len(table.columns)) == (("row12", 20), 2)
        table.fill(columns, cells(*names[:3]))
        assert state() == ("row00", 3), "the row of the cursor has gone"
        written: list[tuple[Any, ...]] = []
        update = table.update_cell
        table.update_cell = lambda *cell, **more: (written.append(cell[:2]), update(*cell, **more))  # type: ignore[method-assign, assignment, func-returns-value]
        same = cells(*names[:3])
        table.fill(columns, same)
        assert written == []
        same["row01"] = [Text("ROW01", style="red")]
        marked = Text("ROW02")
        marked.stylize("bold", 0, 3)
        same["row02"] = [marked]
        table.fill(columns, same)
        assert written == [("row01", "name"), ("row02", "name")], "colours and marks count"
        table.fill(columns, {})
        assert state() == (None, 0)


# ---- the start bar -----------------------------------------------------------------------------------------------


class Bar(Screen[None]):
    CSS = "StartBar { height: 3; } StartButton { width: 9; } #outlook { width: 1fr; height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.pressed = 0

    def compose(self) -> ComposeResult:
        yield ScreenTabs(
            [ScreenTab("runs", "Runs", "F4"), ScreenTab("gpus", "GPUs", "F5")], "gpus", "runs", keys_from=60
        )
        yield StartBar()
        yield Button("other", id="other")

    @on(StartBar.Pressed)
    def press(self) -> None:
        self.pressed += 1


async def test_what_enter_would_start_is_offered_only_until_the_focus_moves_on() -> None:
    async with Tiny(Bar, PLAIN).run_test(size=(80, 12)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Bar)
        bar, outlook = screen.query_one(StartBar), screen.query_one("#outlook", Static)
        options = presets.defaults().options

        def shown() -> str:
            return str(outlook.content)

        bar.show([], options, NO_GPU)
        usual = "global batch 64  on 4 CPU cores (no GPU: no NVIDIA driver)"
        assert shown() == usual, "the longest that has room"
        await pilot.click("#outlook")
        assert screen.pressed == 0
        bar.take_focus("the remedy")
        await pilot.pause()
        assert shown() == "enter starts it with the remedy  global batch 64  on 4 CPU cores (no GPU)"
        await pilot.press("enter")
        await pilot.click("#outlook")
        assert screen.pressed == 2
        screen.query_one("#other").focus()
        await pilot.pause()
        assert (shown(), screen.query_one("#start").can_focus) == (usual, False)
        await pilot.click("#outlook")
        assert screen.pressed == 2, "nothing is offered any more"
        bar.take_focus("")
        await pilot.pause()
        assert shown() == usual
        long = "the batch size must be a multiple of the number of replicas, which is 7 here"
        bar.show([long, "the batch size does not fit", "batch"], options, None)
        assert shown() == "cannot start  the batch size does not fit"
        assert screen.query_one("#start", Button).disabled
        tabs = screen.query_one(ScreenTabs)
        texts = []
        for count, width in ((0, 80), (12, 80), (3, 80), (4, 80), (0, 80), (0, 40)):
            await pilot.resize_terminal(width, 12)
            tabs.show(count)
            await pilot.pause()
            texts.append((tabs.render_line(0).text, tabs.size.width))
        assert texts == [(" F4 Runs [F5 GPUs]", 18), (" F4 Runs >12 [F5 GPUs]", 22), (" F4 Runs >3 [F5 GPUs]", 21),
                         (" F4 Runs >4 [F5 GPUs]", 21),
                         (" F4 Runs [F5 GPUs]", 18), (" Runs [GPUs]", 12)]  # fmt: skip
        assert shown() == "cannot start  batch"
        bar.show([], options, None, 48)
        assert shown() == "batch 64  examining this machine ..."
        assert not screen.query_one("#start", Button).disabled


def test_a_part_unfolds_with_its_first_change_and_then_stays_as_the_user_leaves_it() -> None:
    state = FormState.open(presets.SHIPPED / "quickstart.yaml")
    part = PartHeading("Rare", [STEPS_KEY], state)
    assert (part.used, part.folded) == (False, True)
    state.set(STEPS_KEY, "5")
    assert (part.unfold_if_newly_used(), part.folded) == (True, False)
    part.folded = True
    state.set(STEPS_KEY, "6")
    assert (part.unfold_if_newly_used(), part.folded) == (False, True), "the user has folded it"
    state.set(STEPS_KEY, "1")
    assert (part.unfold_if_newly_used(), part.used, part.folded) == (False, False, True)
    state.set(STEPS_KEY, "7")
    assert (part.unfold_if_newly_used(), part.folded) == (True, False)
    batch = PartHeading("Rare", ["input.batch_size"], state)
    state.set("input.batch_size", "64")
    assert (state.is_default("input.batch_size"), batch.used) == (True, True), "the file has another value"


class Options(Screen[None]):
    CSS = "OptionsView { height: 1fr; overflow-y: auto; } OptionRow { height: 1; }"

    def compose(self) -> ComposeResult:
        yield OptionsView(FormState.open(presets.SHIPPED / "quickstart.yaml"))


async def test_the_options_of_another_preset_are_folded_found_and_greyed_as_new() -> None:
    async with Tiny(Options, PLAIN).run_test(size=(70, 30)) as pilot:
        view = pilot.app.screen.query_one(OptionsView)
        used, unused = (FormState.open(presets.SHIPPED / "quickstart.yaml") for _ in range(2))
        key = "run.keep_best_count"
        part = next(part for part in view.parts if key in part.keys)
        used.set(key, "3")

        def shown() -> tuple[bool, bool]:
            return part.folded, view.rows[key] in view.shown

        assert shown() == (True, False)
        for state, folded in ((used, False), (unused, True), (used, False)):
            view.load(state)
            assert shown() == (folded, not folded)
            assert all(row.state is state for row in view.rows.values())
            changed = {name for name, heading in view.headings.items() if "changed" in heading.render().plain}
            assert changed == {key.partition(".")[0] for key in INFO if not state.is_default(key)}
        view.load(unused)
        view.reveal(key)
        assert shown() == (False, True)
        view.rows[key].focus()
        await pilot.pause()
        assert view.last is view.rows[key]
        part.action_fold(True)
        await pilot.pause()
        assert (shown(), view.current) == ((True, False), view.shown[0]), "the option with the focus is hidden"
        view.action_edge(-1)
        await pilot.pause()
        assert (view.last, view.scroll_offset.y > 0) == (view.shown[-1], True)
        view.narrow("batch size")
        await pilot.pause()
        assert (view.shown[0], view.scroll_offset.y) == (view.rows["input.batch_size"], 0)
        hits = {row.key for row in view.rows.values() if row.hit is not None}
        assert hits == {row.key for row in view.shown if isinstance(row, OptionRow)}
        view.narrow("seed")
        again = {row.key for row in view.rows.values() if row.hit is not None}
        assert "input.batch_size" not in again
        assert again == {row.key for row in view.shown if isinstance(row, OptionRow)}
        view.narrow("xyzzy")
        assert (view.shown, view.query_one("#no-match").display) == ([], True)
        view.narrow(" ")
        assert (len(view.shown) > 30, view.query_one("#no-match").display) == (True, False)
        assert not any(row.hit for row in view.rows.values())
        view.grey("there is none")
        assert {key for key, row in view.rows.items() if row.locked} == {
            info.key for info in INFO.values() if info.about.gpu_only
        }
        view.grey("")
        assert not any(row.locked for row in view.rows.values())


# ---- charts ------------------------------------------------------------------------------------------------------


class Charts(Screen[None]):
    CSS = "Chart { height: 9; width: 60; } ChartGrid { height: 22; width: 80; }"

    def __init__(self) -> None:
        super().__init__()
        self.reported: list[tuple[str, Any]] = []

    def compose(self) -> ComposeResult:
        yield Chart(Viewport())
        yield ChartGrid(Viewport())

    @on(PlotArea.Moved)
    @on(Chart.Opened)
    def keep(self, message: Any) -> None:
        self.reported.append((type(message).__name__, getattr(message, "visible", getattr(message, "key", None))))


async def test_a_part_of_a_chart_has_a_scale_of_its_own_and_a_range_of_no_length_selects_nothing() -> None:
    async with Tiny(Charts, PLAIN).run_test(size=(100, 40)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Charts)
        chart = next(iter(screen.query(Chart)))
        view = chart.view
        assert view is not None
        view.suit([PLOT])

        def labels() -> list[str]:
            rows = [plain(row)[:6].strip() for row in chart.rows(60, 9)[1:-1]]
            return [label for label in rows if label]

        chart.show(PLOT)
        assert (labels()[0], labels()[-1]) == ("100", "0")
        for least, ends in ((20.0, ("100", "0")), (40.0, ("160", "40"))):
            y = array("d", [least + 0.7 * number for number in range(101)])
            chart.show(replace(PLOT, curves=(Curve("", replace(STEPS, y=y, made={})),)))
            assert (labels()[0], labels()[-1]) == ends, "the scale changes only if the values do not fit"
        for window, ends in ((None, ("100", "0")), ((0.0, 30.0), ("40", "0")), (None, ("100", "0"))):
            chart.show(replace(PLOT, window=window))
            assert (labels()[0], labels()[-1]) == ends, window
        await pilot.mouse_down(chart, offset=(17, 0))  # the title
        await pilot.hover(chart, offset=(37, 3))
        await pilot.mouse_up(chart, offset=(37, 3))
        assert (view.window, view.dragged) == (None, None)
        for drag in ((17, 37, 17), (17, 37, 27)):
            await pilot.mouse_down(chart, offset=(drag[0], 3))
            for x in drag[1:]:
                await pilot.hover(chart, offset=(x, 3))
            await pilot.mouse_up(chart, offset=(drag[-1], 3))
            await pilot.pause()
            assert view.dragged is None
            assert (view.window is None) == (drag[-1] == drag[0]), drag
        view.all()
        assert plain(chart.rows(60, 9)[0]).split()[-1] == "100"
        view.place(50.0)
        assert plain(chart.rows(60, 9)[0]).split()[-1] == "50", "the legend has the values at the cursor"
        view.all()
        screen.reported.clear()
        await pilot.click(chart, offset=(20, 3), times=2)
        assert {name for name, _ in screen.reported} == {"Opened"}, (
            "a double click on the whole axis shows no more of it"
        )


async def test_pages_of_charts_go_round_and_the_last_chart_has_their_number() -> None:
    async with Tiny(Charts, PLAIN).run_test(size=(100, 40)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        plots = [replace(PLOT, title=f"p{number}", key=f"p{number}") for number in range(5)]
        layout = share_out(80, 30, Demand(charts=5, gpus=0, messages=0, summary=0))
        grid.lay_out(replace(layout, chart_columns=2, chart_rows=1))
        now = Snapshot(progress={"step": 1}, phase="training")

        def shown(page: int) -> list[tuple[str, str]]:
            grid.show(now, plots, page)
            return [(plot.key, plot.corner) for plot in grid.shown]

        assert [shown(page) for page in (0, 2, 3, 7)] == [
            [("p0", ""), ("p1", "< 1/3 >")], [("p4", "< 3/3 >")], [("p0", ""), ("p1", "< 1/3 >")],
            [("p2", ""), ("p3", "< 2/3 >")],
        ]  # fmt: skip
        assert [grid.query_one(f"#{name}").display for name in ("stage", "grid")] == [False, True]
        grid.show(replace(now, progress={}), plots, 0)
        assert [grid.query_one(f"#{name}").display for name in ("stage", "grid")] == [True, False]
        for rows, edges, height, seen in (
            (1, False, 7, False),
            (1, False, 8, True),
            (2, True, 15, False),
            (2, True, 16, True),
        ):
            grid.lay_out(replace(layout, chart_rows=rows, edges=edges, charts=height))
            assert grid.query_one("#phases").display is seen, (rows, edges, height)
        grid.lay_out(replace(layout, chart_columns=3, chart_rows=2))
        assert shown(4) == [(f"p{number}", "") for number in range(5)], "one page has no number"
        now = replace(now, spells=(Spell("evaluating", 0.0, 1.0, 0.0),))
        plots = [replace(plot, joins=(1.0,), spells=((0.0, 1.0, "e"),)) for plot in plots]
        corners = {}
        for columns, height in ((3, 7), (3, 8), (2, 7), (1, 7)):
            grid.lay_out(replace(layout, chart_columns=columns, chart_rows=1, edges=False, charts=height))
            corners[columns, height] = [corner for _, corner in shown(0)]
        assert corners == {
            (3, 7): ["/ resumed", "e evaluation", "< 1/2 >"], (3, 8): ["", "", "< 1/2 >"],
            (2, 7): ["/ resumed", "< 1/3 >"], (1, 7): ["< 1/5 >"],
        }, "the row below the charts names the marks if there is room for it"  # fmt: skip


# ---- painted rows ------------------------------------------------------------------------------------------------


class Painted(Screen[None]):
    CSS = "Panel { height: 3; } Page { height: 4; }"
    made: list[Row]

    def compose(self) -> ComposeResult:
        self.made = [[("one", "value")], [("two", "good")]]
        yield Panel(lambda width, height: self.made)
        yield Page(lambda width: self.made)


async def test_a_painted_row_follows_its_width_its_rows_and_the_theme() -> None:
    async with Tiny(Painted, PLAIN).run_test(size=(40, 12)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Painted)
        panel, page = screen.query_one(Panel), screen.query_one(Page)

        def texts() -> list[str]:
            return [panel.render_line(y).text for y in range(3)]

        def colour() -> Any:
            style = next(iter(panel.render_line(1))).style
            return style and style.color

        await pilot.pause()
        assert texts() == ["one".ljust(40), "two".ljust(40), " " * 40]
        before = colour()
        tiny(pilot).theme = "gputui-light"
        await pilot.pause()
        assert colour() != before
        await pilot.resize_terminal(30, 12)
        await pilot.pause()
        assert texts() == ["one".ljust(30), "two".ljust(30), " " * 30]
        screen.made = [[("one", "value")], [("too", "good")], [("three", "")], [("four", "")], [("five", "")]]
        panel.repaint()
        page.repaint()
        await pilot.pause()
        assert texts() == ["one".ljust(30), "too".ljust(30), "three".ljust(30)]
        assert page.max_scroll_y == 1
        screen.made = []
        panel.repaint()
        assert texts() == [" " * 30] * 3
