"""Saving from the form, editing the file, and presets on the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.doors.engine import launch, presets, runs, this_machine
from tests.doors.tui import Ask, FormState, GputuiApp, form_state, screens_saving
from tests.doors.tui import screens_saving as saving_screen
from tests.support.answering import Answering
from tests.support.form_pilot import NO_GPU, calm, form, opened, seen, told
from tests.support.tiny import wait_for


@pytest.fixture
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


async def test_the_preset_that_a_run_came_from_can_be_updated(project: Path) -> None:
    file = project / "mine.yaml"
    file.write_text("input: {batch_size: 48}  # as in the paper\n")
    preset = presets.resolve("mine.yaml", ["epochs=9"])
    run = runs.create("mine", preset.to_yaml(), launch.origin_of(preset))
    async with opened((120, 40), GputuiApp(form_state(str(run.file("preset.yaml")), []))) as pilot:
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
    state = form_state(f"run:{run.id}", [])
    assert saving_screen._origin(state) is None


async def test_a_file_that_was_changed_meanwhile_is_asked_about(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "mine.yaml"
    monkeypatch.setenv("EDITOR", "vi")
    async with opened((120, 40), GputuiApp(form_state("mine.yaml", ["epochs=9"]))) as pilot:
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
        await wait_for(pilot, lambda: "cannot be left to the editor" in told(pilot))


MINE = "input: {batch_size: 48}  # mine\n"


@pytest.fixture
def project_of_saving_and_editing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project_of_saving_and_editing"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(MINE)
    return folder


def changed(path: Path | str = "mine.yaml", size: str = "64") -> FormState:
    """The form with the file, and one option that is changed."""
    state = FormState.open(Path(path).absolute())
    state.set("input.batch_size", size)
    return state


# ---- saving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"train.epochs": "9"}, "1 changed option"), ({"train.epochs": "9", "train.seed": "3"}, "2 changed options"),
        ({}, "a changed description"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("project_of_saving_and_editing")
def test_before_changes_are_lost_the_user_is_asked(change: dict[str, str], what: str) -> None:
    for answer, result, epochs in (("Discard", True, 0), ("Cancel", False, 0), (None, False, 0), ("Save", True, 1)):
        app, state = Answering(answer), FormState.open(Path("mine.yaml").absolute())
        state.put(change, "another")
        assert asyncio.run(screens_saving.save_first(app, state)) is result
        assert app.asked == [(f"mine has {what} not saved.", ("Save", "Discard", "Cancel"))]
        assert state.modified is not bool(epochs)
    app, state = Answering("Save"), changed(size="0")
    assert not asyncio.run(screens_saving.save_first(app, state)), "what cannot be saved is not lost"


# ---- the editor -----------------------------------------------------------------------------------------


class Editor:
    """An editor that writes each of the texts in its turn (None: leaves the file), and ends with a code."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *texts: str | None, code: int = 0, seconds: float = 60.0
    ) -> None:
        self.texts, self.code, self.seconds, self.now = list(texts), code, seconds, 0.0
        self.calls: list[list[str]] = []
        self.interrupted: Any = None
        monkeypatch.setenv("VISUAL", "code --wait")
        monkeypatch.setattr(screens_saving, "subprocess", SimpleNamespace(run=self.run))
        monkeypatch.setattr(screens_saving, "time", SimpleNamespace(monotonic=lambda: self.now))

    def run(self, command: list[str], check: bool) -> Any:
        assert not check
        self.calls.append(command)
        self.now += self.seconds
        self.interrupted = signal.getsignal(signal.SIGINT)
        text = self.texts.pop(0)
        if text is not None:
            Path(command[-1]).write_text(text)
        return subprocess.CompletedProcess(command, self.code)


def edited(*answers: Any, state: FormState | None = None) -> Answering:
    app = Answering(*answers)
    app.state = state or FormState.open(Path("mine.yaml").absolute())
    asyncio.run(screens_saving.edit(app))
    return app


@pytest.mark.usefixtures("project_of_saving_and_editing")
def test_a_file_with_errors_is_edited_again_if_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "train: {epochs: 3}\ninput:\n  batch_size: many\n"
    given = Editor(monkeypatch, wrong, MINE.replace("48", "12"))
    app = edited("Edit again")
    ((question, answers),) = app.asked
    first, *rest = question.split("\n")
    assert "batch_size" in first
    assert rest == ["", "  batch_size: many", "", "The form is as it was."]
    assert answers == ("Edit again", "Back")
    assert len(given.calls) == 2
    assert [state.texts["input.batch_size"] for _, state in app.opened] == ["12"]
    for answer in ("Back", None):
        Editor(monkeypatch, wrong)
        Path("mine.yaml").write_text(MINE)
        assert edited(answer).opened == []


def test_no_editor_and_one_that_cannot_be_started_are_said(
    project_of_saving_and_editing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Editor(monkeypatch)
    monkeypatch.setattr(screens_saving, "editor", list)
    assert edited().told == ["no editor was found; name yours, such as: export EDITOR=nano (error)"]
    monkeypatch.undo()
    monkeypatch.chdir(project_of_saving_and_editing)
    monkeypatch.setenv("VISUAL", "/no/such")
    named = "name yours, such as: export EDITOR=nano"
    assert edited().told == [f"the editor /no/such cannot be started: No such file or directory; {named} (error)"]


@pytest.mark.parametrize(
    ("answer", "calls", "size"), [("Save", 1, "64"), ("Discard", 1, "48"), ("Cancel", 0, "48"), (None, 0, "48")]
)
@pytest.mark.usefixtures("project_of_saving_and_editing")
def test_changes_of_the_form_are_saved_or_given_up_before_the_file_is_edited(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, calls: int, size: str
) -> None:
    given = Editor(monkeypatch, None)
    app = edited(answer, state=changed())
    assert app.asked == [("mine has 1 changed option not saved.", ("Save", "Discard", "Cancel"))]
    assert (len(given.calls), Path("mine.yaml").read_text()) == (calls, MINE.replace("48", size))
    shown = [state.texts["input.batch_size"] for _, state in app.opened]
    assert shown == (["48"] if answer == "Discard" else []), "the form then holds the file again"
