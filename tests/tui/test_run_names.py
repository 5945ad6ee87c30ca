"""A run has one short name and one colour in the list, its side view and comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine.runs import Run
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.widgets.charts import Chart
from gputui.tui.widgets.row_widgets import Panel
from gputui.tui.wording.comparison import moments_of
from textual.widgets import DataTable

from tests.support import recorded
from tests.support.tiny import Tiny, wait_for


@pytest.fixture
def five(home: Path) -> list[Run]:
    """The oldest first; two of one preset have been started on one day."""
    names = [f"20260921-1{number}0000-{name}" for number, name in enumerate(("cnn", "cnn", "vit", "mlp", "resnet50"))]
    return [recorded.write(home, name=name, gpus=1, seconds=40) for name in names]


async def test_a_run_has_its_short_name_and_its_colour_on_every_screen(home: Path, five: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "5 of 5 runs")
        without = pilot.app.screen.query_one(RunsTable).names
    (home / "run-numbers").write_text("".join(f"{run.id}\n" for run in five))
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        shown = await wait_for(pilot, "5 of 5 runs")
        table = pilot.app.screen.query_one(RunsTable)
        assert table.names == without, "no column goes"
        assert "cnn 10:00" not in shown, "no name needs a time"
        colours = [str(table.get_cell(run.id, "run").spans[0].style) for run in five]
        assert len(set(colours)) == 5
        await pilot.resize_terminal(120, 40)
        side = pilot.app.screen.query_one("#side-head", Panel)
        await wait_for(pilot, lambda: bool(side._rows))
        assert side._rows[0][0] == ("r5", "curve5")
        assert getattr(side._style("curve5").color, "name", "") == colours[4]
    async with Tiny(lambda: CompareScreen([five[4], five[1]])).run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, "throughput")
        heads = pilot.app.screen.query_one(DataTable).ordered_columns
        assert [(str(head.label), str(head.label.style)) for head in heads[1:3]] == [
            ("r5 resnet50", colours[4]),
            ("r2 cnn", colours[1]),
        ]
        legend = (await wait_for(pilot, "r5 resnet50 ")).splitlines()[1]
        assert legend.index("r5 resnet50") < legend.index("r2 cnn")
        styles = [style for text, style in pilot.app.screen.query_one(Chart)._rows[0] if style.startswith("curve")]
        assert styles == ["curve5", "curve2"]


async def test_runs_of_one_preset_are_named_by_their_changes_if_room_is_short(home: Path, five: list[Run]) -> None:
    changes = {"input.batch_size": {"to": 256}, "compile.steps_per_execution": {"to": 16}, "train.seed": {"to": 9}}
    for run in five:
        run.file("origin.json").write_text(json.dumps({"preset": "quickstart", "changes": changes}))
    (home / "run-numbers").write_text("".join(f"{run.id}\n" for run in five))
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        assert "r5 batch_size=256 +2 more" in await wait_for(pilot, "5 of 5 runs")
    five[0].file("origin.json").write_text(json.dumps({"preset": "fast", "changes": changes}))
    async with Tiny(RunsScreen).run_test(size=(80, 24)) as pilot:
        assert "r5 quickstart: 3 changes" in await wait_for(pilot, "5 of 5 runs")


def test_the_start_of_a_run_has_its_year_if_years_differ() -> None:
    other_year, other_month = "20251231-235900-a", "20260301-235900-a"
    assert moments_of([other_year, "20260101-000100-b"]) == ["2025-12-31 23:59", "2026-01-01 00:01"]
    assert moments_of([other_month, "20260101-000100-b"]) == ["Mar 01 23:59", "Jan 01 00:01"]
    assert moments_of([other_month, "20260301-000100-b", "mine"]) == ["23:59", "00:01", "mine"]
