"""A systemd user unit for the runner, so that the queue continues after a restart of the machine without a login."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..files.places import home, user_home
from ..files.writing import write_atomically
from ..leases import records

CONFIG = "XDG_CONFIG_HOME"
NAME = "gputui-queue.service"
SYSTEMCTL_SECONDS = 20.0


def path() -> Path:
    given = os.environ.get(CONFIG, "").strip()
    return (Path(given) if given else user_home() / ".config") / "systemd" / "user" / NAME


def text() -> str:
    """The unit has the variables that lead to this home, its settings and leases. `KillMode=process` lets trainings
    continue after the runner, which ends with an empty queue.
    """
    given = {name: value for name in (CONFIG, records.FOLDER) if (value := os.environ.get(name, "").strip())}
    variables = {"GPUTUI_HOME": str(home())} | given
    return (
        "[Unit]\n"
        "Description=gputui: starts the runs that wait in the queue\n\n"
        "[Service]\n"
        + "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items())
        + f"ExecStart={_quoted(sys.executable.replace('$', '$$'))} -P -m gputui.engine.queue\n"
        "KillMode=process\n"
        "Restart=on-failure\n"
        "RestartSec=5\n\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _quoted(word: str) -> str:
    for before, after in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%")):
        word = word.replace(before, after)
    return f'"{word}"'


def install() -> str:
    """Write and enable the unit. Return the commands that the user has to give if systemctl fails. Raises OSError."""
    path().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path(), text())
    return _systemctl("daemon-reload") or _systemctl("enable", NAME)


def remove() -> bool:
    """False if there is none."""
    if not path().exists():
        return False
    _systemctl("disable", NAME)
    path().unlink()
    _systemctl("daemon-reload")
    return True


def _systemctl(*words: str) -> str:
    """The commands that the user has to give, if it fails."""
    by_hand = f"systemctl --user daemon-reload && systemctl --user enable {NAME}"
    if shutil.which("systemctl") is None:
        return by_hand
    try:
        done = subprocess.run(
            ["systemctl", "--user", *words], capture_output=True, timeout=SYSTEMCTL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return by_hand
    return "" if done.returncode == 0 else by_hand
