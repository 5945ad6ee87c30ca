"""Presets in the screens: the list, paths, recent files, and the questions before something is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.doors.engine import presets, saving, this_machine
from tests.doors.tui import Ask, AskText, FormState, GputuiApp, Listing, PresetsScreen, app, preset_files
from tests.support.form_pilot import NO_GPU, SIZES, SMALL, calm, each_anew, form, go, opened, seen, told, write
from tests.support.tiny import wait_for

_listening: list[tuple[str, list[str]]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _listening and isinstance(arguments[0], str | os.PathLike):
        path = os.fspath(arguments[0])
        for below, found in _listening:
            if isinstance(path, str) and path.startswith(below):
                found.append(path)


@contextlib.contextmanager
def opened_below(folder: Path) -> Iterator[list[str]]:
    """The paths below the folder that this process opens while the context lasts, in their order."""
    if not _listening:
        _listening.append(("\0", []))  # a hook stays until the process ends
        sys.addaudithook(_heard)
    found: list[str] = []
    _listening.append((f"{folder}/", found))
    try:
        yield found
    finally:
        _listening.remove((f"{folder}/", found))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(this_machine, "read", lambda: NO_GPU)


def point(screen: PresetsScreen, stem: str) -> None:
    """Put the cursor of the list on a preset."""
    entries = screen.query_one(OptionList)
    path = next(file.path for file in screen.listed if file.path.stem == stem)
    entries.highlighted = entries.get_option_index(str(path))


# ---- presets -------------------------------------------------------------------------------------


async def presets_are_listed_with_what_they_change(pilot: Pilot[None]) -> None:
    own = saving.place("mine")
    own.unlink(missing_ok=True)
    saving.save_as(presets.defaults(["epochs=7"]), own)
    saving.place("bad").write_text("train: {epochs: none at all}\n")
    await pilot.press("o")
    await calm(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, PresetsScreen)
    text = seen(pilot)
    assert "quickstart" in text
    assert "yours" in text
    await wait_for(pilot, lambda: "input.batch_size" in seen(pilot))
    point(screen, "bad")
    await wait_for(pilot, lambda: "does not fit" in seen(pilot))
    await write(pilot, "no such preset")
    await wait_for(pilot, lambda: screen.chosen is None)
    screen._previewed((own, presets.defaults()))  # its file was read too late
    await pilot.press("escape")
    await wait_for(pilot, lambda: screen.chosen is not None)
    point(screen, "mine")
    await pilot.press("enter")
    await calm(pilot)
    assert form(pilot).state.path == own
    assert form(pilot).state.preset.options.train.epochs == 7
    assert pilot.app.screen is form(pilot)


async def the_cursor_stays_where_it_was_moved_while_files_are_listed(pilot: Pilot[None]) -> None:
    """As on a slow disk: some groups are not listed yet when the user moves the cursor."""
    await pilot.press("o")
    await calm(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, PresetsScreen)
    await wait_for(pilot, lambda: not screen._awaited)
    screen._awaited, screen._select = {"here"}, presets.SHIPPED / "quickstart.yaml"
    screen._show()
    await calm(pilot)
    point(screen, "mine")
    await calm(pilot)
    screen._listed("here", Listing())
    assert screen.chosen is not None
    assert screen.chosen.path.stem == "mine"


async def presets_of_the_current_folder_are_listed_and_opened_with_their_paths(
    pilot: Pilot[None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("preset.yaml", "workload: {data: 'npz:a.npz'}"),
        ("compose.yaml", "services: {a: 1}"),
        ("broken.yaml", "a: ["),
    ):
        Path(name).write_text(text + "\n")
    await pilot.press("o")
    await calm(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, PresetsScreen)
    here = {one.path.name: one.other for one in screen.listed if one.group == "here"}
    assert here == {"preset.yaml": "", "broken.yaml": "not a preset", "compose.yaml": "not a preset"}
    assert screen.chosen is not None
    assert screen.chosen.path == tmp_path / "preset.yaml"
    await pilot.press("enter")
    await calm(pilot)
    assert form(pilot).state.path == tmp_path / "preset.yaml"
    assert form(pilot).state.texts["workload.data"] == "npz:a.npz"


@pytest.mark.usefixtures("no_gpu")
async def test_presets_are_duplicated_deleted_listed_and_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as pilot:
        of_the_folder = presets_of_the_current_folder_are_listed_and_opened_with_their_paths
        await each_anew(
            pilot,
            (SMALL, duplicate_and_delete),
            *((size, presets_are_listed_with_what_they_change) for size in SIZES),
            (SMALL, the_cursor_stays_where_it_was_moved_while_files_are_listed),
            (SMALL, partial(of_the_folder, tmp_path=tmp_path, monkeypatch=monkeypatch)),
        )


async def duplicate_and_delete(pilot: Pilot[None]) -> None:
    await pilot.press("o", "tab")
    await calm(pilot)
    await pilot.press("d")
    await calm(pilot)
    assert presets.resolve("quickstart")
    screen = pilot.app.screen
    assert isinstance(screen, PresetsScreen)
    screen._previews.clear()  # as where the file has not been read so far
    await pilot.press("S")
    await pilot.pause()
    assert isinstance(pilot.app.screen, AskText)
    assert "enter accepts, esc leaves" in seen(pilot)
    await pilot.press("enter")
    await calm(pilot)
    own = presets.user_folder() / "quickstart-copy.yaml"
    schema, _, shipped = (presets.SHIPPED / "quickstart.yaml").read_text().partition("\n")
    assert own.read_text() == shipped, f"without the line {schema}, as the file is not there"
    await pilot.press("d")
    await pilot.pause()
    assert isinstance(pilot.app.screen, Ask)
    await pilot.press("c")
    await calm(pilot)
    assert own.exists()
    await pilot.press("d")
    await pilot.pause()
    await pilot.press("d")
    await calm(pilot)
    assert not own.exists()
    assert "deleted quickstart-copy; u in the list brings it back" in told(pilot)
    await pilot.press("U")
    await wait_for(pilot, lambda: re.search(r"deleted quickstart-copy +\d.* ago", seen(pilot)))
    await pilot.press("escape")
    await pilot.press("u")
    await calm(pilot)
    schema, _, shipped = (presets.SHIPPED / "quickstart.yaml").read_text().partition("\n")
    assert own.read_text() == shipped, f"without the line {schema}, as the file is not there"
    assert screen.chosen is not None
    assert screen.chosen.path == own
    await pilot.press("u")
    assert "nothing to take back: no preset" in told(pilot)


async def save_over_an_own_preset_keeps_its_comments(pilot: Pilot[None]) -> None:
    own = saving.place("mine")
    own.parent.mkdir(parents=True)
    own.write_text("# mine\ntrain:\n  epochs: 3  # few\n")
    form(pilot).load(FormState.open(own))
    await go(pilot, "train.epochs")
    await write(pilot, "5")
    await pilot.press("enter", "s")
    await calm(pilot)
    assert own.read_text() == "# mine\ntrain:\n  epochs: 5  # few\n"
    assert not form(pilot).state.modified
    assert "not saved" not in seen(pilot)
    await pilot.press("o")
    await calm(pilot)
    await wait_for(pilot, lambda: re.search(r"train\.epochs +5 ", seen(pilot)))
    await pilot.press("tab", "u")
    await wait_for(pilot, lambda: "mine is as it was before it was saved" in told(pilot))
    pilot.app.clear_notifications()
    await wait_for(pilot, lambda: re.search(r"train\.epochs +3 ", seen(pilot)))
    assert own.read_text() == "# mine\ntrain:\n  epochs: 3  # few\n"
    await pilot.press("escape")
    await wait_for(pilot, "+ 1 not saved")  # the form differs from its file again
    await pilot.press("s")
    await calm(pilot)
    own.write_text("train: {epochs: 7}\n")
    await pilot.press("o")
    await calm(pilot)
    await pilot.press("tab", "u")
    await wait_for(pilot, lambda: "was changed since it was saved, and keeps that change" in told(pilot))
    assert own.read_text() == "train: {epochs: 7}\n"
    await pilot.press("escape")
    await calm(pilot)


async def saving_a_shipped_preset_asks_for_a_name(pilot: Pilot[None]) -> None:
    await go(pilot, "train.epochs")
    await write(pilot, "5")
    await pilot.press("enter", "s")
    await pilot.pause()
    assert isinstance(pilot.app.screen, AskText)
    assert "enter accepts, esc leaves" in seen(pilot)
    await write(pilot, "fast")
    await pilot.press("enter")
    await pilot.pause()
    assert "ships with gputui" in seen(pilot)
    await write(pilot, "er")
    await pilot.press("enter")
    await calm(pilot)
    assert presets.resolve("faster").options.train.epochs == 5
    assert form(pilot).state.name == "faster"


async def a_wrong_form_is_not_saved(pilot: Pilot[None]) -> None:
    await go(pilot, "train.epochs")
    await write(pilot, "0")
    await pilot.press("enter", "S")
    await calm(pilot)
    assert pilot.app.screen is form(pilot)


async def an_existing_file_is_not_overwritten_unasked(pilot: Pilot[None]) -> None:
    own = saving.place("kept")
    saving.save_as(presets.defaults(["epochs=7"]), own)
    before = own.read_text()
    await pilot.press("S")
    await pilot.pause()
    await write(pilot, "kept")
    await pilot.press("enter")
    await pilot.pause()
    assert isinstance(pilot.app.screen, Ask)
    await pilot.press("escape")
    await calm(pilot)
    assert own.read_text() == before


@pytest.mark.usefixtures("no_gpu")
async def test_presets_are_saved_where_it_is_meant() -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, save_over_an_own_preset_keeps_its_comments),
            (SMALL, saving_a_shipped_preset_asks_for_a_name),
            (SMALL, a_wrong_form_is_not_saved),
            (SMALL, an_existing_file_is_not_overwritten_unasked),
        )


# ---- nothing is lost silently --------------------------------------------------------------------


async def leaving_with_unsaved_changes_asks(pilot: Pilot[None]) -> None:
    await go(pilot, "compile.xla")
    await pilot.press("right", "ctrl+q")
    await pilot.pause()
    assert isinstance(pilot.app.screen, Ask)
    assert "1 changed option not saved" in seen(pilot)
    await pilot.press("c")
    await calm(pilot)
    assert pilot.app.is_running
    await pilot.press("ctrl+q")
    await pilot.pause()
    await pilot.press("d")
    await calm(pilot)
    assert pilot.app.return_code == 0


@pytest.mark.usefixtures("no_gpu")
async def test_nothing_is_lost_silently() -> None:
    async with opened() as pilot:
        await each_anew(
            pilot,
            (SMALL, a_preset_that_is_gone_is_said),
            (SMALL, another_preset_over_unsaved_changes_asks),
            (SMALL, leaving_with_unsaved_changes_asks),  # it ends the application
        )


async def another_preset_over_unsaved_changes_asks(pilot: Pilot[None]) -> None:
    await go(pilot, "compile.xla")
    await pilot.press("right")
    app = pilot.app
    assert isinstance(app, GputuiApp)
    app.open_form(presets.SHIPPED / "fast.yaml")
    await pilot.pause()
    assert isinstance(app.screen, Ask)
    await pilot.press("escape")
    await calm(pilot)
    assert form(pilot).state.name == "quickstart"
    app.open_form(presets.SHIPPED / "fast.yaml")
    await pilot.pause()
    await pilot.press("d")
    await calm(pilot)
    assert form(pilot).state.name == "fast"


async def a_preset_that_is_gone_is_said(pilot: Pilot[None]) -> None:
    assert isinstance(pilot.app, GputuiApp)
    pilot.app.open_form(Path("/no/such.yaml"))
    await calm(pilot)
    assert "no such file" in told(pilot)


@pytest.fixture
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
