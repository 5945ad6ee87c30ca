"""The actions on a proof: stop it, open the improved preset, save its report. Files are accessed in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine.files.writing import write_atomically
from ...engine.proof import folder as proof_folder
from ...engine.proof.folder import Proof
from ...engine.proof.markdown import as_markdown
from ...engine.runs import RunError
from .questions import Ask, AskText

if TYPE_CHECKING:
    from ..base.services import Host

STOP = (
    "Stop the proof? Its present trial is ended; results so far and changes that were kept stay.\n"
    "Stop it a second time to end it at once."
)
IMPROVED = "improved.yaml"


async def stop(app: Host, proof: Proof) -> None:
    """Ask the user, then ask the proof's process to stop."""
    if await app.push_screen_wait(Ask(STOP, ("Stop", "Go on"))) != "Stop":
        return
    try:
        await asyncio.to_thread(proof_folder.request_stop, proof)
    except (RunError, OSError) as reason:
        app.complain(str(reason))
    else:
        app.notify("stopping: the present trial is ended first")


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
    name = f"proof-{proof.id}.md"
    given = await app.push_screen_wait(AskText("Save the report as Markdown to this path", name))
    if not given or not given.strip():
        return
    path = (folder / given.strip()).expanduser()
    if path.exists() and await app.push_screen_wait(Ask(f"{path} exists.", ("Overwrite", "Cancel"))) != "Overwrite":
        return
    try:
        await asyncio.to_thread(_write, path, data)
    except (OSError, KeyError, TypeError, ValueError) as fault:
        app.complain(f"{path} cannot be written: {getattr(fault, 'strerror', None) or fault}")
    else:
        app.notify(str(path), title="Saved", markup=False)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(as_markdown(data), encoding="utf-8")
