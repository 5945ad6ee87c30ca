"""What a machine must have for some of the tests, which are left out without it.

If GPUTUI_TESTS_DEMAND_ALL is set they fail. A test names what it needs by `@pytest.mark.needs("tmux")`, a fixture by
`require("tmux")`. As a program: prints what this machine lacks, which are the last lines of `make test`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pytest

DEMAND = "GPUTUI_TESTS_DEMAND_ALL"  # set by .ci/run


@dataclass(frozen=True)
class Need:
    """`is_there` tells whether the machine has it, `remedy` says what to do if it has not."""

    is_there: Callable[[], bool]
    remedy: str


def _command(*names: str) -> Callable[[], bool]:
    return lambda: any(map(shutil.which, names))


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


_MAY_MOUNT = "run the tests as root, in a container with the capability SYS_ADMIN"
OF_EXTRAS = ("grain", "keras_hub", "mcp", "mlflow", "nbclient", "textual_serve", "torch", "trackio", "wandb")
NEEDS = {
    "git": Need(_command("git"), "install the package git"),
    "tmux": Need(_command("tmux"), "install the package tmux"),
    "chromium": Need(_command("chromium", "chromium-browser", "google-chrome"), "install the package chromium"),
    "cc": Need(_command("cc", "gcc", "clang"), "install the package gcc"),
    "c++": Need(_command("c++"), "install the package g++"),
    "setpriv": Need(_command("setpriv"), "install the package util-linux"),
    "sshd": Need(lambda: bool(shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")), "install openssh-server"),
    "optuna": Need(_module("optuna"), "pip install 'optuna>=5,<6'"),
    "xprof": Need(_module("xprof"), "pip install 'xprof>=2.24'"),
    "aiohttp": Need(_module("aiohttp"), "pip install aiohttp"),
    **{name: Need(_module(name), "run these tests by `make test-extras`") for name in OF_EXTRAS},
    "root": Need(lambda: os.geteuid() == 0, "run the tests as root"),
    "mount": Need(lambda: os.geteuid() == 0, _MAY_MOUNT),
    "slurm": Need(_command("slurmctld"), f"install the packages slurm-wlm, munge and iproute2; {_MAY_MOUNT}"),
}
# A wheel of xprof for another kind of processor needs a newer glibc than TensorFlow's: pyproject.toml leaves it out,
# and with it aiohttp.
NEVER_THERE = set() if platform.machine() == "x86_64" else {"xprof", "aiohttp"}
OF_OTHER_TARGETS = {"slurm", "chromium", *OF_EXTRAS}


def require(name: str) -> None:
    """Return only if the machine has it; otherwise the test is left out, or fails if all are demanded."""
    if not NEEDS[name].is_there():
        lacks(name)


def lacks(name: str, why: str = "") -> NoReturn:
    """End the test, as the machine has not what it needs."""
    text = f"{name} is missing here{why and f' ({why})'}: {NEEDS[name].remedy}"
    if os.environ.get(DEMAND) and name not in NEVER_THERE:
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


if __name__ == "__main__":
    for name, need in NEEDS.items():
        if name not in OF_OTHER_TARGETS and not need.is_there():
            print(f"left out: the tests that need {name}; to run them, {need.remedy}")
