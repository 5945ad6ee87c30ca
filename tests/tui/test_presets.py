"""Presets in the screens: the list, paths, recent files, and the questions before something is lost."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import OptionList

from tests.doors.engine import presets, this_machine
from tests.doors.tui import FormState, Listing, PresetsScreen, app, preset_files
from tests.support.form_pilot import NO_GPU, calm, opened
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


# ---- presets -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_gpu")
async def test_the_cursor_stays_where_it_was_moved_while_files_are_listed() -> None:
    """As on a slow disk: some groups are not listed yet when the user moves the cursor."""
    async with opened() as pilot:
        await pilot.press("o")
        screen = pilot.app.screen
        assert isinstance(screen, PresetsScreen)
        await wait_for(pilot, lambda: not screen._awaited)
        screen._awaited, screen._select = {"here"}, presets.SHIPPED / "quickstart.yaml"
        screen._show()
        await calm(pilot)
        entries = screen.query_one(OptionList)
        entries.highlighted = entries.get_option_index(str(presets.SHIPPED / "fast.yaml"))
        await calm(pilot)
        screen._listed("here", Listing())
        assert screen.chosen is not None
        assert screen.chosen.path.stem == "fast"


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
