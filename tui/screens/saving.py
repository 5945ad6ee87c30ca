"""Saving from the form: to the preset's file, under a new name, or after a question before changes would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.presets import saving
from ...engine.presets.saving import SaveError
from ..form.state import FormState
from .questions import Ask, AskText

if TYPE_CHECKING:
    from ..base.services import Host


async def save(app: Host, state: FormState) -> bool:
    """Save over the preset's file, or as a new one where it has none; returns whether it was saved."""
    if _refused(app, state):
        return False
    if state.path is None or state.shipped or state.of_a_run:
        return await save_as(app, state)
    try:
        saving.save(state.preset, state.path, state.opened_text)
    except SaveError as fault:
        app.complain(str(fault))
        return False
    state.saved_as(state.path)
    app.notify(str(state.path), title="Saved", markup=False)
    return True


async def save_as(app: Host, state: FormState, name: str = "") -> bool:
    """Save as a new preset, asking for its name; returns whether it was saved."""
    if _refused(app, state):
        return False
    given = await app.push_screen_wait(AskName(name))
    if not given:
        return False
    path = saving.place(given)
    if path.exists() and await app.push_screen_wait(Ask(f"{path} exists.", ("Overwrite", "Cancel"))) != "Overwrite":
        return False
    source = None if state.of_a_run else state.path
    try:
        saving.save_as(state.preset, path, source, overwrite=True)
    except SaveError as fault:
        app.complain(str(fault))
        return False
    state.saved_as(path)
    app.notify(str(path), title="Saved", markup=False)
    return True


async def save_first(app: Host, state: FormState) -> bool:
    """Ask what to do with changes that are neither saved nor started; returns whether to continue."""
    count = len(state.unsaved())
    what = f"{count} changed option{'s' if count != 1 else ''}" if count else "a changed description"
    answer = await app.push_screen_wait(Ask(f"{state.name} has {what} not saved.", ("Save", "Discard", "Cancel")))
    return answer == "Discard" or (answer == "Save" and await save(app, state))


def _refused(app: Host, state: FormState) -> bool:
    """Why the values cannot be saved: a field is invalid."""
    for key, message in state.errors.items():
        app.complain(f"not saved: {key}: {message}")
        return True
    return False


class AskName(AskText):
    """Asks for the name of a new preset."""

    def __init__(self, name: str) -> None:
        super().__init__("Save as: a name, or a path that ends in .yaml", name)

    def refuse(self, text: str) -> str:
        try:
            saving.place(text)
        except SaveError as fault:
            return str(fault)
        return ""
