"""The search by words that options, commands, presets and runs have in common."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.presets import saving
from gputui.engine.runs.titles import record, write_note
from gputui.tui.form.option_search import search as options
from gputui.tui.reading.run_columns import matching
from gputui.tui.reading.run_list import RunList
from gputui.tui.screens.palette import Commands
from gputui.tui.screens.presets.screen import PresetsScreen
from gputui.tui.screens.runs import screen as runs_screen
from gputui.tui.screens.runs.run_table import RunsTable
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.word_search import best_first, letters, marked, place, search
from textual.app import SystemCommand
from textual.widgets import OptionList

from tests.support import recorded
from tests.support.form_pilot import opened, write
from tests.support.tiny import wait_for


def found(words: str, *names: str, with_parts: bool = False) -> list[str]:
    hits = search(words, names, lambda name: [place(name), place(f"about {name}s", 1, False, "help")], with_parts)
    return [hit.item for hit in best_first(hits)]


def test_whole_names_come_before_beginnings_and_weaker_matches_count_only_without_stronger_ones() -> None:
    names = ("resnet_samples", "amp_scale", "amp", "loss_amp", "lamp")
    assert found("amp", *names) == ["amp", "amp_scale", "loss_amp"]
    assert found("amp", *names, with_parts=True) == ["amp", "amp_scale", "loss_amp", "resnet_samples", "lamp"]
    assert found("AMP scale", *names) == ["amp_scale"]
    assert found("about", *names) == list(names), "other texts, in the given order"
    assert found("ampl", *names) == ["resnet_samples"], "a part, as no word begins so"
    assert found("ale", "cardamom_apple", "amp_scale") == ["amp_scale"], "a part, although letters of another name fit"
    assert found("rsa", *names) == ["resnet_samples"], "letters, as there is no such part"
    assert found("ssl", *names) == [], "the first letter begins a word"
    assert found("", *names) == list(names)
    assert found("loss-amp", *names) == ["loss_amp"]


def test_abbreviations_of_options_lead_to_them_and_their_letters_are_marked() -> None:
    assert [hit.item.key for hit in options("mxp")] == ["precision.policy"]
    assert [hit.item.key for hit in options("amp")] == ["precision.policy", "precision.tf32"], "nothing with samples"
    assert options("lr")[0].item.key == "train.learning_rate"
    assert options("bach_size")[0].item.key == "input.batch_size", "a letter is missing"
    assert letters("mxp", "mixed_precision") == (0, 2, 6)
    assert letters("mp", "MirroredPolicy") == (0, 8)
    assert letters("b6", "bf16") == (0, 3), "a figure is a part of its word"
    assert letters("ad", "a.b.d") == (0, 4)
    assert letters("ac", "ab.bc") == (), "another word, and not its beginning"
    (hit,) = options("mxp")
    assert list(hit.marks("mixed_precision")) == [(0, 1), (2, 3), (6, 7)]
    assert list(marked("İ Batch, rebatch", ("batch",))) == [(2, 7)], "positions are those of the text"
    assert list(marked("loss_amp", ("amp", "lp"), by_letters=True)) == [(5, 8)], "no letters: l and p are in two words"
    assert list(marked("loss_amp", ("amp", "la"), by_letters=True)) == [(5, 8), (0, 1), (5, 6)]
    assert list(marked("loss_amp", ("la",))) == []


def test_the_title_of_a_run_counts_more_than_its_note(home: Path) -> None:
    noted = recorded.write(home, name="20260921-110000-mlp", seconds=5)
    named = recorded.write(home, name="20260921-100000-cnn", seconds=5)
    named.file("origin.json").write_text(record("cnn", "", {"train.seed": (None, 9)}))
    write_note(noted, "like cnn after the fix")
    entries = RunList().read()
    assert [hit.item.run for hit in best_first(matching(entries, "cnn"))] == [named, noted]
    assert [hit.item.run for hit in matching(entries, "seed=9")] == [named]
    assert [hit.item.run for hit in matching(entries, "0921-10")] == [named], "a part of the id"


async def test_the_palette_has_the_best_command_first_and_finds_words_of_its_help() -> None:
    commands = [
        SystemCommand("Stop", "end the run", print), SystemCommand("Sort right", "the run after it", dict),
        SystemCommand("Run again", "start it", str, False),
    ]  # fmt: skip
    app = SimpleNamespace(get_system_commands=lambda screen: commands if screen is below else [])
    below: Any = SimpleNamespace(app=app)
    palette = Commands(below)
    listed = [(hit.text, hit.command, hit.help) async for hit in palette.discover()]
    assert listed == [("Sort right", dict, "the run after it"), ("Stop", print, "end the run")]
    found = [hit async for hit in palette.search("run")]
    best = sorted(found, key=lambda hit: hit.score, reverse=True)
    assert (best[0].text, best[0].command, best[0].help) == ("Run again", str, "start it")
    assert {hit.text for hit in found} == {"Run again", "Stop", "Sort right"}
    assert best[0].score > best[1].score == best[2].score > 0
    assert [hit.text async for hit in palette.search("right")] == ["Sort right"]


async def test_presets_runs_and_commands_are_searched_alike(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        run = recorded.write(home, name=f"20260921-1{number}0000-cnn", seconds=5)
        run.file("origin.json").write_text(record("cnn", "", {"train.seed": (None, number)}))
    saving.place("aaa").parent.mkdir(parents=True)
    saving.place("aaa").write_text("schema_version: 1\ndescription: like the input-heavy one\n")
    monkeypatch.setattr(runs_screen, "FIRST", 2)
    async with opened((120, 40)) as pilot:

        def top() -> Any:
            return pilot.app.screen

        def stems() -> list[str]:
            return [file.path.stem for file in top().listed] if isinstance(top(), PresetsScreen) else []

        await pilot.press("o")
        await wait_for(pilot, lambda: "input-heavy" in stems())
        await write(pilot, "inhv")
        await wait_for(pilot, lambda: stems() == ["input-heavy"])
        await pilot.press(*["backspace"] * 4)
        await write(pilot, "heavy")
        await wait_for(pilot, lambda: stems() == ["aaa", "input-heavy"])
        assert top().chosen.path.stem == "input-heavy", "the cursor is on the best hit, a name"
        assert underlined(top().query_one(OptionList).highlighted_option.prompt) == ["heavy"]
        await pilot.press("escape", "f4")
        await wait_for(pilot, lambda: isinstance(top(), RunsScreen) and len(top().shown) == 2)
        await pilot.press("slash")
        await write(pilot, "seed=2")
        await wait_for(pilot, lambda: len(top().shown) == 1)
        table = top().query_one(RunsTable)
        assert [words for cell in table.get_row_at(0) if (words := underlined(cell))] == [["seed=2"]]
        await pilot.press("escape")
        await wait_for(pilot, lambda: len(top().shown) == 3 and table.row_count == 2)
        await pilot.press("down")
        await wait_for(pilot, lambda: table.row_count == 3)
        await pilot.press("ctrl+p")
        await write(pilot, "columns choose")
        await wait_for(pilot, "choose the columns")


def underlined(text: Any) -> list[str]:
    return [text.plain[span.start : span.end] for span in text.spans if "underline" in str(span.style)]
