"""Environments of Python made of the packages of the tests' own, and programs that answer as a Python would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.engine import environment_variables, installed_query

ROOT = Path(__file__).parents[2]
# What gputui needs and a trainer does not, by the names of modules and of their packages.
OF_GPUTUI = ("click", "nvidia_ml_py", "platformdirs", "psutil", "pydantic", "pynvml", "pyyaml", "yaml", "_yaml",
             "ruamel", "textual")  # fmt: skip
OF_TRAINING = ("tensorflow", "keras", "numpy")
VERSIONS = {"tensorflow": "2.20.0", "keras": "3.12.0", "numpy": "2.3.0"}


def stand_in(path: Path, version: str = "3.12.1", packages: dict[str, str] = VERSIONS) -> Path:
    """A program that answers as a Python with these packages would."""
    told = {
        "version": [int(part) for part in version.split(".")],
        "packages": packages,
        "places": dict.fromkeys(packages, str(path.parent)),
        "path": [str(path.parent)],
    }
    # the last word is that of a program that prints something when it ends
    return script(path, f"echo '{installed_query.MARK}{json.dumps(told)}'; echo bye")


def script(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def without(folder: Path, left_out: tuple[str, ...], gputui: bool) -> Path:
    """The Python of a new environment with the packages of the tests' but those whose names begin so; with gputui's
    source where it is wanted.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith((*left_out, "__editable__", "gputui")):
            (site / path.name).symlink_to(path)
    if gputui:
        (site / "gputui").mkdir()
        for name in ("engine", "presets", "tui"):
            (site / "gputui" / name).symlink_to(ROOT / name)
    return folder / "bin" / "python"


@pytest.fixture(autouse=True)
def as_launched() -> Iterator[None]:
    """Nothing of the environment of the tests, and none of what is set here stays."""
    before = dict(os.environ)
    for name in before:
        if name.startswith((*environment_variables.PREFIXES, "SLURM_", "GPU_")):
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)
