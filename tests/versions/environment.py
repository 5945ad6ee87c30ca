"""An environment for one version of TensorFlow, with gputui from this folder and all that its tests need."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
SHOWN = {"tensorflow-cpu": "tensorflow"} | {name: name for name in ("tensorflow", "keras", "numpy", "protobuf")}


@dataclass(frozen=True)
class Wanted:
    """A version of TensorFlow such as 2.18; without a version of Keras, the newest that suits it."""

    tensorflow: str
    keras: str = ""

    @property
    def name(self) -> str:
        return f"tensorflow-{self.tensorflow}" + (f"-keras-{self.keras}" if self.keras else "")


def wanted(word: str) -> Wanted:
    """2.18, or 2.18:3.10 for TensorFlow 2.18 with Keras 3.10; raises ValueError."""
    found = re.fullmatch(r"(\d+\.\d+[\w.]*)(?::(\d+\.\d+[\w.]*))?", word)
    if found is None:
        raise ValueError(f"{word} is no version: give TensorFlow's, such as 2.18, or 2.18:3.10 with that of Keras")
    return Wanted(found[1], found[2] or "")


def package() -> str:
    """TensorFlow without CUDA's libraries, where there is such a package."""
    return "tensorflow-cpu" if sys.platform == "linux" and platform.machine() == "x86_64" else "tensorflow"


def made(wish: Wanted, folder: Path) -> Path:
    """Make the environment, or bring it up to date; returns its Python. Raises CalledProcessError."""
    python = folder / wish.name / "bin/python"
    if not python.exists():
        _uv("venv", "--python", sys.executable, str(folder / wish.name))
    exact = [f"{package()}=={_any_patch(wish.tensorflow)}"]
    exact += [f"keras=={_any_patch(wish.keras)}"] if wish.keras else []
    tests = ["--editable", str(ROOT), "--group", f"{ROOT / 'pyproject.toml'}:dev"]
    _uv("pip", "install", "--python", str(python), *exact, *tests)
    return python


def versions(python: Path) -> dict[str, str]:
    """What is installed of the packages that are shown, and the version of Python."""
    program = (
        "import platform; from importlib.metadata import distributions as all; print(platform.python_version());"
        "print(*(f\"{one.metadata['Name']}={one.version}\" for one in all()), sep='\\n')"
    )
    first, *rest = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = {name.replace("_", "-"): version for name, _, version in (line.partition("=") for line in rest)}
    return {"python": first} | {shown: found[name] for name, shown in SHOWN.items() if name in found}


def _any_patch(version: str) -> str:
    return f"{version}.*" if version.count(".") == 1 else version


def _uv(*arguments: str) -> None:
    subprocess.run([UV, *arguments, "--quiet"], check=True, env=os.environ | {"UV_LINK_MODE": "hardlink"})
