"""The comparison on the screen: the baseline is pinned and unpinned with a key, marked, and said when it is gone."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.compare import baseline
from gputui.engine.runs import Run
from gputui.tui.base.themes import THEMES, colour
from gputui.tui.screens.chart import ChartScreen
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.widgets.charts import Chart
from textual.pilot import Pilot
from textual.widgets import DataTable

from tests.support import recorded
from tests.support.deleting import deleted
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, lines_of, text_of, tiny, wait_for


@pytest.fixture
def three(home: Path) -> list[Run]:
    """Two of one kind, and one with a batch twice as large."""
    kinds = {"cnn": 3000.0, "mlp": 3100.0, "vit": 4500.0}
    return [
        recorded.write(
            home, name=f"20260921-1{number}0000-{name}", gpus=0, seconds=40, samples_per_second=speed,
            settings=("input.batch_size=128",) if name == "vit" else (),
        )
        for number, (name, speed) in enumerate(kinds.items())
    ]  # fmt: skip


def shown_runs(pilot: Pilot[None]) -> list[str]:
    """The heads of the columns that are runs."""
    table = pilot.app.screen.query_one(DataTable)
    heads = [str(column.label) for column in table.ordered_columns]
    return [head for head in heads if head and not head.startswith("spread")]


async def test_a_key_pins_the_selected_run_and_unpins_it_and_the_cursor_stays(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "differences are from the first run")
        assert shown_runs(pilot) == ["cnn", "mlp", "vit"]
        await pilot.press("down", "right", "b")
        await wait_for(pilot, f"differences are from the pinned baseline, {three[1].id}")
        assert baseline.pinned().run == three[1]
        pinned = f"{three[1].name} is the baseline of all comparisons from now on; b unpins it"
        await wait_for(pilot, lambda: told(pilot) == pinned)
        assert shown_runs(pilot) == ["mlp (baseline)", "cnn", "vit"]
        assert pilot.app.screen.query_one(DataTable).cursor_coordinate == (1, 1)  # still on the run that was chosen
        await pilot.press("b")
        await wait_for(pilot, "differences are from the first run")
        assert baseline.pinned().run is None
        await wait_for(pilot, lambda: told(pilot) == f"{three[1].name} is no longer pinned")
        await pilot.press("left", "b")
        assert told(pilot) == "move the cursor to the column of a run first"
        await pilot.press("right")
        assert shown_runs(pilot) == ["mlp", "cnn", "vit"]
        screen = pilot.app.screen
        await pilot.press("right", "right")
        assert screen.query_one(DataTable).cursor_coordinate == (1, 3)
        await pilot.app.push_screen(HelpScreen(screen))
        await pilot.press("escape")
        await wait_for(pilot, lambda: pilot.app.screen is screen)
        assert screen.query_one(DataTable).cursor_coordinate == (1, 3)
        await pilot.press("enter")
        assert tiny(pilot).opened == [("run", three[2])]
        await pilot.press("b")
        await wait_for(pilot, "vit (baseline)")
        await pilot.press("right", "b")  # another one is pinned in its place
        await wait_for(pilot, "mlp (baseline)")
        assert baseline.pinned().run == three[1]


async def test_a_title_is_told_whole_where_columns_are_free_and_other_versions_are_shown(three: list[Run]) -> None:
    changes = {"compile.steps_per_execution": {"from": 1, "to": 16}, "input.batch_size": {"from": 64, "to": 256}}
    for run, made in zip(three, ({}, changes), strict=False):
        run.file("origin.json").write_text(json.dumps({"preset": "fast", "changes": made}))
    older = three[1].file("events.jsonl")
    older.write_text(older.read_text().replace('"keras":"3.15.1"', '"keras":"3.10.0"'))
    async with Tiny(lambda: CompareScreen(three[:2])).run_test(size=(120, 40)) as pilot:
        shown = await wait_for(pilot, "the versions of Keras differ")
        row = next(line for line in shown.splitlines() if line.startswith(" Keras"))
        assert row.split() == ["Keras", "3.15.1", "3.10.0"]
        assert shown_runs(pilot) == ["fast", "fast: steps_per_execution=16 batch_size=256"]


async def test_two_runs_fit_80_columns_by_what_was_changed_first(home: Path) -> None:
    pair = []
    for key, was, now in (("compile.steps_per_execution", 1, 16), ("input.batch_size", 64, 128)):
        run = recorded.write(home, name=f"20260921-100000-{now}", gpus=0, seconds=40, settings=(f"{key}={now}",))
        changes = {key: {"from": was, "to": now}}
        run.file("origin.json").write_text(json.dumps({"preset": "quickstart", "changes": changes}))
        pair.append(run)
    async with Tiny(lambda: CompareScreen(pair)).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "throughput")
        first, second = shown_runs(pilot)
        assert first.startswith("steps_per")
        assert second == "batch_size=128"
        table = pilot.app.screen.query_one(DataTable)
        assert table.virtual_size.width <= table.size.width


async def test_two_runs_of_long_paths_fit_80_columns_by_what_differs_of_the_paths(home: Path) -> None:
    pair = []
    for name in ("one", "two"):
        folder = home / "a-long-name-of-a-folder" / name
        folder.mkdir(parents=True)
        settings = (f"entry={folder}/train.py:build", f"folder={folder}")
        pair.append(recorded.write(home, name=f"20260921-100000-{name}", gpus=0, seconds=40, settings=settings))
    async with Tiny(lambda: CompareScreen(pair)).run_test(size=(80, 24)) as pilot:
        shown = await wait_for(pilot, "throughput")
        assert shown_runs(pilot) == ["one", "two"]
        entries = next(line for line in shown.splitlines() if "workload.entry" in line).split()
        assert [entry[:14] for entry in entries[1:]] == ["..one/train.py", "..two/train.py"]
        table = pilot.app.screen.query_one(DataTable)
        assert table.virtual_size.width <= table.size.width


async def test_three_runs_fit_120_columns_and_two_80_and_of_more_it_says_how_they_are_seen(three: list[Run]) -> None:
    more = "differences are from the first run; right and left show the rest of the table"
    for count, size, fits in ((3, (120, 40), True), (2, (80, 24), True), (3, (80, 24), False)):
        async with Tiny(partial(CompareScreen, three[:count])).run_test(size=size) as pilot:
            await wait_for(pilot, "throughput")
            await wait_for(pilot, "spread" if fits else more)
            table = pilot.app.screen.query_one(DataTable)
            assert (table.virtual_size.width <= table.size.width) == fits, (count, size)
            shown = text_of(pilot.app)
            assert (more in shown) != fits, (count, size)
            assert ("spread of repeats" in shown.split("figures")[0]) == (size == (120, 40))
            if not fits:
                assert "vit" not in shown.split("figures")[0].split("step 0")[1]
                await pilot.press("right", "right")
                await wait_for(pilot, lambda: "vit" in text_of(pilot.app).split("figures")[0].split("step 0")[1])


async def test_the_pinned_baseline_joins_and_stays_when_it_is_unpinned(three: list[Run]) -> None:
    baseline.pin(three[2])
    async with Tiny(lambda: CompareScreen(three[:2])).run_test(size=(80, 24), notifications=True) as pilot:
        assert "pinned baseline" in await wait_for(pilot, "global batch sizes differ (128, 64 samples)")
        assert shown_runs(pilot) == ["vit (baseline)", "cnn", "mlp"]
        await pilot.press("b")
        await wait_for(pilot, "differences are from the first run")
        assert shown_runs(pilot) == ["vit", "cnn", "mlp"]


async def test_all_that_is_said_stands_there_at_any_size(three: list[Run], snapshot: Any) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 60), notifications=True) as pilot:
        await wait_for(pilot, "‹ 1/")
        shown = await wait_for(pilot, "they do not show which learns better")
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot
        rows = [row.strip() for row in shown.split("\n")]
        assert rows[next(at for at, row in enumerate(rows) if row.startswith("differences are from")) - 1]
        scale, repeat, other = rows[next(at for at, row in enumerate(rows) if row.startswith("samples/s, diff")) :][:3]
        assert re.fullmatch(r"samples/s, difference +0 +\+20 % +\+40 %", scale)
        assert re.fullmatch(r"mlp .*~\+3\.3 % +├─+•─+┤ .* may be chance", repeat), repeat
        assert re.fullmatch(r"vit .* \+50\.0 % +│ .*├[─┊]*•[─┊]*┤.*", other), other
        await pilot.resize_terminal(60, 30)
        shown = await wait_for(pilot, "a step is \n")  # broken in two
        assert shown.rstrip().splitlines()[-2].strip() == "35,840): they do not show which learns better"
        assert "options that differ" in shown
        await pilot.pause()
        assert lines_of(pilot.app) == snapshot


async def test_the_words_of_the_table_are_those_for_the_present_size(three: list[Run]) -> None:
    def words(pilot: Pilot[None]) -> list[list[str]]:
        table = pilot.app.screen.query_one(DataTable)
        return [shown_runs(pilot), *([*map(str, table.get_row_at(row))] for row in range(table.row_count))]

    opened = {}
    for size in ((60, 30), (200, 60)):
        async with Tiny(lambda: CompareScreen(three)).run_test(size=size) as pilot:
            await wait_for(pilot, "throughput")
            opened[size] = words(pilot)
    (narrow, few), (wide, many) = opened.items()
    assert few != many
    async with Tiny(lambda: CompareScreen(three)).run_test(size=wide) as pilot:
        await wait_for(pilot, "throughput")
        await pilot.press("right", "down")
        for size, expected in ((narrow, few), (wide, many)):
            await pilot.resize_terminal(*size)
            await wait_for(pilot, lambda expected=expected: words(pilot) == expected)  # type: ignore[misc]
        assert pilot.app.screen.query_one(DataTable).cursor_coordinate == (1, 2)


async def test_a_deleted_baseline_is_said_and_left_out(three: list[Run]) -> None:
    baseline.pin(three[2])
    deleted(three[2])
    async with Tiny(lambda: CompareScreen(three[:2])).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "vit no longer exists")
        assert shown_runs(pilot) == ["cnn", "mlp"]
        await pilot.press("b")
        await wait_for(pilot, "cnn (baseline)")


async def test_a_comparison_that_comes_after_the_screen_has_gone_is_dropped(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "options that differ")
        screen = pilot.app.screen
        assert isinstance(screen, CompareScreen)
        assert screen.comparison is not None
        await pilot.press("escape")
        await wait_for(pilot, lambda: not screen.is_attached)
        screen.show(three, screen.comparison)


async def test_a_home_that_cannot_be_written_is_said(three: list[Run], home: Path) -> None:
    (home / "baseline.json").mkdir()
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "cannot be read")
        await pilot.press("b")
        await wait_for(pilot, "cannot be pinned")
        assert shown_runs(pilot) == ["cnn", "mlp", "vit"]


async def test_with_a_pinned_baseline_one_marked_run_is_enough(three: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "3 of 3")
        await pilot.press("space", "c")
        await wait_for(pilot, "mark a run with")
        assert not tiny(pilot).opened
        marked = next(iter(pilot.app.screen.marked.values()))  # type: ignore[attr-defined]
        baseline.pin(marked)
        await pilot.press("c")
        assert not tiny(pilot).opened  # it is the baseline itself
        baseline.pin(next(run for run in three if run != marked))
        await pilot.press("c")
        assert tiny(pilot).opened == [("compare", [marked])]


def change_colours(pilot: Pilot[None]) -> dict[str, str]:
    """The colour of the second run's difference, for each figure that has one."""
    table = pilot.app.screen.query_one(DataTable)
    rows = [table.get_row_at(row) for row in range(table.row_count)]
    return {str(row[0]).strip(): str(row[2].spans[-1].style) for row in rows if "%" in str(row[2]) and row[2].spans}


