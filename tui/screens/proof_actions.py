"""The actions on a proof: stop it, open the improved preset, save its report. Files are accessed in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine.files.values import mapping
from ...engine.files.writing import write_atomically
from ...engine.presets import PresetError
from ...engine.proof import folder as proof_folder
from ...engine.proof import sentences
from ...engine.proof.folder import Proof
from ...engine.proof.markdown import as_markdown
from ...engine.runs import RunError
from .questions import Ask, AskText

if TYPE_CHECKING:
    from ...engine.options import Options
    from ..base.services import Host

STOP = (
    "Stop the {what}? Its current trial is ended first; results so far and changes that were kept stay.\n"
    "Stop it a second time to end it at once."
)
IMPROVED = "improved.yaml"


async def stop(app: Host, proof: Proof, is_search: bool = False) -> None:
    """Ask the user, then ask the proof's process to stop."""
    what = "search" if is_search else "proof"
    question = Ask(STOP.format(what=what), ("Stop", "Go on"), lambda: _ended(proof, what))
    if await app.push_screen_wait(question) != "Stop":
        return
    try:
        await asyncio.to_thread(proof_folder.request_stop, proof)
    except (RunError, OSError) as reason:
        app.complain(str(reason))
    else:
        app.notify("stopping: the current trial is ended first")


def _ended(proof: Proof, what: str) -> str:
    return "" if proof.state == "running" else f"the {what} has ended meanwhile"


async def go_on(app: Host, proof: Proof) -> None:
    """Go on with a search that has ended before its time."""
    from ...engine.tune import asking  # only where it is gone on with

    try:
        app.engines.append(await asyncio.to_thread(asking.resume, proof))
    except (RunError, PresetError, OSError) as reason:
        app.complain(str(reason))
    else:
        app.notify("the search goes on")


async def open_improved(app: Host, proof: Proof, preset_yaml: str) -> None:
    """Open the improved preset in the form, where it can be viewed, started and saved."""
    path = proof.path / IMPROVED
    try:
        await asyncio.to_thread(write_atomically, path, preset_yaml)
    except OSError as fault:
        app.complain(f"{path} cannot be written: {fault.strerror or fault}")
        return
    app.open_form(path)


async def save_report(app: Host, proof: Proof, data: Mapping[str, Any], folder: Path) -> None:
    """Save the report as Markdown to a file that the user names."""
    path = await _path(app, "Save the report as Markdown to this path", f"proof-{proof.id}.md", folder)
    if path is None:
        return
    try:
        await asyncio.to_thread(_write, path, data)
    except (OSError, KeyError, TypeError, ValueError) as fault:
        app.complain(f"{path} cannot be written: {getattr(fault, 'strerror', None) or fault}")
    else:
        app.notify(str(path), title="Saved", markup=False)


async def save_kept(app: Host, proof: Proof, name: str, folder: Path) -> None:
    """Save the preset with all changes that were kept to a file that the user names."""
    path = await _path(app, "Save the preset with the best settings to this path", name, folder)
    if path is None:
        return
    try:
        await asyncio.to_thread(_save_kept, proof, path)
    except (RunError, PresetError, OSError) as fault:
        app.complain(str(fault))
    else:
        app.notify(str(path), title="Saved", markup=False)


def _save_kept(proof: Proof, path: Path) -> None:
    from ...engine.proof import improved_preset  # only where it is saved

    improved_preset.save(proof, path)


async def _path(app: Host, question: str, name: str, folder: Path) -> Path | None:
    """Ask for a path, and before a file is replaced."""
    given = await app.push_screen_wait(AskText(question, name))
    if not given or not given.strip():
        return None
    path = folder / os.path.expanduser(given.strip())
    if path.exists() and await app.push_screen_wait(Ask(f"{path} exists.", ("Overwrite", "Cancel"))) != "Overwrite":
        return None
    return path


async def apply_kept(app: Host, proof: Proof, data: Mapping[str, Any]) -> None:
    """Put the changes that were kept into the form of the preset that they were measured on, as changes of it.

    Where that is no file, the improved preset is opened.
    """
    kept = mapping(data.get("changes_kept"))
    try:
        source, wanted = await asyncio.to_thread(_wanted, proof, kept)
    except (RunError, PresetError, OSError) as fault:
        app.complain(str(fault))
        return
    if source is None:
        await open_improved(app, proof, str(data.get("preset_after")))
    else:
        app.apply_to_preset(source, kept, wanted, sentences.changes(kept))


def _wanted(proof: Proof, kept: Mapping[str, Any]) -> tuple[Path | None, Options]:
    """The file of the preset, where it is one that is still there, and all options as they were found the best."""
    from ...engine.proof.trial import with_changes  # only where it is put into the form

    request = proof.request
    source = Path(request.source) if request.source else None
    options = with_changes(request.baseline(), kept).options
    return (source if source is not None and source.is_file() else None), options


async def copy_report(app: Host, data: Mapping[str, Any]) -> None:
    """Copy the report as Markdown."""
    try:
        text = as_markdown(data)
    except (KeyError, TypeError, ValueError) as fault:
        app.complain(f"there is no report so far: {fault}")
    else:
        app.copy(text, "the report as Markdown")


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(as_markdown(data), encoding="utf-8")
