"""The dialogs by their keys: what each answers, where a list of values is placed, and the texts of the help."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from gputui.engine import presets
from gputui.tui.base.glyphs import RICH
from gputui.tui.form.form_state import INFO
from gputui.tui.reading.preset_files import PresetFile
from gputui.tui.screens import dialogs, undoing
from gputui.tui.screens.dialogs import Ask, AskText, ChoiceScreen, Copyable, CopyScreen
from gputui.tui.screens.help import ListScreen
from gputui.tui.screens.presets.screen import preview, prompt
from textual import events
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button, Input, Label, OptionList, Static

from tests.support.form_pilot import told
from tests.support.tiny import Tiny, text_of, wait_for

DONE = object()


async def answers(pilot: Pilot[None], dialog: Any, *pressed: str) -> Any:
    """The dialog's result after these keys; DONE if it is still open, which is then closed."""
    results: list[Any] = []
    pilot.app.push_screen(dialog, results.append)
    await wait_for(pilot, lambda: pilot.app.screen is dialog and dialog.is_mounted, 30)
    await pilot.pause()
    await pilot.press(*pressed)
    await pilot.pause()
    if results:
        return results[0]
    dialog.dismiss(None)
    await wait_for(pilot, lambda: pilot.app.screen is not dialog, 30)
    return DONE


async def test_a_question_is_answered_by_letters_the_arrows_and_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "seen_after_seconds", 0.0)
    words = ("Save", "Save as", "Cancel")
    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        for pressed, result in (
            (["s"], "Save"), (["S"], "Save"), (["c"], "Cancel"), (["enter"], "Cancel"), (["escape"], None),
            (["left", "enter"], "Save as"), (["left", "left", "enter"], "Save"), (["right", "enter"], "Save"),
            (["x"], DONE), (["5"], DONE), (["v"], DONE),
        ):  # fmt: skip
            assert await answers(pilot, Ask("Go [on]?", words), *pressed) == result, pressed
        dialog = Ask("Go [on]?\x1b", words)
        pilot.app.push_screen(dialog)
        shown = await wait_for(pilot, "Go [on]??", 30)
        assert "Save Save as Cancel" in " ".join(shown.split())
        assert [button.name for button in dialog.query(Button)] == list(words)
        assert dialog.focused is dialog.query(Button).last()


async def test_a_question_without_a_need_closes_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogs, "MOOT_SECONDS", 0.01)
    over, asked, calls = threading.Event(), threading.Event(), list[int]()

    def moot() -> str:
        asked.set()
        calls.append(1)
        return "it has [ended]\x1b" if over.is_set() else ""

    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        results: list[Any] = []
        pilot.app.push_screen(dialog := Ask("Stop it?", ("Stop", "Keep"), moot), results.append)
        await wait_for(pilot, asked.is_set, 30)
        assert pilot.app.screen is dialog
        await pilot.app.push_screen(help_over_it := Screen[None]())
        over.set()
        calls.clear()
        await wait_for(pilot, lambda: len(calls) > 3, 30)
        assert (pilot.app.screen, results, told(pilot)) == (help_over_it, [], ""), "it closes when it is seen again"
        pilot.app.pop_screen()
        await wait_for(pilot, lambda: results == [None], 30)
        assert told(pilot) == "it has [ended]?"


async def test_a_text_that_is_refused_stays_in_its_field_with_the_reason() -> None:
    class OnlyWords(AskText):
        def refuse(self, text: str) -> str:
            return "" if text.isalpha() else f"{text!r} is no word\x1b"

    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        dialog, results = OnlyWords("A word", "4"), list[Any]()
        pilot.app.push_screen(dialog, results.append)
        await wait_for(pilot, "A word", 30)
        complaint = dialog.query_one("#complaint", Label)
        assert not complaint.display
        await pilot.press("enter")
        assert (complaint.display, str(complaint.content), results) == (True, "'4' is no word?", [])
        dialog.query_one(Input).value = "four"
        await pilot.press("enter")
        await pilot.pause()
        assert results == ["four"]
        assert await answers(pilot, AskText("Any", "as it was"), "enter") == "as it was"
        assert await answers(pilot, AskText("Any", "as it was"), "escape") is None


async def test_texts_to_copy_are_chosen_by_digits_and_the_first_by_the_key_of_the_list() -> None:
    offered = [Copyable(f"name {at}", f"preview {at}\x1b", lambda: "") for at in range(11)]
    async with Tiny(Screen).run_test(size=(80, 30)) as pilot:
        for pressed, at in (
            (["1"], 0), (["9"], 8), (["0"], 9), (["y"], 0), (["down", "enter"], 1), (["end", "enter"], 10),
        ):  # fmt: skip
            assert await answers(pilot, CopyScreen(offered), *pressed) is offered[at], pressed
        assert await answers(pilot, CopyScreen(offered[:3]), "4") is DONE, "there is no fourth"
        assert await answers(pilot, CopyScreen(offered[:3]), "3") is offered[2]
        assert await answers(pilot, CopyScreen(offered), "escape") is None
        assert await answers(pilot, undoing.UndoScreen(offered), "U") is offered[0]
        pilot.app.push_screen(CopyScreen(offered))
        shown = [" ".join(line.split()) for line in (await wait_for(pilot, "name 10", 30)).split("\n")]
        assert any("1 name 0 preview 0?" in line for line in shown)
        assert any("0 name 9 preview 9?" in line for line in shown)
        assert any("│ name 10 preview 10?" in line for line in shown), "no key has a second meaning"
        await pilot.click(offset=(0, 0))
        await wait_for(pilot, lambda: not isinstance(pilot.app.screen, CopyScreen), 30)


