"""The comparison on the screen: the baseline is pinned and unpinned with a key, marked, and said when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine.runs import Run, baseline
from gputui.tui.screens.compare import CompareScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.screens.runs import RunsScreen
from textual.pilot import Pilot
from textual.widgets import DataTable

from tests.support import recorded
from tests.support.deleting import deleted
from tests.support.tiny import Tiny, tiny, wait_for


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
    return [head for head in heads if head and head != "spread of repeats"]


async def test_a_key_pins_the_selected_run_and_unpins_it(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "differences are from the first run")
        assert shown_runs(pilot) == ["cnn", "mlp", "vit"]
        await pilot.press("down", "right", "b")
        await wait_for(pilot, f"differences are from the pinned baseline, {three[1].id}")
        assert baseline.pinned().run == three[1]
        assert shown_runs(pilot) == ["mlp (baseline)", "cnn", "vit"]
        assert pilot.app.screen.query_one(DataTable).cursor_coordinate == (1, 1)  # still on the run that was chosen
        await pilot.press("b")
        await wait_for(pilot, "differences are from the first run")
        assert baseline.pinned().run is None
        assert shown_runs(pilot) == ["mlp", "cnn", "vit"]


async def test_the_cursor_stays_on_its_run_under_the_help(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "differences are from the first run")
        screen = pilot.app.screen
        await pilot.press("down", "right", "right")
        await pilot.app.push_screen(HelpScreen(screen))
        await pilot.press("escape")
        await wait_for(pilot, lambda: pilot.app.screen is screen)
        assert screen.query_one(DataTable).cursor_coordinate == (1, 3)
        await pilot.press("enter")
        assert tiny(pilot).opened == [("run", three[2])]


async def test_another_run_is_pinned_in_place_of_the_first(three: list[Run]) -> None:
    baseline.pin(three[0])
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "cnn (baseline)")
        await pilot.press("right", "right", "b")
        await wait_for(pilot, "vit (baseline)")
        assert baseline.pinned().run == three[2]


async def test_the_pinned_baseline_joins_and_stays_when_it_is_unpinned(three: list[Run]) -> None:
    baseline.pin(three[2])
    async with Tiny(lambda: CompareScreen(three[:2])).run_test(size=(80, 24), notifications=True) as pilot:
        assert "pinned baseline" in await wait_for(pilot, "global batch sizes differ (128, 64 samples)")
        assert shown_runs(pilot) == ["vit (baseline)", "cnn", "mlp"]
        await pilot.press("b")
        await wait_for(pilot, "differences are from the first run")
        assert shown_runs(pilot) == ["vit", "cnn", "mlp"]


async def test_all_that_is_said_stands_there_at_any_size(three: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(three)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "they do not show which learns better")
        await pilot.resize_terminal(60, 30)
        shown = await wait_for(pilot, "a step is \n")  # broken in two
        assert shown.rstrip().splitlines()[-2].strip() == "35,840): they do not show which learns better"
        assert "options that differ" in shown


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
        assert screen.found is not None
        await pilot.press("escape")
        await wait_for(pilot, lambda: not screen.is_attached)
        screen.show(three, screen.found)


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
        await wait_for(pilot, "mark two or more")
        assert not tiny(pilot).opened
        marked = next(iter(pilot.app.screen.marked.values()))  # type: ignore[attr-defined]
        baseline.pin(marked)
        await pilot.press("c")
        assert not tiny(pilot).opened  # it is the baseline itself
        baseline.pin(next(run for run in three if run != marked))
        await pilot.press("c")
        assert tiny(pilot).opened == [("compare", [marked])]
