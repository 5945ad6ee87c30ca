"""The list of runs and their comparison: what is shown, filtered, noted, deleted and brought back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable
from textual.widgets.data_table import RowKey

from tests.doors.engine import Run, all_runs, comparison, previews
from tests.doors.tui import (
    THEMES,
    CompareScreen,
    HelpScreen,
    Panel,
    PreviewScreen,
    RunsScreen,
    colour,
)
from tests.doors.tui import runs_screen as runs_screen
from tests.support import recorded
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, text_of, tiny, wait_for


@pytest.fixture
def five(home: Path) -> list[Run]:
    """The oldest first; the last goes on."""
    kinds: list[dict[str, Any]] = [
        {"name": "20260921-100000-cnn", "samples_per_second": 3000.0},
        {"name": "20260921-110000-cnn-2", "samples_per_second": 3100.0, "settings": ("train.seed=9",)},
        {"name": "20260921-120000-resnet50", "outcome": "oom", "settings": ("input.batch_size=512",)},
        {"name": "20260921-130000-vit", "outcome": None, "description": "A [red]transformer[/red]\x1b[2J"},
        {"name": "20260921-140000-mlp", "outcome": None, "engine_pid": os.getpid()},
    ]
    made = []
    for number, kind in enumerate(kinds):
        run = recorded.write(home, **{"gpus": 1, "seconds": 40} | kind)
        os.utime(run.file("preset.yaml"), (recorded.BEGAN + 3600 * number,) * 2)
        made.append(run)
    return made


async def test_no_runs_so_far(home: Path) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "r in the form (F2) starts one")
        await pilot.press("enter", "space", "d", "c", "greater_than_sign", "x", "R", "r", "n", "t")
        assert not tiny(pilot).opened
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        screen.latest = None  # as long as they are being read
        screen.query_one("#status", Panel).repaint()
        assert "0 of 0" not in await wait_for(pilot, "reading the runs ...")


async def test_what_was_deleted_comes_back_until_the_end(five: list[Run], home: Path) -> None:
    kept = five[0].file("result.json").read_bytes()
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("down", "down", "down", "space", "down", "space")
        await wait_for(pilot, "2 marked, M clears")
        await pilot.press("slash", *"oom", "enter")
        await wait_for(pilot, "2 marked (2 hidden)")
        await pilot.press("d")
        shown = await wait_for(pilot, "Delete 2 runs")
        assert "2 of them are hidden by the filter" in shown
        await pilot.press("d")
        await wait_for(pilot, "deleted 2 runs; u brings them back; quitting frees")
        assert [run.id for run in all_runs()] == [run.id for run in reversed(five[2:])]
        await pilot.press("escape", "u")
        await wait_for(pilot, "5 of 5")
        assert five[0].file("result.json").read_bytes() == kept
        await pilot.press("M")
        await pilot.press(*["down"] * 4, "d")
        await wait_for(pilot, "Delete 1 run")
        await pilot.press("d")
        await wait_for(pilot, "4 of 4")
        assert list((home / "runs").glob(".deleted-*"))
    assert sorted(path.name for path in (home / "runs").iterdir()) == [run.id for run in five[1:]]


async def test_of_thousands_of_runs_only_the_newest_are_read_until_more_are_needed(
    five: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_screen, "FIRST", 2)
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "2 of 5 runs")
        await pilot.press("down")
        await wait_for(pilot, "5 of 5 runs")
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "2 of 5 runs")
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        screen.latest = None  # a key before the first reading
        screen.on_data_table_row_highlighted(DataTable.RowHighlighted(screen.table, 0, RowKey("")))
        await wait_for(pilot, "2 of 5 runs")
        await pilot.press("slash", *"oom")
        await wait_for(pilot, "1 of 5 runs")


@pytest.fixture
def three(home: Path) -> list[Run]:
    """Two of one kind, and one with a batch twice as large."""
    kinds = {"cnn": 3000.0, "mlp": 3100.0, "vit": 4500.0}
    runs = [
        recorded.write(
            home, name=f"20260921-1{number}0000-{name}", gpus=0, seconds=40, samples_per_second=speed,
            settings=("input.batch_size=128",) if name == "vit" else (),
        )
        for number, (name, speed) in enumerate(kinds.items())
    ]  # fmt: skip
    (home / "run-numbers").write_text("".join(f"{run.id}\n" for run in runs))
    return runs


def shown_runs(pilot: Pilot[None]) -> list[str]:
    """The heads of the columns that are runs."""
    table = pilot.app.screen.query_one(DataTable)
    heads = [str(column.label) for column in table.ordered_columns]
    return [head for head in heads if head and not head.startswith("spread")]


async def test_a_key_pins_the_selected_run_and_unpins_it_and_the_cursor_stays(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "differences are from the first run")
        assert shown_runs(pilot) == ["r1 cnn", "r2 mlp", "r3 vit"]
        await pilot.press("down", "right", "b")
        await wait_for(pilot, f"differences are from the pinned baseline, {three[1].name}")
        assert comparison.pinned().run == three[1]
        pinned = f"{three[1].name} is the baseline of all comparisons from now on; b unpins it"
        await wait_for(pilot, lambda: told(pilot) == pinned)
        assert shown_runs(pilot) == ["r2 mlp (baseline)", "r1 cnn", "r3 vit"]
        assert pilot.app.screen.query_one(DataTable).cursor_coordinate == (1, 1)  # still on the run that was chosen
        await pilot.press("b")
        await wait_for(pilot, "differences are from the first run")
        assert comparison.pinned().run is None
        await wait_for(pilot, lambda: told(pilot) == f"{three[1].name} is no longer pinned")
        await pilot.press("left", "b")
        assert told(pilot) == "move the cursor to the column of a run first"
        await pilot.press("right")
        assert shown_runs(pilot) == ["r2 mlp", "r1 cnn", "r3 vit"]
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
        assert comparison.pinned().run == three[1]


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


# ---- previews ---------------------------------------------------------------------------------------


async def test_previews_follow_the_newest_epoch_are_scrubbed_and_stand_next_to_each_other(five: list[Run]) -> None:
    first, last = five[0], five[-1]  # which goes on
    for epoch in (1, 2):
        previews.write(first.path, epoch, {"story.txt": f"old {epoch}\n".encode() * 40, "zebra.png": b"no picture"})
    previews.write(last.path, 1, {"story.txt": b"new 1", "zebra.png": previews.as_png(previews.Bitmap(1, 1, b"abc"))})
    app = Tiny(lambda: CompareScreen([first, last]))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "figures")
        await pilot.press("Z")
        shown = await wait_for(pilot, "old 2")
        assert "epoch 2, the last one" in shown
        assert "nothing of this name in this epoch" in shown, "of the run that has not got so far"
        previews.write(last.path, 3, {"story.txt": b"new 3"})
        await wait_for(pilot, "new 3")
        await pilot.press("left", "left")
        shown = await wait_for(pilot, "old 1")
        assert "new 1" in shown, "next to each other"
        assert "epoch 1 of 3" in shown
        await pilot.press("pagedown")
        await wait_for(pilot, lambda: "new 1" not in text_of(app))
        await pilot.press("down")
        shown = await wait_for(pilot, "zebra (2 of 2)")
        assert "cannot be read: the file is no PNG of" in shown
        assert "\u2580" in shown
        await pilot.press("end")
        await wait_for(pilot, "epoch 3, the last one")
        await pilot.press("Z")
        await wait_for(pilot, lambda: not isinstance(app.screen, PreviewScreen))
