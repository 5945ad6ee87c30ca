"""Which presets can be called by name. Imports next to nothing: a shell asks at each tab."""

from __future__ import annotations

from pathlib import Path

from .places import SHIPPED_PRESETS, user_presets_folder

SUFFIXES = (".yaml", ".yml")


def available() -> dict[str, Path]:
    """Name -> file of every preset that can be called by name; a user's own hides a shipped one."""
    found: dict[str, Path] = {}
    for folder in (SHIPPED_PRESETS, user_presets_folder()):
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
            found[path.stem] = path
    return found
