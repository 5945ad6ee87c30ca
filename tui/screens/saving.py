"""Saving the form's preset: to its file, under a new name, or after a question before changes would be lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult, SuspendNotSupported
from textual.content import Content
from textual.widgets import Input, Label

from ...engine import presets
from ...engine.files import located_yaml, typed
from ...engine.presets import PresetError, saving
from ...engine.presets.saving import Replaced, SaveError
from ...engine.runs.titles import FILE, Origin
from ...engine.units import counted
from ..base.errors import clean
from ..form.form_state import FormState
from ..reading import preset_files
from .dialogs import Ask, AskText, complaining

if TYPE_CHECKING:
    from ..base.base_app import BaseApp


async def save(app: BaseApp, state: FormState) -> bool:
    """Save the preset over its file, or as a new one. Asks if the file was changed meanwhile, or is a run's."""
    if _refused(app, state):
        return False
    if state.path is None or state.shipped or state.of_a_run:
        origin = await asyncio.to_thread(_origin, state)
        if origin is None or state.path is None:
            return await save_as(app, state)
        return await _save_of_run(app, state, state.path, origin)
    with complaining(app):
        if happened := await asyncio.to_thread(saving.changed_since, state.path, state.opened_text):
            return await _save_over_changes(app, state, state.path, happened)
    return await _written(app, state, state.path, partial(saving.save, state.preset, state.path, state.opened_text))


async def _save_of_run(app: BaseApp, state: FormState, record: Path, origin: Path) -> bool:
    """Ask whether to update the preset from which the run was started. True if a file was saved."""

    def read() -> tuple[str | None, bool]:
        with contextlib.suppress(OSError):  # saving names the fault
            return saving.content_of(origin), origin.stat().st_mtime > record.stat().st_mtime
        return None, False

    before, is_newer = await asyncio.to_thread(read)
    changed = ", which was changed after that run began." if is_newer else "."
    question = f"These options are those of a run of {short(origin)}{changed}"
    answer = await app.push_screen_wait(Ask(question, ("Update that preset", "Save as", "Cancel")))
    if answer == "Save as":
        return await save_as(app, state)
    updates = answer == "Update that preset"
    return updates and await _written(app, state, origin, partial(saving.save, state.preset, origin, before))


def _origin(state: FormState) -> Path | None:
    # None if it ships with gputui, or if the file no longer exists.
    if state.path is None or not state.of_a_run:
        return None
    name = typed.read_usable(state.path.with_name(FILE), Origin).file
    path = Path(name) if name else None
    return path if path is not None and path.is_file() and path.resolve().parent != presets.SHIPPED else None


async def _save_over_changes(app: BaseApp, state: FormState, path: Path, happened: str) -> bool:
    """Ask which version to keep of a file that was changed meanwhile. True if the form's was saved."""
    gone = not os.path.lexists(path)  # noqa: ASYNC240 - asked once, of a file that is being saved
    answers = ("Write it again", "Save as", "Cancel") if gone else ("Overwrite", "Read again", "Save as", "Cancel")
    answer = await app.push_screen_wait(Ask(f"{short(path)} {happened}.", answers))
    if answer == "Save as":
        return await save_as(app, state)
    if answer == "Read again":
        with complaining(app):
            app.show_in_form(FormState.open(path))
    elif answer in ("Write it again", "Overwrite"):
        write = saving.save_as if gone else saving.save
        return await _written(app, state, path, partial(write, state.preset, path))
    return False


async def save_as(app: BaseApp, state: FormState) -> bool:
    if _refused(app, state):
        return False
    source = None if state.of_a_run else state.path
    offered = source
    if offered is None or state.shipped:  # a name that no preset has yet, at last the preset's own
        names = (state.name, *(f"{state.name}-{number}" for number in range(2, 1000)))
        free = next((name for name in names if name not in presets.named_presets()), state.name)
        offered = presets.user_folder() / f"{free}.yaml"
    given = await app.push_screen_wait(AskName(short(offered)))
    if not given:
        return False
    path = Path(os.path.abspath(saving.place(given)))  # noqa: ASYNC240 - reads no file
    question, answer = "", "Overwrite"
    if path.exists():  # noqa: ASYNC240 - asked once, of a file that is being saved
        question = f"{short(path)} exists."
    elif path.parent != presets.user_folder() and not path.parent.exists():
        question, answer = f"There is no folder {short(path.parent)}.", "Make it"
    if question and await app.push_screen_wait(Ask(question, (answer, "Cancel"))) != answer:
        return False
    layout = source if source and source.exists() else None
    return await _written(app, state, path, partial(saving.save_as, state.preset, path, layout, overwrite=True))


async def _written(app: BaseApp, state: FormState, path: Path, write: Callable[[], None]) -> bool:
    """Write the preset's file by `write`, so that it can be taken back. False after a message if that fails."""
    with complaining(app):
        former = await asyncio.to_thread(saving.content_of, path)
        await asyncio.to_thread(write)
        state.saved_as(path)
        preset_files.note(path)
        written = saving.content_of(path)
        if former is not None and written is not None and former != written:
            replaced = Replaced(path, former, written)
            done = f"{path.stem} is as it was before it was saved"
            app.acts["presets"].add(f"saved over {path.stem}", replaced.bring_back, done, str(path))
        named = path.stem if presets.named_presets().get(path.stem) == path else os.path.relpath(path)  # noqa: ASYNC240 - reads no file
        starts = "" if former is not None else f"; gputui --preset {shlex.quote(named)} trains it from a shell"
        app.notify(f"{os.path.abspath(path)}{starts}", title="Saved", markup=False)  # noqa: ASYNC240 - the same
        return True
    return False


