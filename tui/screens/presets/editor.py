"""Edits the preset's file in the user's editor, which gets the terminal until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from ....engine.files import located_yaml
from ....engine.presets import PresetError
from ...base.errors import clean
from ...form.form_state import FormState
from ..dialogs import Ask
from . import saving

if TYPE_CHECKING:
    from ...base.base_app import BaseApp

USUAL = ("vim", "vi", "nano")  # no wrapper such as sensible-editor, which may ask first
AT_ONCE_SECONDS = 2.0  # an editor that is back so soon, with nothing changed, may have a window of its own


async def edit(app: BaseApp) -> None:
    """Edit the form's preset in an editor, and show it in the form. One without a file, or unsaved, is saved first."""
    state = app.form_state
    if state.path is None or state.shipped or state.of_a_run:
        if not await saving.save_as(app, state):
            return
    elif state.modified and not await saving.save_first(app, state):
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
    code = _run(app, command, path)
    if code is None:
        return False
    text = await asyncio.to_thread(_text, path)
    if text == before and not state.modified:
        if not code:
            _notify_unchanged(app, command[0], path, time.monotonic() - began)
        return False
    try:
        fresh = await asyncio.to_thread(FormState.open, path)
    except (PresetError, OSError) as fault:
        return await app.push_screen_wait(Ask(_question(fault, text), ("Edit again", "Back"))) == "Edit again"
    app.show_in_form(fresh)
    app.notify(f"{path.name} is read again", title="Edited", markup=False)
    return False


def editor() -> list[str]:
    """Return the words of the command of the editor: $VISUAL, else $EDITOR, else an installed editor. Empty if there is
    none."""
    for name in ("VISUAL", "EDITOR"):
        try:
            given = shlex.split(os.environ.get(name, ""))
        except ValueError:  # a quotation mark is not closed
            given = os.environ[name].split()
        if given:
            return given
    return next(([path] for name in USUAL if (path := shutil.which(name))), [])


def _run(app: BaseApp, command: list[str], path: Path) -> int | None:
    """Run the editor until it ends, and return its exit code; None, after a message, if it cannot be started."""
    code: int | str
    try:
        with app.suspend(), _interrupts_are_the_editors():
            try:
                code = subprocess.run([*command, str(path)], check=False).returncode
            except OSError as fault:
                code = fault.strerror or str(fault)
    except SuspendNotSupported:
        again = app.key("file")
        app.complain(f"this terminal cannot be left to an editor; edit {path} elsewhere, then open it with {again}")
        return None
    if isinstance(code, str):
        app.complain(f"the editor {command[0]} cannot be started: {code}; name yours, such as: export EDITOR=nano")
        return None
    if code:
        why = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        app.complain(f"the editor {command[0]} {why}")
    return code


@contextlib.contextmanager
def _interrupts_are_the_editors() -> Iterator[None]:
    # The editor itself has the system's default handler.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _notify_unchanged(app: BaseApp, name: str, path: Path, seconds: float) -> None:
    if seconds > AT_ONCE_SECONDS:
        app.notify(f"{path.name} was not changed", markup=False)
        return
    message = (
        f"{path.name} is not changed so far. If {name} has a window of its own, save there and open the file with "
        f"{app.key('file')}; or let the command wait, such as: export EDITOR='code --wait'"
    )
    app.notify(message, title="The editor is back at once", severity="warning", markup=False)


def _text(path: Path) -> str | None:
    try:
        return located_yaml.read_text(path)
    except (OSError, located_yaml.YamlFault):
        return None


def _question(fault: PresetError | OSError, text: str | None) -> str:
    problem = fault.problems[0] if isinstance(fault, PresetError) else None
    lines = (text or "").splitlines()
    line = lines[problem.line - 1].strip() if problem and problem.line and problem.line <= len(lines) else ""
    return f"{problem or fault}" + (f"\n\n  {clean(line)}" if line else "") + "\n\nThe form is as it was."
