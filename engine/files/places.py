"""Where gputui keeps things: runs, the user's presets, and what ships. Imports next to nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

SHIPPED_PRESETS = Path(__file__).resolve().parents[2] / "presets"
SHIPPED_EXAMPLES = SHIPPED_PRESETS.with_name("examples")


def home() -> Path:
    """$GPUTUI_HOME, or the user's state folder."""
    given = os.environ.get("GPUTUI_HOME")
    if given:
        return Path(os.path.expanduser(given)).absolute()  # engine and trainer may have another current folder
    return _of_user("XDG_STATE_HOME", ".local/state")


def _of_user(variable: str, otherwise: str) -> Path:
    """The folder of gputui where the XDG Base Directory Specification has such files."""
    given = os.environ.get(variable, "").strip()
    return (Path(os.path.expanduser(given)) if given else user_home() / otherwise) / "gputui"


def user_home() -> Path:
    """Raises OSError for a user without one, as in a container whose user id nobody has entered."""
    try:
        return Path.home()
    except RuntimeError:
        what = "this user has no home folder; set GPUTUI_HOME to a folder for runs and settings"
        raise OSError(errno.EINVAL, what) from None


def runs_folder() -> Path:
    return home() / "runs"


def config_folder() -> Path:
    """Where the user's own presets and settings lie; without a home folder beside the runs."""
    try:
        return _of_user("XDG_CONFIG_HOME", ".config")
    except OSError:
        return home() / "config"


def user_presets_folder() -> Path:
    return config_folder() / "presets"


def settings_file() -> Path:
    """The settings of the screens."""
    return config_folder() / "settings.yaml"
