"""What the form shows of itself as text: YAML, command, code, its help, and what it offers when it opens."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.job import this_machine
from gputui.tui.app import GputuiApp
from gputui.tui.form.form_state import FormState
from gputui.tui.screens.form.changes import TextScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.widgets.option_row import OptionRow, ValueInput
from textual.pilot import Pilot
from textual.widgets import Static, TextArea

from tests.support.form_pilot import LARGE, NO_GPU, SIZES, SMALL, calm, each_anew, form, go, opened, seen, settled, told
from tests.support.tiny import wait_for

AMP = ["precision.policy", "precision.tf32"]  # by its other name and its help; no option of samples


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


async def yaml_command_and_code_are_one_key_away(pilot: Pilot[None]) -> None:
    await go(pilot, "compile.xla")
    await pilot.press("right")
    turn = "right_square_bracket"
    for key, part in (("y", "schema_version: 1"), (turn, "--set compile.xla=true"), (turn, "import tensorflow")):
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(pilot.app.screen, TextScreen)
        assert part in pilot.app.screen.query_one(TextArea).text
    await pilot.press("y")
    assert "jit_compile=True" in pilot.app.clipboard
    await pilot.press("escape")
    await pilot.pause()
    assert pilot.app.screen is form(pilot)


async def help_opens_and_closes(pilot: Pilot[None]) -> None:
    for key, size in (("question_mark", (80, 24)), ("f1", (80, 24)), ("question_mark", (120, 40))):
        await pilot.resize_terminal(*size)
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(pilot.app.screen, HelpScreen)
        assert "start the training" in seen(pilot)  # the keys of the screen come first
        page = str(pilot.app.screen.query_one(Static).content)
        assert "differs from the default" in page
        assert "F2" in page
        assert "F2, 1" not in page  # a digit begins a value here
        assert "super" not in page
        await pilot.press(key)
        await pilot.pause()
        assert not isinstance(pilot.app.screen, HelpScreen)


async def foreign_text_is_shown_as_it_is(pilot: Pilot[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "odd.yaml"
    file.write_text('description: "[red]not red[/] \\e[31m [/nothing]"\nworkload: {data: "npz:[b]/x[/b].npz"}\n')
    form(pilot).load(FormState.open(file))
    await settled(pilot)
    await go(pilot, "workload.data")
    text = seen(pilot)
    assert "[red]not red[/] ?[31m [/nothing]" in text
    assert "npz:[b]/x[/b].npz" in text
    assert "there is no file [b]/x[/b].npz" in text
    await pilot.press("y")
    await pilot.pause()
    await pilot.press("escape", "r")
    await calm(pilot)


async def test_a_run_going_on_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.create("busy", presets.resolve("quickstart").to_yaml())
    async with opened() as pilot:
        await calm(pilot)
        assert f"A run is running: r1 {runs.title(run)}; F3 shows it" in told(pilot)


async def test_the_form_behind_a_watched_run_is_built_when_it_is_looked_at() -> None:
    run = runs.create("seen", presets.resolve("quickstart").to_yaml())
    async with opened(app=GputuiApp(watch=run)) as pilot:
        assert pilot.app.screen is not form(pilot)
        assert not form(pilot).query(OptionRow)
        await pilot.press("f2")
        await settled(pilot)
        assert pilot.app.screen is form(pilot)
        assert len(form(pilot).query(OptionRow)) > 50
        assert form(pilot).focused is next(iter(form(pilot).options.rows.values()))


async def all_keys_of_the_footer_fit_at_80_columns(pilot: Pilot[None]) -> None:
    await settled(pilot)
    last = seen(pilot).rstrip("\n").split("\n")[-1]
    assert "q Quit" in last

    def shown_while_a_run_is_running() -> bool:
        pilot.app.running_count = 1  # type: ignore[attr-defined]  # the watch over runs sets it back to 0
        return "q Quit, runs go on" in seen(pilot)

    await wait_for(pilot, shown_while_a_run_is_running)
    pilot.app.running_count = 0  # type: ignore[attr-defined]
    assert last.rstrip().endswith("? Help"), last
    assert all(word in last for word in ("r Start", "/ Search", "o Open", "s Save", "y YAML", "? Help")), last


async def test_texts_and_help_are_one_key_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            *((size, yaml_command_and_code_are_one_key_away) for size in SIZES),
            (SMALL, help_opens_and_closes),
            (LARGE, partial(foreign_text_is_shown_as_it_is, tmp_path=tmp_path, monkeypatch=monkeypatch)),
            (SMALL, all_keys_of_the_footer_fit_at_80_columns),
        )


async def test_forty_columns_and_ten_rows_are_usable() -> None:
    async with opened((40, 10)) as pilot:
        shown = seen(pilot).split("\n")
        assert sum(row[3:].startswith(("policy ", "tf32 ")) for row in shown) == 2, "more than one option"
        assert shown[7].startswith(" precision.policy  number format"), "the help in one line"
        await pilot.press("question_mark")
        await wait_for(pilot, "enter, space")
        rows = [row.strip(" │╭╮╰╯─") for row in seen(pilot).split("\n")]
        at = next(number for number, row in enumerate(rows) if "change: switch" in row)
        assert rows[at + 1].startswith("choose or write"), "no line is divided anew"
        await pilot.press("escape", "T")
        assert "esc leaves" in await wait_for(pilot, "enter starts it")


async def test_a_field_says_what_enter_does() -> None:
    async with opened() as pilot:
        await pilot.press("slash")
        await wait_for(pilot, lambda: "⏎ Accept" in seen(pilot).split("\n")[-1])
        for character in "amp":
            await pilot.press(character)
        await wait_for(pilot, lambda: [k for k, row in form(pilot).options.rows.items() if row.display] == AMP)


async def test_a_field_offers_values_while_one_types() -> None:
    async with opened() as pilot:
        row = await go(pilot, "device.visible")
        await pilot.press("enter", "ctrl+u", "f", "r")
        field = row.query_one(ValueInput)
        await wait_for(pilot, lambda: field._suggestion == "free:1")
        await pilot.press("right", "enter")
        await wait_for(pilot, lambda: form(pilot).state.texts["device.visible"] == "free:1")
        assert "device.visible" not in form(pilot).state.errors
