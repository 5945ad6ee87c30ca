"""Finding an option in the form: searching, folding, moving; undo and redo over the whole form."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gputui.engine.job import this_machine
from gputui.engine.options import OPTIONS
from gputui.engine.presets import Preset
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.form.form_state import FormState
from gputui.tui.screens.form.changes import LEAST, shared
from gputui.tui.widgets.findings import Findings
from gputui.tui.widgets.option_row import OptionRow
from textual.widget import Widget
from textual.widgets import Static

from tests.support import recorded
from tests.support.bursts import answered, burst
from tests.support.form_pilot import NO_GPU, SIZES, form, go, opened, seen, settled, told, write
from tests.support.tiny import wait_for


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


async def test_search_narrows_and_escape_shows_all() -> None:
    async with opened() as pilot:
        for size in reversed(SIZES):
            await pilot.resize_terminal(*size)
            await burst(pilot, "/jit_compile")
            await answered(pilot)
            assert [row.key for row in form(pilot).options.rows.values() if row.display] == ["compile.xla"]
            assert not any(heading.display for heading in form(pilot).query(".heading"))
            (line,) = [line for line in seen(pilot).split("\n") if " compile.xla " in line and "auto" in line]
            assert "also jit_compile" in line
            await pilot.press("enter")
            await pilot.pause()
            assert form(pilot).options.rows["compile.xla"].has_focus
            await pilot.press("escape")
            await pilot.pause()
            assert "steps_per_execution" in seen(pilot) or size == (80, 24)
            assert all(heading.display for heading in form(pilot).query(".heading"))
            assert not form(pilot).query_one("#search").display
        await burst(pilot, "/memory")  # what has the word in its own name stands first
        await answered(pilot)
        lines = [line for line in seen(pilot).split("\n") if ".batch_size " in line or ".memory_growth " in line]
        assert ["batch" in line for line in lines[:2]] == [False, True]
        assert "device.memory_growth  calls" in str(form(pilot).query_one("#help", Static).content)
        await pilot.press("escape")
        await pilot.pause()
        focused = pilot.app.focused
        assert isinstance(focused, OptionRow)
        assert str(form(pilot).query_one("#help", Static).content).startswith(focused.key)
        await burst(pilot, "/batch_zise")
        await answered(pilot)
        await pilot.press("enter", "down")
        await pilot.pause()
        for part in ("no option matches batch_zise", "did you mean batch_size?", "escape: all options"):
            assert part in seen(pilot), part
        await pilot.press("escape")
        await pilot.pause()
        assert "no option matches" not in seen(pilot)
        assert isinstance(pilot.app.focused, OptionRow)


async def test_moving_and_folding() -> None:
    async with opened() as pilot:
        options = form(pilot).options
        await pilot.press("down", "j")
        assert options.rows["compile.xla"].has_focus
        await pilot.press("pagedown")
        assert options.rows["input.batch_size"].has_focus
        await pilot.press("end")
        assert options.rows[OPTIONS[-1].key].has_focus
        await pilot.press("down", "home", "up")
        assert options.rows["precision.policy"].has_focus
        await go(pilot, "device.visible")
        assert not options.rows["device.numa"].display
        await pilot.press(*["down"] * 5)
        assert "enter folds or unfolds" in seen(pilot)
        await pilot.press("enter", "down")
        assert options.rows["device.inter_op_threads"].has_focus
        await write(pilot, "2")
        await pilot.press("enter", "up", "space")  # folded, it says that there is a change in it
        await pilot.pause()
        assert "threads, NUMA and …  1 changed" in seen(pilot)
        assert not options.rows["device.numa"].display
        await pilot.press("home", "right")  # a change elsewhere leaves it folded
        await pilot.pause()
        assert not options.rows["device.numa"].display
        row = await go(pilot, "workload.entry")
        assert row.display
        assert row.has_focus
        await pilot.press("slash")
        await write(pilot, "numa")
        await pilot.press("enter", "left")
        assert form(pilot).state.texts["device.numa"] == "off"
        await pilot.press("escape")
        await pilot.pause()
        assert options.rows["device.numa"].has_focus
        assert options.rows["device.numa"].display
        for size, columns in (((60, 24), 1), ((80, 24), 2), ((120, 40), 3), ((120, 80), 2), ((200, 60), 2)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            lefts = {row.region.x for row in options.rows.values() if row.display}
            assert len(lefts) == columns, size
            assert max(row.region.right for row in options.rows.values() if row.display) <= size[0]


async def test_small_terminals_show_what_concerns_the_gpu_and_the_speed_at_once() -> None:
    async with opened() as pilot:
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        options = form(pilot).options
        for key in ("precision.policy", "compile.xla", "input.batch_size", "strategy.kind", "device.memory_growth"):
            assert options.region.contains_region(options.rows[key].region), key
        for part in (
            " steps_per_execution 1 step ",
            " kind                single",
            " memory_growth       auto",
            " batch_size          32 samples",
        ):
            assert part in seen(pilot), part
        entry, last = options.rows["workload.model"].region, options.rows["input.one_batch"].region
        assert (entry.width, entry.y > last.y) == (options.scrollable_content_region.width, True), "one column below"
        order = [stop.group for stop in options.shown]
        assert order.index("strategy") > order.index("input"), "the keys go through one column, then the other"
        await go(pilot, "strategy.communication")
        await pilot.press("right", "right", "right")
        await pilot.pause()
        assert " communication  ‹ hierarchical_copy ›" in seen(pilot), "a long value gets the blanks behind the name"


async def test_the_focused_option_stays_in_view_if_remarks_appear() -> None:
    async with opened() as pilot:
        row = await go(pilot, "train.optimizer")
        assert row.region.bottom == form(pilot).options.region.bottom, "the last row on the screen"
        form(pilot).put({"input.batch_size": "0"}, "a test")
        await wait_for(pilot, lambda: form(pilot).query_one("#findings").display)
        await wait_for(pilot, lambda: form(pilot).options.region.contains_region(row.region))


def test_the_columns_of_changes_are_as_wide_as_their_values_where_there_is_room() -> None:
    assert shared(100, [12, 30, 5]) == [12, 30, LEAST]
    assert shared(60, [12, 90, 5]) == [12, 38, LEAST]


def scrolled(text: Widget, row: int) -> bool:
    return text.scroll_y == row


async def test_undo_and_the_list_of_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("compile: {xla: true}\ntrain: {seed: 3}\n")
    async with opened() as pilot:
        screen = form(pilot)
        texts = screen.state.texts
        for key in ("m", "f", "F"):
            await pilot.press(key)
            await wait_for(pilot, lambda: told(pilot) == "no errors or warnings")
            pilot.app.clear_notifications()
        screen.put({"input.batch_size": "0", "train.epochs": "0", "train.seed": "x"}, "three wrong ones")
        at = ["input.batch_size", "train.epochs", "train.seed"]
        assert [remark.keys[0] for remark in screen.remarks] == at
        for begin, key, to in (
            ("device.visible", "f", 0), (at[0], "f", 1), (at[2], "f", 0), ("device.visible", "F", 2), (at[0], "F", 2),
            (at[2], "F", 1),
        ):  # fmt: skip
            await go(pilot, begin)
            await pilot.press(key)
            assert screen.options.last_key == at[to], (begin, key)
        for key in ("m", "tab"):
            await pilot.press(key)
            assert screen.query_one(Findings).has_focus
            await pilot.press(key)
            assert screen.options.rows[at[1]].has_focus, "back where it was"
        await pilot.press("u")
        await wait_for(pilot, lambda: not screen.state.modified)
        pilot.app.clear_notifications()
        await go(pilot, "strategy.kind")
        text = screen.query_one("#help-scroll")
        await wait_for(pilot, lambda: text.max_scroll_y > 4)
        for key, row in (("right_square_bracket", 4), ("left_square_bracket", 0), ("right_square_bracket", 4)):
            await pilot.press(key)
            await wait_for(pilot, partial(scrolled, text, row))
        await go(pilot, "precision.policy")
        await wait_for(pilot, partial(scrolled, text, 0))  # the help of another option begins at its first line
        await pilot.press("c")
        assert "in the file" in await wait_for(pilot, "0 not saved  * 8 not the default"), "no heading is cut"
        pilot.app.set_keymap({"delete": "ctrl+e"})
        await pilot.press("space")
        assert told(pilot) == "that is how it stands in the file; ctrl+e sets it to the default"
        pilot.app.set_keymap({})
        pilot.app.clear_notifications()
        await pilot.press("escape")
        await go(pilot, "input.batch_size")
        await write(pilot, "128")
        await pilot.press("enter", "pagedown", "right")  # all digits of a number are one step of undo
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("u", "u")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("32", "single")
        await wait_for(pilot, lambda: screen.options.rows["input.batch_size"].has_focus)
        assert not screen.state.modified
        await pilot.press("u")
        await wait_for(pilot, lambda: "nothing to be undone" in told(pilot))
        await pilot.press("ctrl+y", "ctrl+y")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("U")
        await wait_for(pilot, "2 input.batch_size")
        await pilot.press("2")  # with all that was changed after it
        await wait_for(pilot, lambda: not screen.state.modified)
        await pilot.press("ctrl+y")
        assert (texts["input.batch_size"], texts["strategy.kind"]) == ("128", "one_device")
        await pilot.press("c")
        shown = await wait_for(pilot, "2 not saved  * 9 not the default")
        lines = [line.split() for line in shown.split("\n") if line.startswith(" +")]
        assert lines == [["+", "input.batch_size", "128", "32", "64"],
                         ["+", "strategy.kind", "one_device", "single", "single"]]  # fmt: skip
        for key, count, kind in (("u", 0, "single"), ("ctrl+y", 2, "one_device")):
            await pilot.press(key)
            await wait_for(pilot, f"{count} not saved")
            assert texts["strategy.kind"] == kind
        await pilot.press("space")
        await wait_for(pilot, "1 not saved  * 9 not the default")
        await pilot.press("space", "d")
        await wait_for(pilot, "2 not saved  * 8 not the default")
        assert texts["input.batch_size"] == "64"
        await pilot.press("u", "down", "space")
        shown = await wait_for(pilot, "1 not saved  * 8 not the default")
        assert "strategy.kind " in shown, "it stays in its place, though it is the default and that of the file"
        await pilot.press("d")
        assert "1 not saved" in seen(pilot), "it is the default"
        await pilot.press("space", "enter")
        assert texts["input.batch_size"] == "128"
        await wait_for(pilot, lambda: screen.options.rows["strategy.kind"].has_focus)

        screen.load(FormState.open(file))  # also the opening of a preset is undone, with what was not saved
        await settled(pilot)
        await pilot.press("u")
        await settled(pilot)
        assert screen.state.name == "quickstart"
        assert screen.state.texts["input.batch_size"] == "128"
        assert "undone: opening mine; the form now holds quickstart; ctrl+y takes that back" in told(pilot)
        await pilot.press("ctrl+y")
        await settled(pilot)
        assert screen.state.texts["train.seed"] == "3"
        await pilot.press("c")
        assert "mine" in await wait_for(pilot, "0 not saved  * 2 not the default")


async def test_a_restart_with_another_batch_size_takes_few_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the live view at most 8 with three digits, typed at once where a screen is open; a hint takes 2."""
    run = recorded.write(home, gpus=0, seconds=20, outcome="oom")
    launched: list[int] = []

    def start(preset: Preset, warm: object) -> tuple[Run, object]:
        launched.append(preset.options.input.batch_size)
        return run, object()

    monkeypatch.setattr("gputui.tui.screens.starting.start", start)
    app = GputuiApp(watch=run)
    async with app.run_test(size=(80, 24)) as pilot:
        for keys, size in (("a \r", 256), ("e /b\r128\x12", 128), ("\x1bOQ /b\r96\x12", 96)):
            await wait_for(pilot, "a puts batch_size=256 into the form")
            first, rest = keys.split(" ")
            assert len(rest) <= 7
            await burst(pilot, first)
            await wait_for(pilot, lambda: app.screen is app.form and app.form.focused)
            await settled(pilot)
            await answered(pilot)
            await burst(pilot, *rest)
            await wait_for(pilot, partial(launched.__contains__, size))