@pytest.mark.parametrize(("first", "colour_name"), [(0, "success"), (2, "error")])
async def test_a_gain_has_the_colour_of_success_whether_more_or_less_is_better(
    three: list[Run], first: int, colour_name: str
) -> None:
    """A faster run has more samples/s and a shorter step."""
    pair = [three[first], three[2 - first]]
    async with Tiny(lambda: CompareScreen(pair)).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "throughput")
        colours = change_colours(pilot)
        assert {colours["throughput"], colours["step time p50"]} == {str(colour(pilot.app, colour_name))}, colours
        pilot.app.theme = next(theme.name for theme in THEMES if not theme.dark)
        other = str(colour(pilot.app, colour_name))
        await wait_for(pilot, lambda: change_colours(pilot)["throughput"] == other)


async def test_the_chart_is_turned_and_opened_by_the_mouse_and_a_curve_that_is_hardly_seen_is_named(
    three: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompareScreen, "hardly_seen", "vit is hardly seen")
    screen = CompareScreen(three)
    async with Tiny(lambda: screen).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "vit is hardly seen; z, home and + zoom in on it")
        await pilot.resize_terminal(120, 29)
        await wait_for(pilot, lambda: "hardly seen" not in text_of(pilot.app))
        chart, drawn = screen.query_one(Chart), tiny(pilot).settings.charts
        keys = [plot.key for plot in screen.charts(drawn)]
        assert len(keys) > 2
        assert chart.plot.key == keys[0]
        for by, at in ((1, 1), (1, 2), (-1, 1), (-1, 0), (-1, -1)):
            chart.post_message(Chart.Turned(by))
            await wait_for(pilot, lambda at=at: chart.plot.key == keys[at])  # type: ignore[misc]
        assert {"step", "time"} <= set(screen.axes())
        chart.post_message(Chart.Opened(keys[-1]))
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ChartScreen))
        alone: Any = pilot.app.screen
        assert (alone.source, alone.key) == (screen, keys[-1])
