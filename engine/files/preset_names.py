"""The names of presets and their files. Imports hardly anything, as shell completion runs it at each press of tab."""

from __future__ import annotations

from pathlib import Path

from .places import SHIPPED_PRESETS, user_presets_folder

SUFFIXES = (".yaml", ".yml")


def available() -> dict[str, Path]:
    """Name -> file of every preset that has a name; a preset of the user hides a shipped one."""
    found: dict[str, Path] = {}
    for folder in (SHIPPED_PRESETS, user_presets_folder()):
        for path in sorted(folder.glob("[!.]*.yaml")) if folder.is_dir() else []:  # hidden ones are an editor's
            found[path.stem] = path
    return found
