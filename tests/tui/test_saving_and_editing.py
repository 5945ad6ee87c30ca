"""Saving a preset and editing its file: each question with its answers, what is written, and what the user is told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.presets import saving as files
from gputui.engine.process import launch
from gputui.tui.form.form_state import FormState
from gputui.tui.reading import preset_files
from gputui.tui.screens.presets import editor, saving
from gputui.tui.screens.presets.saving import short

from tests.support.answering import Answering

MINE = "input: {batch_size: 48}  # mine\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(MINE)
    return folder


def changed(path: Path | str = "mine.yaml", size: str = "64") -> FormState:
    """The form with the file, and one option that is changed."""
    state = FormState.open(Path(path).absolute())
    state.set("input.batch_size", size)
    return state


def acts(app: Answering) -> list[str]:
    return [act.what for act in app.acts["presets"].newest_first]


# ---- saving ---------------------------------------------------------------------------------------------


def test_a_file_that_is_as_it_was_opened_is_written_without_a_question_and_can_be_taken_back(project: Path) -> None:
    app, state = Answering(), changed()
    assert asyncio.run(saving.save(app, state))
    assert Path("mine.yaml").read_text() == MINE.replace("48", "64")
    assert (app.asked, app.told) == ([], [f"Saved: {project}/mine.yaml"])
    assert (state.modified, acts(app)) == (False, ["saved over mine"])
    assert asyncio.run(saving.save(app, state)), "nothing has changed since"
    assert acts(app) == ["saved over mine"], "there is nothing to take back"
    (act,) = app.acts["presets"].newest_first
    assert (act.done, act.key) == ("mine is as it was before it was saved", f"{project}/mine.yaml")
    assert not act.take_back()
    assert Path("mine.yaml").read_text() == MINE


@pytest.mark.parametrize("save", [saving.save, saving.save_as])
def test_a_form_with_errors_is_not_saved_and_names_the_first(save: Any) -> None:
    app, state = Answering(), changed(size="0")
    state.set("train.epochs", "none")
    assert not asyncio.run(save(app, state))
    (key, message), *_ = state.errors.items()
    assert (app.asked, app.told) == ([], [f"not saved: {key}: {message} (error)"])
    assert Path("mine.yaml").read_text() == MINE


@pytest.mark.parametrize(
    ("answer", "saved", "text", "told"),
    [
        ("Overwrite", True, "input: {batch_size: 64}  # theirs\n", ["Saved: {0}/mine.yaml"]),
        ("Read again", False, "input: {batch_size: 96}  # theirs\n", []),
        ("Cancel", False, "input: {batch_size: 96}  # theirs\n", []),
        (None, False, "input: {batch_size: 96}  # theirs\n", []),
    ],
)
def test_a_file_that_somebody_has_changed_is_asked_about(
    project: Path, answer: str | None, saved: bool, text: str, told: list[str]
) -> None:
    app, state = Answering(answer), changed()
    Path("mine.yaml").write_text("input: {batch_size: 96}  # theirs\n")
    assert asyncio.run(saving.save(app, state)) is saved
    question = "./mine.yaml was changed since it was opened."
    assert app.asked == [(question, ("Overwrite", "Read again", "Save as", "Cancel"))]
    assert (Path("mine.yaml").read_text(), app.told) == (text, [each.format(project) for each in told])
    shown = [state.texts["input.batch_size"] for _, state in app.opened]
    assert shown == (["96"] if answer == "Read again" else [])
    assert acts(app) == (["saved over mine"] if saved else [])


def test_a_file_that_cannot_be_read_again_is_said(project: Path) -> None:
    app, state = Answering("Read again"), changed()
    Path("mine.yaml").write_text("input: {batch_size: many}\n")
    assert not asyncio.run(saving.save(app, state))
    assert app.opened == []
    assert len(app.told) == 1
    assert app.told[0].endswith("(error)")


@pytest.mark.parametrize(("answer", "saved"), [("Write it again", True), ("Cancel", False), (None, False)])
def test_a_file_that_is_gone_is_asked_about(project: Path, answer: str | None, saved: bool) -> None:
    app, state = Answering(answer), changed()
    Path("mine.yaml").unlink()
    assert asyncio.run(saving.save(app, state)) is saved
    assert app.asked == [("./mine.yaml is no longer there.", ("Write it again", "Save as", "Cancel"))]
    assert Path("mine.yaml").exists() is saved
    hint = "gputui --preset mine.yaml trains it from a shell"
    assert app.told == ([f"Saved: {project}/mine.yaml; {hint}"] if saved else [])
    assert acts(app) == []
    if answer is None:
        app = Answering("Save as", "./other.yaml")
        assert asyncio.run(saving.save(app, state)), "without the comments of the file"
        assert presets.resolve("other.yaml").options.input.batch_size == 64


@pytest.mark.parametrize(
    ("given", "question", "answer", "told"),
    [
        ("./other.yaml", None, None, "Saved: {0}/other.yaml; gputui --preset other.yaml trains it from a shell"),
        ("./a'b.yaml", None, None, "Saved: {0}/a'b.yaml; gputui --preset 'a'\"'\"'b.yaml' trains it from a shell"),
        ("named", None, None, "Saved: {1}/named.yaml; gputui --preset named trains it from a shell"),
        ("./new/a.yaml", ("There is no folder ./new.", ("Make it", "Cancel")), "Make it",
         "Saved: {0}/new/a.yaml; gputui --preset new/a.yaml trains it from a shell"),
        ("./new/a.yaml", ("There is no folder ./new.", ("Make it", "Cancel")), "Cancel", ""),
        ("./new/a.yaml", ("There is no folder ./new.", ("Make it", "Cancel")), None, ""),
        ("./there.yaml", ("./there.yaml exists.", ("Overwrite", "Cancel")), "Overwrite", "Saved: {0}/there.yaml"),
        ("./there.yaml", ("./there.yaml exists.", ("Overwrite", "Cancel")), "Cancel", ""),
        (None, None, None, ""), ("", None, None, ""),
    ],
)  # fmt: skip
def test_a_preset_is_saved_under_another_name(
    project: Path, given: str | None, question: Any, answer: str | None, told: str
) -> None:
    Path("there.yaml").write_text("train: {epochs: 7}\n")
    app, state = Answering(given, answer), changed()
    assert asyncio.run(saving.save_as(app, state)) is bool(told)
    asked = ("Save as: a name for your own folder, or a path that ends in .yaml", "./mine.yaml")
    assert app.asked == [asked, *([question] if question else [])]
    assert app.told == ([told.format(project, presets.user_folder())] if told else [])
    assert Path("there.yaml").read_text().startswith("train" if answer != "Overwrite" else "input")
    assert not (project / "new").exists() or answer == "Make it"
    if told:
        assert state.path is not None
        assert (state.modified, presets.resolve(str(state.path)).options.input.batch_size) == (False, 64)
        assert "# mine" in state.path.read_text(), "the comments of the preset's file go with it"
        preset_files.note(state.path).join()
        assert preset_files.recent()[0] == state.path
    assert acts(app) == (["saved over there"] if answer == "Overwrite" else [])


@pytest.mark.parametrize(
    ("taken", "proposed"), [((), "quickstart-2"), (("quickstart-2", "quickstart-3"), "quickstart-4")]
)
def test_a_shipped_preset_is_saved_under_a_name_that_no_preset_has(taken: tuple[str, ...], proposed: str) -> None:
    for name in taken:
        files.save_as(presets.defaults([]), files.place(name))
    for save in (saving.save, saving.save_as):
        app = Answering(None)
        assert not asyncio.run(save(app, FormState.first()))
        assert [text for _, text in app.asked] == [short(presets.user_folder() / f"{proposed}.yaml")]


def test_the_copy_of_a_preset_whose_name_is_free_keeps_it() -> None:
    app, state = Answering(None), FormState(None, presets.defaults([]))
    assert not asyncio.run(saving.save(app, state))
    assert [text for _, text in app.asked] == [short(presets.user_folder() / f"{state.name}.yaml")]


@pytest.mark.parametrize(
    ("newer", "answer", "saved"),
    [(False, "Update that preset", True), (True, "Cancel", False), (False, None, False), (True, "Save as", False)],
)
def test_the_preset_of_a_run_is_updated_only_if_the_user_says_so(
    project: Path, newer: bool, answer: str | None, saved: bool
) -> None:
    preset = presets.resolve("mine.yaml", ["epochs=9"])
    run = runs.create("mine", preset.to_yaml(), launch.origin_of(preset))
    began = run.file("preset.yaml").stat().st_mtime
    os.utime("mine.yaml", (began, began + (1 if newer else 0)))
    app, state = Answering(answer, None), FormState.open(run.file("preset.yaml"))
    assert asyncio.run(saving.save(app, state)) is saved
    rest = ", which was changed after that run began." if newer else "."
    question = f"These options are those of a run of ./mine.yaml{rest}"
    assert app.asked[0] == (question, ("Update that preset", "Save as", "Cancel"))
    proposed = [short(presets.user_folder() / "mine.yaml")] if answer == "Save as" else []
    assert [text for _, text in app.asked[1:]] == proposed
    assert ("epochs: 9" in Path("mine.yaml").read_text()) is saved
    assert app.told == ([f"Saved: {project}/mine.yaml"] if saved else [])
    assert acts(app) == (["saved over mine"] if saved else [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"train.epochs": "9"}, "1 changed option"), ({"train.epochs": "9", "train.seed": "3"}, "2 changed options"),
        ({}, "a changed description"),
    ],
)  # fmt: skip
def test_before_changes_are_lost_the_user_is_asked(change: dict[str, str], what: str) -> None:
    for answer, result, epochs in (("Discard", True, 0), ("Cancel", False, 0), (None, False, 0), ("Save", True, 1)):
        app, state = Answering(answer), FormState.open(Path("mine.yaml").absolute())
        state.put(change, "another")
        assert asyncio.run(saving.save_first(app, state)) is result
        assert app.asked == [(f"mine has {what} not saved.", ("Save", "Discard", "Cancel"))]
        assert state.modified is not bool(epochs)
    app, state = Answering("Save"), changed(size="0")
    assert not asyncio.run(saving.save_first(app, state)), "what cannot be saved is not lost"


def test_what_keeps_a_preset_from_being_saved_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise files.SaveError("the disk is full")

    monkeypatch.setattr(files, "save", refuse)
    monkeypatch.setattr(files, "save_as", refuse)
    for save, answers in ((saving.save, ()), (saving.save_as, ("./other.yaml",))):
        app, state = Answering(*answers), changed()
        assert not asyncio.run(save(app, state))
        assert (app.told, state.modified, acts(app)) == (["the disk is full (error)"], True, [])


def test_paths_are_written_as_a_user_writes_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    for path, text in (
        (project / "a.yaml", "./a.yaml"), (Path("b/a.yaml"), "./b/a.yaml"), (project.parent / "a.yaml", "~/a.yaml"),
        (project, "~/project"), (Path(f"{project}-2/a.yaml"), "~/project-2/a.yaml"),
        (Path(f"{project.parent}-2/a.yaml"), f"{project.parent}-2/a.yaml"), (Path("/a.yaml"), "/a.yaml"),
    ):  # fmt: skip
        assert short(path) == text
    monkeypatch.chdir("/")
    assert short(Path("/etc/a.yaml")) == "./etc/a.yaml"


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
        monkeypatch.setattr(editor, "subprocess", SimpleNamespace(run=self.run))
        monkeypatch.setattr(editor, "time", SimpleNamespace(monotonic=lambda: self.now))

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
    asyncio.run(editor.edit(app))
    return app


AT_ONCE = (
    "The editor is back at once: mine.yaml is not changed so far. If code has a window of its own, save there and open "
    "the file with o; or let the command wait, such as: export EDITOR='code --wait' (warning)"
)


@pytest.mark.parametrize(
    ("seconds", "code", "told"),
    [
        (2.0, 0, AT_ONCE), (2.1, 0, "mine.yaml was not changed"),
        (60.0, 3, "the editor code ended with exit code 3 (error)"),
        (1.0, -9, "the editor code was killed by signal 9 (error)"),
    ],
)  # fmt: skip
def test_an_editor_that_changes_nothing_says_why(
    project: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, code: int, told: str
) -> None:
    before = signal.getsignal(signal.SIGINT)
    given = Editor(monkeypatch, None, code=code, seconds=seconds)
    app = edited()
    assert (app.asked, app.told, app.opened) == ([], [told], [])
    assert given.calls == [["code", "--wait", f"{project}/mine.yaml"]]
    assert given.interrupted not in (before, signal.SIG_IGN, signal.SIG_DFL), "Ctrl-C is for the editor"
    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_edited_is_read_again_even_if_the_editor_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Editor(monkeypatch, MINE.replace("48", "96"), code=1)
    app = edited()
    assert [(kind, state.texts["input.batch_size"]) for kind, state in app.opened] == [("shown", "96")]
    assert app.told == ["the editor code ended with exit code 1 (error)", "Edited: mine.yaml is read again"]


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


def test_without_a_name_the_first_of_the_usual_editors_that_is_installed_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.setenv(name, " ")
    for installed, words in (
        ({"vim", "vi", "nano"}, ["/bin/vim"]), ({"vi", "nano"}, ["/bin/vi"]), ({"nano"}, ["/bin/nano"]), (set(), []),
    ):  # fmt: skip
        found = SimpleNamespace(which=lambda name, there=installed: f"/bin/{name}" if name in there else None)
        monkeypatch.setattr(editor, "shutil", found)
        assert editor.editor() == words


def test_no_editor_and_one_that_cannot_be_started_are_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Editor(monkeypatch)
    monkeypatch.setattr(editor, "editor", list)
    assert edited().told == ["no editor was found; name yours, such as: export EDITOR=nano (error)"]
    monkeypatch.undo()
    monkeypatch.chdir(project)
    monkeypatch.setenv("VISUAL", "/no/such")
    named = "name yours, such as: export EDITOR=nano"
    assert edited().told == [f"the editor /no/such cannot be started: No such file or directory; {named} (error)"]


@pytest.mark.parametrize(
    ("answer", "calls", "size"), [("Save", 1, "64"), ("Discard", 1, "48"), ("Cancel", 0, "48"), (None, 0, "48")]
)
def test_changes_of_the_form_are_saved_or_given_up_before_the_file_is_edited(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, calls: int, size: str
) -> None:
    given = Editor(monkeypatch, None)
    app = edited(answer, state=changed())
    assert app.asked == [("mine has 1 changed option not saved.", ("Save", "Discard", "Cancel"))]
    assert (len(given.calls), Path("mine.yaml").read_text()) == (calls, MINE.replace("48", size))
    shown = [state.texts["input.batch_size"] for _, state in app.opened]
    assert shown == (["48"] if answer == "Discard" else []), "the form then holds the file again"


def test_a_preset_without_a_file_of_its_own_is_saved_as_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Editor(monkeypatch, None)
    edited(None, state=FormState.first())
    assert given.calls == []
    edited("faster", state=FormState.first())
    assert [call[-1] for call in given.calls] == [str(presets.user_folder() / "faster.yaml")]
