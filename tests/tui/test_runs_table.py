"""The table of runs without files: its cells, its order and widths; the texts before runs are deleted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.engine.runs.titles import Notes, Title
from gputui.engine.trials.record import Record
from gputui.tui.base.themes import colour
from gputui.tui.reading.run_columns import COLUMNS
from gputui.tui.reading.run_list import Entry, when_text
from gputui.tui.screens.runs import side_view
from gputui.tui.screens.runs.actions import listed, until_quitting
from gputui.tui.screens.runs.run_table import ColumnsScreen, Order, RunsTable
from rich.text import Text
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import OptionList

from tests.support.tiny import Tiny, wait_for

BEGAN = 1_789_999_200.0
WHEN = when_text(BEGAN)


def entry(name: str, state: Any = "ok", number: int | None = None, **more: Any) -> Entry:
    title = Title(more.pop("title", "cnn"), more.pop("changes", ()))
    run = Run(Path("/runs") / f"20260921-{name}-cnn")
    return Entry(run, state, title, number=number, **{"when": BEGAN + int(name) / 1e6} | more)


DONE = entry("100000", number=1, changes=("batch_size=256", "epochs=9"), notes=Notes("slow [disk]", ("best", "a")),
             figures={"samples_per_second": 3000.0, "metrics.loss": 0.5})  # fmt: skip
FULL = entry("110000", "oom", 2, figures={"metrics.loss": 0.7}, description="a small one")
GOES_ON = entry("120000", "running", 3, figures={"samples_per_second": 2000.0, "eta_seconds": 90.0},
                latest={"step": 50, "steps": 200})  # fmt: skip
STOPPED, LIMIT = entry("130000", "stopped"), entry("140000", "timeout")
CRASHED = entry("160000", "crashed", title="vit", host="other")
WAITS = entry("150000", "waiting", title="mlp")
ALL = [DONE, FULL, GOES_ON, STOPPED, LIMIT, WAITS, CRASHED]


class OneTable(Screen[None]):
    def compose(self) -> ComposeResult:
        yield RunsTable()


@asynccontextmanager
async def a_table(size: tuple[int, int] = (100, 20)) -> AsyncIterator[RunsTable]:
    async with Tiny(OneTable).run_test(size=size) as pilot:
        await wait_for(pilot, lambda: pilot.app.screen.query(RunsTable))
        yield pilot.app.screen.query_one(RunsTable)


def rows(table: RunsTable) -> list[list[str]]:
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def show(table: RunsTable, entries: list[Entry], words: str = "", marked: Any = (), width: int = 98, most: int = 9,
         sweeps: dict[str, Record] | None = None) -> list[str]:  # fmt: skip
    """Show the runs; the times of day in the ids of the returned ones."""
    ids = {each.run.id: None for each in marked}
    return [id_.split("-")[-2] for id_ in table.show(entries, sweeps or {}, words, ids, width, most)]


async def test_each_state_has_its_sign_its_colour_and_its_figures() -> None:
    async with a_table() as table:
        table.chosen = ("run", "state", "done", "left", "samples/s", "step ms", "loss", "when")
        shown = show(table, ALL)
        assert shown == ["120000", "150000", "160000", "140000", "130000", "110000", "100000"], "then what waits"
        assert table.matching == 7
        assert [str(column.label) for column in table.ordered_columns] == [
            "  run", "state", " done", "     left", "samples/s", "step ms", "train loss", " when▼",
        ]  # fmt: skip
        none = ["     ", "         ", "        -", "      -", "         -", WHEN]
        assert rows(table) == [
            ["  r3 cnn", "▶ running", " 25 %", "     1:30", "    2,000", "      -", "         -", WHEN],
            ["  mlp", "… waiting", *none],
            ["  vit", "✗ crashed…", *none],
            ["  cnn 14:00", "■ timeout", *none],
            ["  cnn 13:00", "■ stopped", *none],
            ["  r2 cnn", "✗ oom", *none[:4], "       0.7", WHEN],
            ["  r1 cnn: batch_size=256 epochs=9", "✓ done", *none[:2], "    3,000", "      -", "       0.5", WHEN],
        ]
        states = [table.get_row_at(at)[1] for at in range(7)]
        assert all(isinstance(state, Text) for state in states)
        looks = ["primary", "secondary", "error", "secondary", "secondary", "error", "success"]
        assert [str(state.style) for state in states] == [colour(table.app, name) for name in looks]


async def test_a_title_that_is_too_long_is_cut_to_what_was_changed_if_all_runs_are_of_one_preset() -> None:
    async with a_table() as table:
        for entries, width, title in (
            ([DONE], 40, "  r1 batch_size=256 epochs=9"),
            ([DONE, FULL], 40, "  r1 batch_size=256 epochs=9"),
            ([DONE, WAITS], 40, "  r1 cnn: batch_si.. +1 more"),
        ):
            show(table, entries, width=width)
            assert rows(table)[-1][0] == title, width


async def test_at_most_so_many_rows_are_made_and_marks_and_found_words_are_shown_in_them() -> None:
    async with a_table() as table:
        assert len(show(table, ALL, most=2)) == 7
        assert (table.row_count, table.matching) == (2, 7)
        assert show(table, ALL, "batch", [DONE], 52) == ["100000"]
        ((first, *others),) = [table.get_row_at(0)]
        assert str(first) == "* r1 batch_size=256 epochs=9"
        spans = [(span.start, span.end, str(span.style)) for span in first.spans][1:]
        found = f"bold underline {colour(table.app, 'warning')}"
        assert spans == [(5, 10, found), (0, len(first), "bold")]
        assert all(not cell.spans for cell in others)
        assert (table.matching, show(table, ALL, "nothing")) == (1, [])
        assert (table.matching, table.row_count) == (0, 0)


async def test_chosen_columns_keep_their_order_and_their_width_up_to_a_limit() -> None:
    async with a_table() as table:
        table.chosen = ("tags", "name", "note", "description")
        long = replace(FULL, description="words " * 20, notes=Notes("", ()))
        show(table, [DONE, long], width=60)
        assert table.names == ["tags", "name", "note", "description"]
        assert [column.width for column in table.ordered_columns] == [2 + 12 + 1, 6, 17 + 1, 48 + 1]
        one, other = rows(table)
        assert one == ["  ", "r2", "", f"{('words ' * 20)[:47]}…"]
        assert other == ["  #best #a", "r1", "slow [disk]", ""]


def test_a_column_is_sorted_in_its_usual_direction_first_and_then_the_other_way_round() -> None:
    order = Order()
    assert order == ("when", True)
    assert order.by("when") == ("when", False)
    for column in COLUMNS:
        ascending = column in ("run", "id", "state", "tags", "note", "description")
        assert Order("size").by(column) == (column, not ascending if column != "size" else False), column


async def test_the_neighbours_of_a_column_are_sorted_in_turn() -> None:
    async with a_table() as table:
        table.chosen = ("run", "state", "samples/s", "loss", "when")
        show(table, ALL)
        table.sort_by_neighbour(1)
        assert table.order == ("run", False), "after the last comes the first"
        table.sort_by_neighbour(-1)
        assert table.order == ("when", True)
        table.sort_by_neighbour(-1)
        assert table.order == ("loss", True)
        table.reverse()
        assert table.order == ("loss", False)
        assert show(table, ALL)[:2] == ["150000", "100000"]
        assert str(table.ordered_columns[-2].label) == "train loss▲"
        table.sort_by("note")
        table.sort_by_neighbour(1)
        assert table.order == ("run", False), "a column that is hidden has no neighbours"
        assert show(table, ALL, "cnn 1 done") == ["100000"]


async def test_runs_of_one_title_and_day_keep_their_time_however_narrow_the_column_is() -> None:
    async with a_table() as table:
        table.chosen = ("run",)  # 48 cells
        for last, title in (("seed=1", "seed=1"), ("learning=0.1", "+1 more")):
            changes = ("batch_size=256", "epochs=9", last)
            show(table, [entry(f"1{n}0000", title="resnet50", changes=changes) for n in (3, 4)])
            whole = f"  resnet50: batch_size=256 epochs=9 {title}"
            assert rows(table) == [[f"{whole} 14:00"], [f"{whole} 13:00"]]
            show(table, [entry("130000", title="resnet50", changes=changes)])
            assert rows(table) == [[f"  resnet50: batch_size=256 epochs=9 {last}"]], "without a time there is room"


async def test_the_best_matches_come_first_only_in_the_usual_order() -> None:
    noted = [entry(f"1{n}0000", title="slow" if n == 1 else "a", notes=Notes("slow", ())) for n in range(3)]
    async with a_table() as table:
        assert show(table, noted, "slow") == ["110000", "120000", "100000"], "the title, then notes, the newest first"
        table.reverse()
        assert show(table, noted, "slow") == ["100000", "110000", "120000"]
        table.reverse()
        table.sort_by("note")
        assert show(table, noted[::-1], "slow") == ["120000", "110000", "100000"]


async def test_a_sweep_opens_and_closes_and_a_filter_that_selects_some_of_its_trials_opens_it() -> None:
    sweep = "20260921-090000-s"
    trials = [replace(each, sweep=sweep) for each in (DONE, FULL, GOES_ON)]
    entries, all_of_it = [*trials, STOPPED], ["090000", "120000", "110000", "100000", "130000"]
    async with a_table() as table:
        for words, shown in (
            ("", [all_of_it[0], all_of_it[-1]]),
            ("cnn", [all_of_it[0], all_of_it[-1]]),
            ("oom", ["090000", "110000"]),
        ):
            assert show(table, entries, words) == shown, words
            table.open_or_close(sweep)
            opened = {"": all_of_it, "cnn": all_of_it, "oom": ["090000"]}[words]
            assert show(table, entries, words) == opened, words
            table.filter_changed()
            assert show(table, entries, words) == (opened if not words else shown), (
                "only what was done without a filter"
            )
            if not words:
                table.open_or_close(sweep)
        assert show(table, entries) == [all_of_it[0], all_of_it[-1]]
        for marked, mark in ((trials, "*"), (trials[1:], " ")):
            show(table, entries, marked=marked)
            assert str(table.get_row_at(0)[0])[0] == mark, "a sweep is marked if all of its trials are"


async def test_the_arrows_open_and_close_a_sweep_and_a_table_that_is_scrolled_is_scrolled_back_first() -> None:
    sweep = "20260921-090000-s"
    entries = [replace(each, sweep=sweep, description="words " * 20) for each in (DONE, FULL)]
    async with a_table((40, 20)) as table:
        table.chosen, below = ("run", "description"), ["110000", "100000"]

        def shown() -> list[str]:
            return show(table, entries, width=38)

        for action, scrolled, row, trials in (
            (table.action_cursor_left, 0.0, 0, []), (table.action_cursor_right, 0.0, 0, below),
            (table.action_cursor_right, 0.0, 0, below), (table.action_cursor_left, 5.0, 0, below),
            (table.action_cursor_left, 0.0, 2, []),
        ):  # fmt: skip
            assert shown()[0] == "090000"
            table.move_cursor(row=row)
            table.set_reactive(RunsTable.scroll_x, scrolled)
            with contextlib.suppress(SkipAction):  # there is nothing to scroll
                action()
            assert shown() == ["090000", *trials]


async def test_columns_are_shown_hidden_carried_and_taken() -> None:
    names = list(COLUMNS)
    usual = ["run", "state", *(name for name in names if name not in ("run", "state"))]
    cases: tuple[tuple[list[str], list[str] | None, int], ...] = (
        (["down", "down", "space", "enter"], ["run", "state", usual[2]], 2),
        (["up", "space", "enter"], ["run", "state", usual[-1]], len(names) - 1),
        (["end", "down", "space", "enter"], ["state"], 0),
        (["greater_than_sign", "enter"], ["state", "run"], 1),
        (["end", "greater_than_sign", "enter"], ["run", "state"], len(names) - 1),
        (["end", "home", "down", "less_than_sign", "enter"], ["state", "run"], 0),
        (["d"], [], 0),
        (["escape"], None, 0),
    )
    app = Tiny(Screen)
    async with app.run_test(size=(80, 30)) as pilot:
        app.push_screen(ColumnsScreen(["loss", "run"]))
        shown = (await wait_for(pilot, "space shows or hides")).split("\n")
        within = [" ".join(line.strip(" │").split()) for line in shown if line.strip().startswith("│")]
        assert [line.split()[:2] for line in within[:2]] == [["✓", "loss"], ["✓", "run"]]
        keys = "space shows or hides, < > move, d is the usual choice, enter takes it, esc leaves"
        assert " ".join(within[-2:]) == keys
        app.pop_screen()
        for pressed, result, at in cases:
            chosen: list[Any] = []
            screen = ColumnsScreen(["run", "state"])
            app.push_screen(screen, chosen.append)
            await wait_for(pilot, lambda screen=screen: screen.query(OptionList))  # type: ignore[misc]
            await pilot.press(*pressed[:-1])
            assert screen.query_one(OptionList).highlighted == at, pressed
            await pilot.press(pressed[-1])
            await pilot.pause()
            assert chosen == [result], pressed


@pytest.mark.parametrize(
    ("columns", "shown", "width"),
    [(119, True, 0), (120, True, 54), (134, True, 54), (138, True, 55), (200, True, 80), (200, False, 0)],
)
def test_the_side_view_has_two_fifths_of_a_wide_terminal(columns: int, shown: bool, width: int) -> None:
    assert side_view.width_in(columns, shown) == width


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "  r1 (hidden)"),
        (8, "  r1 (hidden)\n  r2\n  r3\n  r4\n  r5\n  r6\n  r7\n  r8"),
        (9, "  r1 (hidden)\n  r2\n  r3\n  r4\n  r5\n  r6\n  r7\n  r8\n  and 1 more"),
        (20, "  r1 (hidden)\n  r2\n  r3\n  r4\n  r5\n  r6\n  r7\n  r8\n  and 12 more"),
    ],
)
def test_eight_names_are_listed_and_the_others_counted(count: int, text: str) -> None:
    assert listed([f"r{number + 1}" for number in range(count)], {"r1": " (hidden)"}) == text


def test_it_is_said_until_when_what_is_deleted_can_be_brought_back() -> None:
    assert until_quitting(1, 2048, "u") == "Until you quit gputui, u brings it back.\nQuitting frees 2.0 KiB."
    assert until_quitting(2, 3 * 1024**3, "z") == "Until you quit gputui, z brings them back.\nQuitting frees 3.0 GiB."
