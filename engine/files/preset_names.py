"""Which presets can be called by name, and where they lie. Imports next to nothing: a shell asks at each tab."""

from __future__ import annotations

from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[2] / "presets"
SUFFIXES = (".yaml", ".yml")


def user_folder() -> Path:
    """Where the user's own presets lie."""
    import platformdirs

    return platformdirs.user_config_path("gputui") / "presets"


def available() -> dict[str, Path]:
    """Name -> file of every preset that can be called by name; a user's own hides a shipped one."""
    found: dict[str, Path] = {}
    for folder in (SHIPPED, user_folder()):
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
            found[path.stem] = path
    return found
