"""The table of runs and the comparison: sorted, filtered, marked, opened, deleted with a question."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.files.writing import used_bytes
from gputui.engine.runs import Run, all_runs, titles
from gputui.engine.runs.trash import Trash
from gputui.engine.units import size
from gputui.tui.reading import run_columns
from gputui.tui.reading.run_columns import ordered
from gputui.tui.reading.run_list import RunList, when_text
from gputui.tui.screens.compare.screen import CompareScreen
from gputui.tui.screens.runs import screen as runs_screen
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.widgets.row_widgets import Panel
from gputui.tui.widgets.table import Column, Table
from rich.text import Text
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import DataTable, Input

from tests.support import recorded
from tests.support.form_pilot import told
from tests.support.opened_files import opened_below
from tests.support.tiny import Tiny, still, text_of, tiny, wait_for

SIZES = [(80, 24), (120, 40)]


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


def names(pilot: Pilot[None]) -> list[str]:
    """The order of the rows."""
    screen = pilot.app.screen
    assert isinstance(screen, RunsScreen)
    return [name.split("-", 2)[2] for name in screen.shown]


async def test_the_table_shows_what_a_run_came_to(five: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5 runs")
        await pilot.press("V")
        for size in [(80, 24), (200, 40)]:
            await pilot.resize_terminal(*size)
            shown = await wait_for(pilot, "5 of 5 runs")
            for word in ("validation", "running", "crashed", "oom", "done", "3,000", "samples/s"):
                assert word in shown, word
            assert names(pilot) == ["mlp", "vit", "resnet50", "cnn-2", "cnn"]
            assert "  cnn 11:00 " in shown  # two of one name on one day
            assert "  cnn 10:00 " in shown
            assert ("A [red]transformer[/red]?[2J" in shown) == (size[0] > 100)


def test_a_figure_is_never_cut_in_its_column(five: list[Run]) -> None:
    found = RunList()
    assert found.read()[0].size is None
    assert found.measure()
    entry = found.read()[0]
    assert run_columns.COLUMNS["size"].show(entry) == size(used_bytes(entry.run.path)) != ""
    for name, key, value, shown in (
        ("loss", "metrics.loss", 7.9812e-05, "7.98e-05"), ("loss", "metrics.loss", 0.00041234, "0.000412"),
        ("loss", "metrics.loss", -7.98e-105, "-8e-105"), ("samples/s", "samples_per_second", 12345678.0, "1.23e+07"),
        ("left", "eta_seconds", 45_296.0, "12:34:56"),
    ):  # fmt: skip
        column = run_columns.COLUMNS[name]
        assert column.show(replace(entry, figures={key: value})) == shown
        assert len(shown) <= column.width
    left, timed = run_columns.COLUMNS["left"], replace(entry, figures={"eta_seconds": 90.0})
    assert [left.show(replace(timed, state=state)) for state in ("running", "ok", "crashed")] == ["1:30", "", ""]


async def test_figures_are_named_for_what_they_are_and_stopped_is_no_failure(home: Path) -> None:
    run = recorded.write(home, gpus=0, seconds=40, outcome="stopped")
    result = json.loads(run.file("result.json").read_text())
    result |= {"peak_memory_bytes": 4_823_450, "peak_process_bytes": 599 * 1024**2, "gpu_busy_mean": None}
    result["metrics"] = {"loss": 0.5, "val_loss": 0.6, "val_accuracy": 0.9134}
    run.file("result.json").write_text(json.dumps(result))
    async with Tiny(RunsScreen).run_test(size=(116, 24)) as pilot:
        shown = await wait_for(pilot, "■ stopped")
        assert " accuracy 0.913 " in shown, "what it has learnt stands in every list"


async def test_the_run_under_the_cursor_is_shown_beside_the_table(five: list[Run]) -> None:
    """Curves, error, changes and note follow the cursor; a narrow terminal and a key leave the room to the table."""
    titles.write_note(five[2], "too large, see the [log]")
    titles.retag(five[2], ["memory"])
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await still(pilot, "5 of 5 runs", "throughput", "loss ─")
        await pilot.press("down", "down")
        await still(pilot, "✗ out of memory", "too large, see the [log]", "#memory", "peak tensors")
        assert "→ try input.batch_size=256" in text_of(pilot.app)
        await pilot.press("down")
        await still(pilot, "✓ done", "3,081 samples/s")
        await pilot.press("up")
        await still(pilot, "✗ out of memory", "loss ─")  # from the reader that was kept
        await pilot.press("slash", *"nothing at all")
        assert "samples/s" not in (await wait_for(pilot, "0 of 5 runs")).split("0 of 5")[0].split("│", 1)[-1]
        await pilot.press("escape")
        await still(pilot, "5 of 5 runs", "loss ─")
        await pilot.press("V")
        await wait_for(pilot, lambda: "loss ─" not in text_of(pilot.app) and "step ms" in text_of(pilot.app))
        pilot.app.settings.flush()  # type: ignore[attr-defined]
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        assert "loss ─" not in await wait_for(pilot, "5 of 5 runs")
        await pilot.press("V")
        await wait_for(pilot, "loss ─")
        await pilot.resize_terminal(119, 40)
        await wait_for(pilot, lambda: "loss ─" not in text_of(pilot.app))
        await pilot.resize_terminal(200, 60)
        await still(pilot, "loss ─", "input wait ─")


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


async def test_the_cursor_opens_marks_compare_and_the_table_is_filtered_and_sorted(five: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("down", "enter")
        assert tiny(pilot).opened.pop() == ("run", five[3])
        await pilot.press("down", "space", "down", "space")
        await wait_for(pilot, "2 marked")
        await pilot.press("c")
        assert tiny(pilot).opened.pop() == ("compare", [five[1], five[2]])
        await pilot.press("M", "space", "c")
        await wait_for(pilot, "mark a run with")
        await pilot.press("M", "up", "c")  # nothing is marked: the run before it
        assert tiny(pilot).opened.pop() == ("compare", [five[1], five[2]])
        await pilot.press("home", "slash", *"cnn done")
        await wait_for(pilot, "2 of 5 runs")
        await pilot.press("enter", "enter")
        assert tiny(pilot).opened == [("run", five[1])]
        await pilot.press("escape")
        await wait_for(pilot, "5 of 5")
        await pilot.press("slash", *"vit", "escape")
        await wait_for(pilot, "5 of 5")
        await pilot.resize_terminal(120, 40)
        await pilot.press("I")
        assert names(pilot) == ["cnn", "cnn-2", "resnet50", "vit", "mlp"]
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        screen.sort_by("memory")
        assert names(pilot)[-2:] in (["vit", "mlp"], ["mlp", "vit"])  # what is not known stays last
        await pilot.click(DataTable, offset=(4, 0))
        assert names(pilot)[0] == "cnn"
        assert "run▲" in text_of(pilot.app)


async def test_a_note_and_tags_are_written_and_removed(five: list[Run]) -> None:
    run = five[-1]
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("t")
        await wait_for(pilot, "Tags of")
        await pilot.press(*"best, slow", "enter")
        await wait_for(pilot, lambda: titles.read_notes(run).tags == ("best", "slow"))
        await pilot.press("t")
        await wait_for(pilot, "best slow")
        await pilot.press("ctrl+u", *"slow new", "enter")
        await wait_for(pilot, lambda: titles.read_notes(run).tags == ("slow", "new"))
        await pilot.press("n")
        await wait_for(pilot, "Note on")
        await pilot.press(*"after the fix", "enter")
        await wait_for(pilot, lambda: titles.read_notes(run).note == "after the fix")
        assert titles.read_notes(five[0]).tags == ()
        await pilot.press("n")
        await wait_for(pilot, "Note on")
        await pilot.press("ctrl+u", "enter")
        await wait_for(pilot, lambda: titles.read_notes(run).note == "")
        await pilot.press("u")
        await wait_for(pilot, lambda: titles.read_notes(run).note == "after the fix")
        await pilot.press("U")
        shown = await wait_for(pilot, "changed the note of")
        order = [shown.index(act) for act in ("1 changed the note of", "2 changed the tags of", "3 changed the tags")]
        assert order == sorted(order)
        await pilot.press("3")
        await wait_for(pilot, lambda: titles.read_notes(run).tags == ())
        assert titles.read_notes(run).note == "after the fix"


async def test_of_several_runs_the_tags_that_all_have_are_edited_and_the_others_stay(five: list[Run]) -> None:
    first, second = five[-1], five[-2]
    titles.retag(first, ["all", "mine"])
    titles.retag(second, ["all", "slow"])
    async with Tiny(RunsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("home", "space", "down", "space")
        await wait_for(pilot, "2 marked")
        await pilot.press("t")
        await wait_for(pilot, "Tags of 2 runs")
        assert pilot.app.screen.query_one(Input).value == "all"
        await pilot.press("ctrl+u", *"new", "enter")
        await wait_for(
            pilot, lambda: "new" in titles.read_notes(first).tags and "new" in titles.read_notes(second).tags
        )
    assert [titles.read_notes(run).tags for run in (first, second)] == [("mine", "new"), ("slow", "new")]


async def test_cells_that_differ_in_their_colour_alone_are_written_anew() -> None:
    def cell(style: str) -> dict[str, list[Text]]:
        return {"row": [Text("3,000", style)]}

    class Shown(Screen[None]):
        def compose(self) -> ComposeResult:
            yield Table()

    async with Tiny(Shown).run_test() as pilot:
        await wait_for(pilot, lambda: pilot.app.screen.query(Table))
        table, columns = pilot.app.screen.query_one(Table), [Column("speed", Text("speed"), 5)]
        for style in ("red", "green"):
            table.fill(columns, cell(style))
            assert table.get_cell("row", "speed").style == style


async def test_columns_order_and_filter_are_chosen_and_kept(five: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(116, 30), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        table = pilot.app.screen.query_one(RunsTable)
        assert "step ms" in table.names
        orders = []
        for _ in table.names:
            await pilot.press("greater_than_sign")
            orders.append(table.order.column)
        assert sorted(orders) == sorted(table.names), "each column that is shown, once"
        await pilot.press("C")
        await wait_for(pilot, "< > move")
        await pilot.press("space", "greater_than_sign", "d")
        await wait_for(pilot, "5 of 5")
        assert not table.chosen
        await pilot.press("C", "j", "space", *["j"] * 12, "enter")
        await wait_for(pilot, lambda: table.chosen)
        chosen = table.chosen
        await pilot.press("u")
        await wait_for(pilot, lambda: not table.chosen)
        await pilot.press("C", "j", "space", *["j"] * 12, "enter")
        await wait_for(pilot, lambda: table.chosen == chosen)
        first = table.names[0]
        assert first == "run"
        assert "state" not in table.names
        await pilot.press("C", "j", "less_than_sign", "enter")
        await wait_for(pilot, lambda: table.names[0] != first)
        await pilot.press("less_than_sign", "I", "slash", *"cnn", "enter")
        await wait_for(pilot, "2 of 5 runs")
        kept = table.names, table.order
        pilot.app.settings.flush()  # type: ignore[attr-defined]
    async with Tiny(RunsScreen).run_test(size=(100, 30), notifications=True) as pilot:
        await wait_for(pilot, "2 of 5 runs")
        table = pilot.app.screen.query_one(RunsTable)
        assert (table.names, table.order) == kept
        await pilot.press("escape")
        await wait_for(pilot, "5 of 5 runs")


async def test_deleting_asks_and_spares_a_running_one(five: list[Run]) -> None:
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("down", "d")
        await wait_for(pilot, "u brings it back")
        await pilot.press("k")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        assert five[3].path.exists()
        await pilot.press("d")
        assert five[3].id in await wait_for(pilot, "Delete 1 run")
        await pilot.press("enter")  # Keep is the answer unless another is chosen
        await wait_for(pilot, "5 of 5")
        assert five[3].path.exists()
        await pilot.press("d")
        await wait_for(pilot, "Delete 1 run")
        await pilot.press("d")
        await wait_for(pilot, "4 of 4 runs")
        assert not five[3].path.exists()
        await pilot.press("up", "d")
        await wait_for(pilot, "Delete 1 run")
        await pilot.press("d")
        await wait_for(pilot, lambda: "deleting it" in told(pilot))
        assert five[4].path.exists()


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
        for text in (
            five[0].id,
            five[1].id,
            "2 of them are hidden by the filter",
            "u brings them back",
            "Quitting frees",
        ):
            assert text in shown, text
        await pilot.press("d")
        await wait_for(pilot, "deleted 2 runs; u brings them back; quitting frees")
        assert [run.id for run in all_runs()] == [run.id for run in reversed(five[2:])]
        await pilot.press("escape", "u")
        await wait_for(pilot, "5 of 5")
        assert five[0].file("result.json").read_bytes() == kept
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        await wait_for(pilot, lambda: screen.table.current_key in (five[0].id, five[1].id))
        await pilot.press("u")
        await wait_for(pilot, "nothing to take back: no run was deleted")
        pilot.app.clear_notifications()  # the message covers the line of the marks
        await pilot.press("space")
        await wait_for(pilot, "1 marked, M clears")
        await pilot.press("M")
        shown = await wait_for(pilot, "5 of 5")
        assert "marked," not in shown
        await pilot.press(*["down"] * 4, "d")
        await wait_for(pilot, "Delete 1 run")
        await pilot.press("d")
        await wait_for(pilot, "4 of 4")
        assert list((home / "runs").glob(".deleted-*"))
    assert sorted(path.name for path in (home / "runs").iterdir()) == [run.id for run in five[1:]]


async def test_what_cannot_be_brought_back_is_deleted_only_after_a_second_question(
    five: list[Run], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trash, "refusal", lambda self, runs: "No space left on device")
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press(*["down"] * 4)
        for answer in ("escape", "k", "d"):
            await pilot.press("d")
            await wait_for(pilot, "Delete 1 run")
            await pilot.press("d")
            await wait_for(pilot, "Delete for good?")
            assert len(all_runs()) == 5
            await pilot.press(answer)
        await wait_for(pilot, "deleted 1 run for good")
        await wait_for(pilot, "4 of 4")
        assert len(list((home / "runs").iterdir())) == 4


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
        await pilot.press("slash", *"oom")
        await wait_for(pilot, "1 of 5 runs")


async def test_it_refreshes_itself(five: list[Run], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_screen, "REFRESH_SECONDS", 0.05)
    async with Tiny(RunsScreen).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "5 of 5")
        await pilot.press("down", "space")
        recorded.write(home, name="20260921-150000-new", gpus=0, seconds=20)
        await wait_for(pilot, "1 marked, M clears  6 of 6")
        five[4].file("result.json").write_text('{"outcome": "ok", "samples_per_second": 77777}')
        await wait_for(pilot, "77,777")
        screen = pilot.app.screen
        assert isinstance(screen, RunsScreen)
        (gone,) = screen.marked.values()
        shutil.rmtree(gone.path)
        await wait_for(pilot, lambda: "5 of 5" in text_of(pilot.app) and "marked" not in text_of(pilot.app))
        assert screen.marked == {}


def test_of_five_hundred_runs_that_have_ended_none_is_read_again(home: Path) -> None:
    model = recorded.write(home, name="20260921-100000-run", gpus=0, seconds=20)
    for number in range(499):
        path = home / "runs" / f"20260921-100000-run-{number + 2}"
        path.mkdir()
        for name in ("preset.yaml", "status.json", "result.json"):
            (path / name).write_bytes(model.file(name).read_bytes())
    known = RunList()
    with opened_below(home / "runs") as opened:
        assert len(known.read()) == 500
    assert len(opened) >= 500
    with opened_below(home / "runs") as opened:
        assert len(known.read()) == 500
    assert opened == []
    assert len(all_runs()) == 500


def test_a_finished_run_is_read_again_only_when_it_changes(five: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    known = RunList()
    first = {entry.run.id: entry for entry in known.read()}
    second = {entry.run.id: entry for entry in known.read()}
    assert all(second[run.id] is first[run.id] for run in five[:4])
    assert second[five[4].id] is not first[five[4].id]
    five[0].file("result.json").write_text('{"outcome": "ok", "samples_per_second": 1}')
    os.utime(five[0].file("result.json"), (1, 1))
    third = {entry.run.id: entry for entry in known.read()}
    assert third[five[0].id].figures["samples_per_second"] == 1
    assert [entry.run.id for entry in ordered(third.values(), "samples/s", True)][-1] == five[0].id


def test_when() -> None:
    noon = time.mktime((2026, 9, 21, 12, 30, 0, 0, 0, -1))
    assert when_text(noon, noon + 60) == " 12:30"
    assert when_text(noon, noon + 86400 * 3) == "Sep 21"
    assert when_text(noon, noon + 86400 * 200) == "  2026"


async def test_comparison(five: list[Run]) -> None:
    async with Tiny(lambda: CompareScreen(five[:3])).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            shown = await wait_for(pilot, "options that differ")
            for word in ("input.batch_size", "train.seed", "throughput", "3,000 samples/s", "+3.3 %"):
                assert word in shown, word
            assert "device.visible" not in shown
            assert "spread of repeats" in shown
        await pilot.press("right", "enter")
        assert tiny(pilot).opened == [("run", five[1])]
        await pilot.press("y")
        await wait_for(pilot, "as Markdown")
        assert "| throughput | 3,000 samples/s |" in pilot.app.clipboard
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, CompareScreen)
