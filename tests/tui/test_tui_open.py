"""The open screen: what it lists, paths with completion, recent files, and folders that are large or do not answer."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from gputui.engine.job import this_machine
from gputui.engine.presets import saving
from gputui.tui import app
from gputui.tui.form.form_state import FormState
from gputui.tui.reading import preset_files
from gputui.tui.reading.preset_files import Group, Listing
from gputui.tui.screens.presets import screen as presets
from gputui.tui.screens.presets.screen import PresetsScreen
from textual.pilot import Pilot
from textual.widgets import Input

from tests.support.bursts import answered, burst
from tests.support.form_pilot import NO_GPU, form, opened, seen, told
from tests.support.opened_files import opened_below
from tests.support.tiny import wait_for

ENTER = "\r"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two presets, and one in a folder below."""
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)
    folder = tmp_path / "project"
    (folder / "sweeps" / "deep").mkdir(parents=True)
    monkeypatch.chdir(folder)
    sizes = {"mine.yaml": 48, "second.yaml": 96, "sweeps/large.yaml": 512, "sweeps/larger.yaml": 1024}
    for name, size in sizes.items():
        Path(name).write_text(f"description: batches of {size}\ninput: {{batch_size: {size}}}\n")
    Path("compose.yaml").write_text("services: {a: 1}\n")
    return folder


def batch_size(pilot: Pilot[None]) -> str:
    return form(pilot).state.texts["input.batch_size"]


async def test_a_preset_of_this_folder_opens_with_two_keys_and_the_choice(project: Path) -> None:
    async with opened((120, 40)) as pilot:
        await burst(pilot, "o", ENTER)  # in one packet
        await answered(pilot)
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
        assert form(pilot).state.path == project / "mine.yaml"
        await burst(pilot, "o", "s", "e", "c", ENTER)
        await answered(pilot)
        await wait_for(pilot, lambda: batch_size(pilot) == "96")
        # A path: tab completes a folder, then as far as the names agree, then the one under the cursor.
        await pilot.press("o")
        field = pilot.app.screen.query_one("#open", Input)
        assert "not a preset" in seen(pilot)
        assert "Filter" not in seen(pilot)  # its key begins a path
        await burst(pilot, *"./sw")
        await wait_for(pilot, lambda: "sweeps/" in seen(pilot))
        await pilot.press("tab")
        assert field.value == "./sweeps/"
        await wait_for(pilot, lambda: "large.yaml" in seen(pilot))
        await pilot.press("l", "tab")
        assert field.value == "./sweeps/large"
        await pilot.press("down", "tab")
        assert field.value == "./sweeps/larger.yaml"
        await pilot.press("enter")
        await wait_for(pilot, lambda: batch_size(pilot) == "1024")
        # What was opened is among the recent ones, and a path that is pasted needs no list.
        await pilot.press("o")
        await wait_for(pilot, lambda: "recent" in seen(pilot) and "larger.yaml" in seen(pilot))
        await burst(pilot, *str(project / "sweeps/large.yaml"), ENTER)
        await wait_for(pilot, lambda: batch_size(pilot) == "512")
        await pilot.press("o")
        await burst(pilot, *"./none.yaml", ENTER)
        await wait_for(pilot, lambda: "no such file" in told(pilot))


async def test_a_description_in_the_list_ends_at_a_word(project: Path) -> None:
    words = " ".join(f"word{number}" for number in range(10, 40))
    Path("mine.yaml").write_text(f"description: {words}\n")
    async with opened((120, 40)) as pilot:
        await pilot.press("o")
        await wait_for(pilot, lambda: re.search(r" word\d\d … +│", seen(pilot)))
        (line,) = [line for line in seen(pilot).splitlines() if "mine" in line and "word10" in line]
        assert len(line.partition("│")[0]) == 60, "it keeps within the list"


async def test_a_folder_that_does_not_answer_leaves_its_part_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hung, read = threading.Event(), preset_files.read

    def reading(group: Group, folder: Path | None = None) -> Listing:
        if group == "here":
            hung.wait(200)
        return read(group, folder)

    monkeypatch.setattr(preset_files, "read", reading)
    monkeypatch.setattr(presets, "ARRIVE_SECONDS", 0.3)
    saving.place("own").parent.mkdir(parents=True)
    saving.place("own").write_text("extends: quickstart\ntrain: {epochs: 9}\n")
    async with opened((120, 40)) as pilot:
        await pilot.press("o")
        await wait_for(pilot, lambda: "shipped with gputui" in seen(pilot))
        assert "mine.yaml" not in seen(pilot)
        await pilot.press("down")
        at = pilot.app.screen
        assert isinstance(at, PresetsScreen)
        chosen = at.chosen
        hung.set()
        await wait_for(pilot, lambda: "mine.yaml" in seen(pilot))
        assert at.chosen == chosen, "the cursor stays where it is"


def test_large_folders_are_read_in_part(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"{number:05}.yaml").touch()
    with opened_below(tmp_path) as opened_files:
        listing = preset_files.in_folder(tmp_path, "here")
    assert len(opened_files) == preset_files.MOST_FILES
    assert len(listing.files) == preset_files.MOST_FILES
    assert "9800 more YAML files" in listing.note
    assert "cannot be read: No such file" in preset_files.in_folder(tmp_path / "none", "path").note


def test_recent_files_are_few_and_survive_damage(tmp_path: Path) -> None:
    for number in range(30):
        preset_files.note(tmp_path / f"{number}.yaml").join()
    preset_files.note(tmp_path / "20.yaml").join()
    found = preset_files.recent()
    assert len(found) == preset_files.MOST
    assert [path.name for path in found[:3]] == ["20.yaml", "29.yaml", "28.yaml"]
    for damage in ("", "[", '{"a": 1}', json.dumps([1, None, "relative.yaml", "/a\n", "/" + "x" * 9999, "/good.yaml"])):
        preset_files.file().write_text(damage)
        assert preset_files.recent() == ([Path("/good.yaml")] if "good" in damage else [])
    preset_files.file().unlink()
    preset_files.file().mkdir()
    preset_files.note(tmp_path / "1.yaml").join()  # is no reason to fail
    assert preset_files.recent() == []


def test_the_preset_of_the_last_time_that_cannot_be_opened_or_does_not_answer_is_left(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    preset_files.note(project / "mine.yaml").join()
    hung, refused = threading.Event(), PermissionError(13, "Permission denied")

    def refuse(*_: Path) -> None:
        raise refused

    def wrong(_: Path) -> None:
        raise ZeroDivisionError

    def hang(_: Path) -> None:
        hung.wait()

    monkeypatch.setattr(preset_files, "OPENING_SECONDS", 60.0)
    last = app._last_opened()
    assert last is not None
    assert last.name == "mine"
    with monkeypatch.context() as failing:
        failing.setattr(Path, "is_file", refuse)
        assert app._last_opened() is None
    monkeypatch.setattr(FormState, "open", wrong)
    assert app._last_opened() is None
    monkeypatch.setattr(FormState, "open", hang)
    monkeypatch.setattr(preset_files, "OPENING_SECONDS", 0.1)
    assert app._last_opened() is None
    hung.set()
    assert capfd.readouterr().err == ""


def test_a_path_is_completed_as_far_as_names_agree() -> None:
    names = ["large.yaml", "larger.yaml", "deep/"]
    for typed, whole in (("./l", "./large"), ("./larger", "./larger.yaml"), ("./d", "./deep/"), ("./x", "./x"),
                         ("~/a/l", "~/a/large"), ("/", "/")):  # fmt: skip
        assert preset_files.completed(typed, names) == whole, typed
