"""Where gputui keeps things: runs, the user's presets and those that ship. Imports next to nothing."""

from __future__ import annotations

import os
from pathlib import Path

SHIPPED_PRESETS = Path(__file__).resolve().parents[2] / "presets"


def home() -> Path:
    """$GPUTUI_HOME, or the user's state folder."""
    given = os.environ.get("GPUTUI_HOME")
    if given:
        return Path(given).expanduser().absolute()  # engine and trainer may have another current folder
    import platformdirs  # 25 ms that neither engine nor trainer need

    return platformdirs.user_state_path("gputui")


def runs_folder() -> Path:
    return home() / "runs"


def user_presets_folder() -> Path:
    """Where the user's own presets lie."""
    import platformdirs  # 25 ms that neither engine nor trainer need

    return platformdirs.user_config_path("gputui") / "presets"
