"""Saving from the form: what save as proposes and says, and a file that somebody else has changed meanwhile."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.job import this_machine
from gputui.engine.presets import saving
from gputui.engine.presets.saving import SaveError
from gputui.engine.process import launch
from gputui.tui.app import GputuiApp
from gputui.tui.cli import preset_or_command
from gputui.tui.reading import preset_files
from gputui.tui.screens.dialogs import Ask
from gputui.tui.screens.presets import editor as editing
from gputui.tui.screens.presets import saving as saving_screen
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support.form_pilot import NO_GPU, calm, form, opened, seen, told, write
from tests.support.tiny import wait_for


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("mine.yaml").write_text("input: {batch_size: 48}\n")
    return folder


async def asked(pilot: Pilot[None], *keys: str) -> None:
    """Press keys that lead to a question, and wait until it can be answered."""
    await pilot.press(*keys)
    await wait_for(pilot, lambda: isinstance(pilot.app.screen, Ask))
    await calm(pilot)


async def test_save_as_proposes_the_file_and_says_what_it_writes(project: Path) -> None:
    async with opened((120, 40), GputuiApp(preset_or_command.form_state("mine.yaml", ["batch_size=64"]))) as pilot:
        await pilot.press("S")
        await wait_for(pilot, lambda: "replaces the file ./mine.yaml" in seen(pilot))
        assert pilot.app.screen.query_one(Input).value == "./mine.yaml"
        await write(pilot, "./new/a.yaml")
        await wait_for(pilot, lambda: "makes the folder ./new and writes the new file" in seen(pilot))
        await asked(pilot, "enter")
        assert "There is no folder ./new." in seen(pilot)
        await pilot.press("c")
        await calm(pilot)
        assert not (project / "new").exists()
        await pilot.press("S")
        await wait_for(pilot, lambda: "replaces the file ./mine.yaml" in seen(pilot))
        await write(pilot, "other")  # a plain name, wherever the preset lies
        own = "".join(saving_screen.short(presets.user_folder() / "other.yaml").split())
        await wait_for(pilot, lambda: f"writesthenewfile{own}" in re.sub(r"[\s│]", "", seen(pilot)))
        await pilot.press("escape", "S")
        await wait_for(pilot, lambda: "replaces the file ./mine.yaml" in seen(pilot))
        await write(pilot, "./other.yaml")
        await wait_for(pilot, lambda: "writes the new file ./other.yaml" in seen(pilot))
        await pilot.press("enter")
        await wait_for(pilot, lambda: form(pilot).state.path == project / "other.yaml")
        await calm(pilot)
        assert presets.resolve("other.yaml").options.input.batch_size == 64
        assert preset_files.recent()[0] == project / "other.yaml"
        assert "gputui --preset other.yaml trains it from a shell" in told(pilot)
        form(pilot).load(form(pilot).state.first())
        await pilot.press("S")
        await wait_for(pilot, lambda: "writes the new file" in seen(pilot))
        assert pilot.app.screen.query_one(Input).value == str(presets.user_folder() / "quickstart-2.yaml")


async def test_the_preset_that_a_run_came_from_can_be_updated(project: Path) -> None:
    file = project / "mine.yaml"
    file.write_text("input: {batch_size: 48}  # as in the paper\n")
    preset = presets.resolve("mine.yaml", ["epochs=9"])
    run = runs.create("mine", preset.to_yaml(), launch.origin_of(preset))
    async with opened((120, 40), GputuiApp(preset_or_command.form_state(str(run.file("preset.yaml")), []))) as pilot:
        await asked(pilot, "s")
        assert "a run of ./mine.yaml" in seen(pilot)
        await pilot.press("c")
        await calm(pilot)
        assert presets.resolve("mine.yaml").options.train.epochs != 9
        assert "changed after" not in told(pilot)
        newer = run.file("preset.yaml").stat().st_mtime + 5
        os.utime(file, (newer, newer))
        await asked(pilot, "s")
        assert "changed after that run began" in " ".join(seen(pilot).split())
        file.write_text(file.read_text() + "train: {epochs: 2}\n")  # meanwhile
        await pilot.press("u")
        await wait_for(pilot, lambda: "was changed since it was opened" in told(pilot))
        await asked(pilot, "s")
        await pilot.press("u")
        await wait_for(pilot, lambda: form(pilot).state.path == file)
        assert presets.resolve("mine.yaml").options == preset.options
        assert "as in the paper" in file.read_text()
        assert str(file) in told(pilot), "where it was saved"
    file.unlink()
    state = preset_or_command.form_state(f"run:{run.id}", [])
    assert saving_screen._origin(state) is None


async def test_a_file_that_was_changed_meanwhile_is_asked_about(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "mine.yaml"
    monkeypatch.setenv("EDITOR", "vi")
    async with opened((120, 40), GputuiApp(preset_or_command.form_state("mine.yaml", ["epochs=9"]))) as pilot:
        file.write_text("input: {batch_size: 96}  # theirs\n")
        await asked(pilot, "s")
        assert "was changed since it was opened" in seen(pilot)
        await pilot.press("c")
        await calm(pilot)
        assert file.read_text() == "input: {batch_size: 96}  # theirs\n"
        await asked(pilot, "s")
        await pilot.press("r")
        await wait_for(pilot, lambda: form(pilot).state.texts["input.batch_size"] == "96")
        assert form(pilot).state.texts["train.epochs"] == "2"
        await pilot.press("u")
        await wait_for(pilot, lambda: form(pilot).state.texts["train.epochs"] == "9")
        await asked(pilot, "s")
        await pilot.press("o")
        await wait_for(pilot, lambda: "epochs: 9" in file.read_text())
        await calm(pilot)
        assert "batch_size: 48}  # theirs" in file.read_text()
        assert not form(pilot).state.modified
        file.unlink()
        await asked(pilot, "s")
        assert "is no longer there" in seen(pilot)
        await pilot.press("w")
        await wait_for(pilot, file.exists)
        assert presets.resolve("mine.yaml").options.train.epochs == 9
        # No terminal can be left to an editor here.
        await pilot.press("E")
        await wait_for(pilot, lambda: "cannot be left to an editor" in told(pilot))


def test_names_and_paths_are_understood(project: Path) -> None:
    own = presets.user_folder()
    for text, path in (
        ("a", own / "a.yaml"), ("a.yaml", own / "a.yaml"), ("./a.yaml", Path("a.yaml")),
        ("~nobody-known/a.yaml", Path("~nobody-known/a.yaml")), ("~/a.yaml", Path.home() / "a.yaml"),
        ("./fast.yaml", Path("fast.yaml")),
    ):  # fmt: skip
        assert saving.place(text) == path, text
    for text in ("fast", str(own / "fast.yaml"), "", "a b", "/tmp/a"):
        with pytest.raises(SaveError):
            saving.place(text)


def test_the_editor_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for visual, other, command in (("code --wait", "vi", ["code", "--wait"]), ("", "'my vi' -n", ["my vi", "-n"]),
                                   ("vi '", "", ["vi", "'"])):  # fmt: skip
        monkeypatch.setenv("VISUAL", visual)
        monkeypatch.setenv("EDITOR", other)
        assert editing.editor() == command
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert editing.editor() == []
    for name in ("editor", "sensible-editor", "nano"):  # the first two may ask which editor is meant
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert editing.editor() == [str(tmp_path / "nano")]