async def save_first(app: BaseApp, state: FormState) -> bool:
    """Ask whether to save or discard changes. False if the user cancels, or if saving fails."""
    count = len(state.unsaved())
    what = f"{counted(count, 'changed options')}" if count else "a changed description"
    answer = await app.push_screen_wait(Ask(f"{state.name} has {what} not saved.", ("Save", "Discard", "Cancel")))
    return answer == "Discard" or (answer == "Save" and await save(app, state))


def _refused(app: BaseApp, state: FormState) -> bool:
    for key, message in state.errors.items():
        app.complain(f"not saved: {key}: {message}")
        return True
    return False


def short(path: Path) -> str:
    """Return the path with ./ in the current folder, with ~ in the home folder, else absolute."""
    whole, here, home = os.path.abspath(path), os.getcwd(), os.path.expanduser("~")
    if whole.startswith(here.rstrip(os.sep) + os.sep):
        return os.path.join(".", os.path.relpath(whole, here))
    return f"~{whole[len(home) :]}" if whole.startswith(home.rstrip(os.sep) + os.sep) else whole


class AskName(AskText):
    """Asks for the name or path of a new preset, and shows which file would be written."""

    def __init__(self, text: str) -> None:
        super().__init__("Save as: a name for your own folder, or a path that ends in .yaml", text, _refuse)

    def below(self) -> ComposeResult:
        yield Label(id="target", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one("#complaint").display = False
        reason = self.refuse(event.value)
        text = f"writes {clean(short(saving.place(event.value)))}" if not reason else clean(reason)
        self.query_one("#target", Label).update(Content.styled(text, "$foreground-muted" if reason else ""))


def _refuse(text: str) -> str:
    try:
        saving.place(text)
    except SaveError as fault:
        return str(fault)
    return ""


USUAL = ("vim", "vi", "nano")  # no wrapper such as sensible-editor, which may ask first
AT_ONCE_SECONDS = 2.0  # an editor that is back so soon, with nothing changed, may have a window of its own


async def edit(app: BaseApp) -> None:
    """Edit the form's preset in an editor, and show it in the form. One without a file, or unsaved, is saved first."""
    state = app.form_state
    if state.path is None or state.shipped or state.of_a_run:
        if not await save_as(app, state):
            return
    elif state.modified and not await save_first(app, state):
        return
    path = state.path
    assert path is not None
    while await _edited(app, state, path):
        pass


async def _edited(app: BaseApp, state: FormState, path: Path) -> bool:
    """Let the user edit the file once. True if it has errors and the user wants to edit it again."""
    command = editor()
    if not command:
        app.complain("no editor was found; name yours, such as: export EDITOR=nano")
        return False
    before, began = await asyncio.to_thread(_text, path), time.monotonic()
    instead = f"edit {path} elsewhere, then open it with {app.key('file')}"
    remedy = "name yours, such as: export EDITOR=nano"
    code = leave_terminal_to(app, [*command, str(path)], f"the editor {command[0]}", instead, remedy)
    if code is None:
        return False
    text = await asyncio.to_thread(_text, path)
    if text == before and not state.modified:
        if not code and time.monotonic() - began > AT_ONCE_SECONDS:
            app.notify(f"{path.name} was not changed", markup=False)
        elif not code:
            message = (
                f"{path.name} is not changed so far. If {command[0]} has a window of its own, save there and open the "
                f"file with {app.key('file')}; or let the command wait, such as: export EDITOR='code --wait'"
            )
            app.notify(message, title="The editor is back at once", severity="warning", markup=False)
        return False
    try:
        fresh = await asyncio.to_thread(FormState.open, path)
    except (PresetError, OSError) as fault:
        problem, lines = fault.problems[0] if isinstance(fault, PresetError) else None, (text or "").splitlines()
        line = lines[problem.line - 1].strip() if problem and problem.line and problem.line <= len(lines) else ""
        question = f"{problem or fault}" + (f"\n\n  {clean(line)}" if line else "") + "\n\nThe form is as it was."
        return await app.push_screen_wait(Ask(question, ("Edit again", "Back"))) == "Edit again"
    app.show_in_form(fresh)
    app.notify(f"{path.name} is read again", title="Edited", markup=False)
    return False


def editor() -> list[str]:
    """Return the words of $VISUAL, else $EDITOR, else an installed editor; empty without one."""
    for name in ("VISUAL", "EDITOR"):
        try:
            given = shlex.split(os.environ.get(name, ""))
        except ValueError:  # a quotation mark is not closed
            given = os.environ[name].split()
        if given:
            return given
    return next(([path] for name in USUAL if (path := shutil.which(name))), [])


def leave_terminal_to(app: BaseApp, command: list[str], name: str, instead: str, remedy: str) -> int | None:
    """Run a program that needs the terminal until it ends, and return its exit code; None, after a message, if it
    cannot be started. `instead` says what to do if this terminal cannot be left, `remedy` if there is no program."""
    code: int | str
    try:
        with app.suspend(), _interrupts_are_the_programs():
            try:
                code = subprocess.run(command, check=False).returncode
            except OSError as fault:
                code = fault.strerror or str(fault)
    except SuspendNotSupported:
        app.complain(f"this terminal cannot be left to {name}; {instead}")
        return None
    if isinstance(code, str):
        app.complain(f"{name} cannot be started: {code}; {remedy}")
        return None
    if code:
        why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        app.complain(f"{name} {why}")
    return code


@contextlib.contextmanager
def _interrupts_are_the_programs() -> Iterator[None]:
    # The program itself has the system's default handler.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _text(path: Path) -> str | None:
    try:
        return located_yaml.read_text(path)
    except (OSError, located_yaml.YamlFault):
        return None
