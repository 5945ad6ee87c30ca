"""The folders and files of gputui and of Keras. Imports hardly anything, as shell completion runs it at each press of
tab.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

SHIPPED_PRESETS = Path(__file__).resolve().parents[2] / "presets"
SHIPPED_EXAMPLES = SHIPPED_PRESETS.with_name("examples")
PRESET_SUFFIXES = (".yaml", ".yml")
QUEUE = "queue"  # the folder next to that of the runs with a file for each queued run or measurement
TRIALS = "trials"  # the folder of a proof that holds the run folders of its trials
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# The data sets that Keras downloads: their files in its folder, in words and as a pattern.
KERAS_FILES = {
    "mnist": ("mnist.npz", "mnist.npz"),
    "fashion_mnist": ("fashion-mnist/ (four train-* and t10k-* .gz files)", "fashion-mnist/t*.gz"),
    "cifar10": ("cifar-10-batches-py-target.tar.gz", "cifar-10-batches-py*"),
}


def home() -> Path:
    """Return the folder in $GPUTUI_HOME, or gputui's folder in the user's state folder."""
    given = os.environ.get("GPUTUI_HOME")
    if given:
        return Path(os.path.expanduser(given)).absolute()  # engine and trainer may have another current folder
    return _of_user("XDG_STATE_HOME", ".local/state")


def _of_user(variable: str, default: str) -> Path:
    # A folder of the XDG Base Directory Specification. OSError if it is needed and the user has no home.
    given = os.environ.get(variable, "").strip()
    return (Path(os.path.expanduser(given)) if given else user_home() / default) / "gputui"


def user_home() -> Path:
    """OSError if there is none, for example for an unknown user id in a container."""
    try:
        return Path.home()
    except RuntimeError:
        what = "this user has no home folder; set GPUTUI_HOME to a folder for runs and settings"
        raise OSError(errno.EINVAL, what) from None


def runs_folder() -> Path:
    return home() / "runs"


def proofs_folder() -> Path:
    return home() / "proofs"


def config_folder() -> Path:
    """Of presets and settings; without a home folder it is in gputui's."""
    try:
        return _of_user("XDG_CONFIG_HOME", ".config")
    except OSError:
        return home() / "config"


def user_presets_folder() -> Path:
    return config_folder() / "presets"


def settings_file() -> Path:
    return config_folder() / "settings.yaml"


def named_presets() -> dict[str, Path]:
    """The presets that can be given by name; a user's replaces a shipped one of the same name."""
    files = {path.stem: path for path in presets_in(SHIPPED_PRESETS)}
    return files | {path.stem: path for path in presets_in(user_presets_folder())}


def presets_in(folder: Path) -> list[Path]:
    """Return the preset files in a folder, sorted by name; of `fast.yaml` and `fast.yml` only the first."""
    paths: dict[str, Path] = {}
    for suffix in reversed(PRESET_SUFFIXES):
        paths |= {path.stem: path for path in folder.glob(f"[!.]*{suffix}")}  # hidden files belong to an editor
    return [paths[name] for name in sorted(paths)]


def keras_folder() -> Path:
    """Return the folder in which Keras keeps the data sets that it has downloaded."""
    return Path(os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")) / "datasets"


def next_number(folder: Path, before: str, after: str = "") -> int:
    """One more than the largest number in names such as `result-3.json` (`result-` is `before`)."""
    names = (path.name[len(before) : len(path.name) - len(after)] for path in folder.glob(f"{before}*{after}"))
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=0) + 1


# ---- private folders ------------------------------------------------------------------------------


ONLY_MINE = 0o700
SCRATCH_VARIABLE = "GPUTUI_SCRATCH"  # environment variable of engine and trainer: the trainer's temporary folder


def make(path: Path, exist_ok: bool = False) -> None:
    """Only this user may open it; parents get the usual permissions. FileExistsError unless `exist_ok`, or OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=ONLY_MINE, exist_ok=exist_ok)
    tighten(path)


def tighten(path: Path) -> None:
    """Restrict an existing folder to this user. A folder of another user is not changed, and errors are ignored."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.chmod(ONLY_MINE)


def make_scratch() -> None:
    """Create a folder for the temporary files that TensorFlow does not delete, and name it in GPUTUI_SCRATCH, which the
    engine removes later. Without it, and for the user's code, the usual folder is used.
    """
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"gputui-{os.urandom(6).hex()}")
    os.environ.pop(SCRATCH_VARIABLE, None)
    with contextlib.suppress(OSError):
        os.mkdir(folder, ONLY_MINE)
        os.environ[SCRATCH_VARIABLE] = folder


def remove_scratch() -> None:
    """Remove the folder that GPUTUI_SCRATCH names, with its content, if the variable is set."""
    import shutil  # not needed before the trainer has ended

    folder = os.environ.get(SCRATCH_VARIABLE)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
