"""The folders and files of gputui and of Keras: runs, presets, settings, data sets.

Imports hardly anything, as shell completion runs it at each press of tab.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

SHIPPED_PRESETS = Path(__file__).resolve().parents[2] / "presets"
SHIPPED_EXAMPLES = SHIPPED_PRESETS.with_name("examples")
PRESET_SUFFIXES = (".yaml", ".yml")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# The data sets that Keras downloads: their files in its folder, in words and as a pattern.
KERAS_FILES = {
    "mnist": ("mnist.npz", "mnist.npz"),
    "fashion_mnist": ("fashion-mnist/ (four train-* and t10k-* .gz files)", "fashion-mnist/t*.gz"),
    "cifar10": ("cifar-10-batches-py-target.tar.gz", "cifar-10-batches-py*"),
}


def home() -> Path:
    """$GPUTUI_HOME, or the user's state folder."""
    given = os.environ.get("GPUTUI_HOME")
    if given:
        return Path(os.path.expanduser(given)).absolute()  # engine and trainer may have another current folder
    return _of_user("XDG_STATE_HOME", ".local/state")


def _of_user(variable: str, default: str) -> Path:
    """The folder of gputui in a folder of the user that the XDG Base Directory Specification defines."""
    given = os.environ.get(variable, "").strip()
    return (Path(os.path.expanduser(given)) if given else user_home() / default) / "gputui"


def user_home() -> Path:
    """The user's home folder; raises OSError if there is none, as for an unknown user id in a container."""
    try:
        return Path.home()
    except RuntimeError:
        what = "this user has no home folder; set GPUTUI_HOME to a folder for runs and settings"
        raise OSError(errno.EINVAL, what) from None


def runs_folder() -> Path:
    return home() / "runs"


def config_folder() -> Path:
    """The folder of the user's own presets and settings; next to the runs if the user has no home folder."""
    try:
        return _of_user("XDG_CONFIG_HOME", ".config")
    except OSError:
        return home() / "config"


def user_presets_folder() -> Path:
    return config_folder() / "presets"


def settings_file() -> Path:
    """The settings of the screens."""
    return config_folder() / "settings.yaml"


def named_presets() -> dict[str, Path]:
    """Name -> file of every preset that has a name; a preset of the user hides a shipped one."""
    files: dict[str, Path] = {}
    for folder in (SHIPPED_PRESETS, user_presets_folder()):
        for path in sorted(folder.glob("[!.]*.yaml")) if folder.is_dir() else []:  # hidden files belong to an editor
            files[path.stem] = path
    return files


def keras_folder() -> Path:
    """The folder in which Keras keeps the data sets that it has downloaded."""
    return Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "datasets"