@pytest.mark.parametrize(
    ("row", "offset"),
    [
        (Region(4, 5, 60, 1), (22, 6)),  # below the row
        (Region(4, 18, 60, 1), (22, 19)),  # the last row with room below it: 5 values, and the edges, in 24 rows
        (Region(4, 19, 60, 1), (22, 14)),  # above it
        (Region(50, 5, 30, 1), (44, 6)),  # not over the right edge
    ],
)
async def test_the_values_of_an_option_are_listed_next_to_its_row(row: Region, offset: tuple[int, int]) -> None:
    info = INFO["compile.xla"]
    assert info.fixed_values == ("auto", "true", "false")
    async with Tiny(Screen).run_test(size=(80, 24)) as pilot:
        dialog = ChoiceScreen(info, "true", lambda: (row, 20))
        pilot.app.push_screen(dialog)
        await wait_for(pilot, "false", 30)
        at = dialog.query_one(OptionList)
        assert (at.offset, at.highlighted) == (offset, 1)
        for key, number in (("f", 2), ("a", 0), ("x", 0), ("a", 0)):
            await pilot.press(key)
            assert at.highlighted == number
        assert [" ".join(str(option.prompt).split()) for option in at.options] == ["auto default", "true", "false"]
        dialog.dismiss(None)
        info = INFO["precision.policy"]
        assert info.fixed_values == ("float32", "mixed_float16", "mixed_bfloat16")
        pilot.app.push_screen(dialog := ChoiceScreen(info, "no such value", lambda: (row, 20)))
        await wait_for(pilot, "mixed_float16", 30)
        at = dialog.query_one(OptionList)
        assert at.highlighted == 0, "the first, if the present value is none of them"
        for key, number in (("m", 1), ("m", 2), ("m", 1), ("F", 0), ("k", 2), ("j", 0)):
            await pilot.press(key)
            assert at.highlighted == number, key
        await pilot.click(at)
        await pilot.click(offset=(79, 23))
        await wait_for(pilot, lambda: pilot.app.screen is not dialog, 30)


async def test_the_values_follow_the_row_when_the_screen_below_is_laid_out_again() -> None:
    row = Region(4, 5, 60, 1)

    class Laid(Screen[None]):
        def on_resize(self, event: events.Resize) -> None:
            nonlocal row
            if event.size.width == 100:
                row = Region(40, 9, 36, 1)

    async with Tiny(Laid).run_test(size=(80, 24)) as pilot:
        pilot.app.push_screen(dialog := ChoiceScreen(INFO["compile.xla"], "true", lambda: (row, 20)))
        await wait_for(pilot, "false", 30)
        await pilot.resize_terminal(100, 30)
        await wait_for(pilot, lambda: dialog.query_one(OptionList).offset == (58, 10), 30)


async def test_lines_under_a_title_are_wrapped_and_indented() -> None:
    async with Tiny(Screen).run_test(size=(40, 24)) as pilot:
        pilot.app.push_screen(ListScreen("Faults", ["one\x1b two three four five six seven eight", "[nine]"]))
        await wait_for(pilot, "Faults", 30)
        text = str(pilot.app.screen.query_one(Static).visual)
        assert text.split("\n") == ["Faults", "one? two three four five six", "  seven eight", "[nine]"]
        assert "Faults" in text_of(pilot.app)


# ---- the list of presets --------------------------------------------------------------------------------


def file(**fields: Any) -> PresetFile:
    return PresetFile(presets.SHIPPED / "cnn.yaml", "yours", **fields)


@pytest.mark.parametrize(
    ("fields", "width", "room", "text"),
    [
        ({"text": "images of ten classes"}, 5, 0, "  cnn    images of ten classes"),
        ({"text": "images of ten classes"}, 5, 30, "  cnn    images of ten classes"),
        ({"text": "images of ten classes"}, 5, 29, "  cnn    images of ten …"),
        ({"text": "images", "other": "not a preset"}, 3, 0, "  cnn  not a preset"),
        ({"text": "images", "fault": "no such option\x1b"}, 3, 0, "  cnn  cannot be used: no such option?"),
    ],
)
def test_the_line_of_a_preset(fields: dict[str, Any], width: int, room: int, text: str) -> None:
    assert prompt(file(**fields), width, room, RICH).plain == text


def test_the_preview_of_a_preset_lists_what_differs_from_the_defaults(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: two\ntrain: {epochs: 3}\n")
    lines = preview(path, presets.resolve(str(path))).plain.split("\n")
    assert lines[:5] == ["mine", str(path), "", "two", ""]
    assert lines[5:] == ["train.epochs  3  default 2"]
    path.write_text("description: none\n")
    assert preview(path, presets.resolve(str(path))).plain.split("\n")[3:] == [
        "none",
        "",
        "the defaults, nothing changed",
    ]
    path.write_text("train: {epoch: 3}\n")
    with pytest.raises(presets.PresetError) as wrong:
        presets.resolve(str(path))
    lines = preview(path, wrong.value).plain.split("\n")
    assert lines[2:4] == ["", "cannot be used"]
    assert lines[4:] == [str(problem) for problem in wrong.value.problems]
